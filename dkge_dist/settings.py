"""Settings: defaults, a YAML file, then `key=value` overrides. Unknown keys are refused, the nearest one suggested.

The docstring of a field is its manual: `dkge settings` prints it, and configs/default.yaml is generated from it. What
is marked `EXPERT` was tuned, and nobody outside should need to change it; it is set by its key as the others are.
"""

from __future__ import annotations

import difflib
import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from dkge_dist.files import read_regular
from dkge_dist.types import SettingsGiven as SettingsGiven
from dkge_dist.types import UsageError


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


EXPERT = "expert"
"""Marks the settings that files have under `expert:`."""

MAX_FILE_BYTES = 1 << 20
MAX_SHOWN = 200
MAX_DEPTH = 2
MAX_THREADS = 4096

Metric = Literal["mrr", "hits@1", "hits@3", "hits@10"]
Optimizer = Literal["adagrad", "sgd", "damped_adagrad"]
Schedule = Literal["linear", "constant"]


class ContextSettings(Section):
    """What a context is. These belong to the model version: an update refuses to change them."""

    cap: Annotated[int, Field(ge=1, le=4096)] = 35
    """Vertices of a context besides the object itself. Over the cap a consistent sample is kept, nearer hops first."""
    hops: Annotated[int, Field(ge=1, le=4)] = 1
    """Radius of entity contexts in hops. Published: 1."""
    path_length: Annotated[int, Field(ge=1, le=4)] = 2
    """Longest relation path in relation contexts. Published: 2."""


class ModelSettings(Section):
    """The shape of the model. It belongs to the model version."""

    dim: Annotated[int, Field(ge=1, le=4096)] = 128
    """Dimension of the vectors; published: 100. An update cannot change this group, `context` or `evidence`."""
    entity_layers: Annotated[int, Field(ge=1, le=3)] = 1
    """Layers of the graph convolution of entities. Published: 1."""
    relation_layers: Annotated[int, Field(ge=1, le=3)] = 1
    """Layers of the graph convolution of relations. Published: 1."""


class EvidenceSettings(Section):
    """What the graph itself says for an answer. They belong to the model version. `evidence=false` turns it off."""

    enabled: bool = True
    """Learn with what the train graph itself says for an answer, and rank and answer by it. `evidence=false` for
    short."""
    max_candidates: Annotated[int, Field(ge=8, le=1_000_000)] = 8000
    """Candidates of one question that may have evidence: a quarter each by links, shared neighbours, similar answers
    and paths."""
    max_neighbours: Annotated[int, EXPERT, Field(ge=1, le=4096)] = 64
    """Neighbours of an entity that walks go to. Of a hub a consistent sample, so that it costs no more than others."""
    offset: Annotated[float, EXPERT, Field(ge=0, le=100)] = 10.0
    """Logit that a positive is given at first where a certain link explains it: vectors then look for what the graph
    does not say. It falls with the logarithm of the link's confidence, and to nothing by the end of a training, so that
    vectors know every triple. 0: they learn as if there were no evidence. Updates need none."""
    fit_triples: Annotated[int, EXPERT, Field(ge=1, le=10_000_000)] = 3000
    """Triples that the weights are fitted on at most: there are few weights."""
    fit_candidates: Annotated[int, EXPERT, Field(ge=1, le=100_000)] = 300
    """Candidates without evidence that stand for all of them in a fit."""
    common_prior: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 0.1
    """Penalty of the square of weights that are common to all relations."""
    relation_prior: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 1.0
    """Penalty of the square of what the weights of a relation differ from the common ones by."""
    unwritten: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 4.0
    """In a fit a candidate with a link of confidence p counts (1 - p) to this power: it may be a fact that the graph
    lacks, and the likelier that is, the less a fit may learn from it that such candidates are wrong."""
    forgiving: Annotated[float, EXPERT, Field(ge=0, le=1)] = 0.5
    """q of the generalised cross entropy (1 - p^q) / q: between likelihood (0) and the chance of being first (1). An
    answer without evidence counts less than one that evidence nearly puts first, as it does for reciprocal ranks."""
    self_weight: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 10.0
    """c of c·log((self_r + 1) / (pairs_r + 2)), the evidence for the question's own entity: a relation without self
    loops will hardly have one now. Not fitted."""
    learnt_share: Annotated[float, EXPERT, Field(gt=0, lt=1)] = 0.9
    """Evidence counts less from the distance within which this share of the train triples lies: below it, vectors know
    a triple by themselves."""
    farthest_share: Annotated[float, EXPERT, Field(gt=0, lt=1)] = 0.99
    """The same distance holds this share of the train triples at most, however far away new triples lie."""


class CalibrationSettings(Section):
    """How scores become probabilities."""

    triples: Annotated[int, EXPERT, Field(ge=1, le=10_000_000)] = 3000
    """Validation triples that the curves are fitted on at most: they have few parameters."""
    common_prior: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 0.1
    """Penalty of the square of the slope (its logarithm) and the offset of all relations."""
    slope_prior: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 4.0
    """Penalty of the square of what the slope (its logarithm) of a relation differs from that of all by."""
    offset_prior: Annotated[float, EXPERT, Field(ge=0, le=1e6)] = 0.5
    """Penalty of the square of what the offset of a relation differs from that of all by."""


BATCHES_AN_EPOCH = 50
"""That a large batch leaves at least."""

LEAST_BATCH, LARGEST_BATCH = 1000, 4000
"""Positives of a batch that is chosen by the size of the graph."""

RATE_EXPONENT = 0.5
"""The learning rate is multiplied by this power of the growth of the batch."""


class TrainSettings(Section):
    """Learning from scratch. The defaults learn best and fastest; the `paper` preset is the published method."""

    batch_size: Annotated[int | None, Field(ge=1, le=10_000_000)] = None
    """Positives of a batch. null: a 50th of the train triples, between 1,000 and 4,000; the learning rate of rows is
    then that of a batch of 1,000, and grows with the square root of the batch. With a number here, both are taken as
    they are."""
    sampler: Literal["shared", "bernoulli"] = "shared"
    """shared: negatives serve the whole batch, on both sides. bernoulli: one a positive, as published (with loss:
    margin)."""
    negatives: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Negatives of a batch, for the shared sampler: half of them uniform, half as often as they stand in train: of a
    batch that is twice as large, ends of its own triples, which are encoded anyway."""
    own_negative: Annotated[bool, EXPERT] = True
    """The question's own entity is always a negative too, if its relation joins no entity to itself; online too."""
    logq_correction: Annotated[bool, EXPERT] = True
    """A shared negative counts for as many entities as it was drawn from: the softmax then estimates the one over all
    entities."""
    loss: Literal["softmax", "self_adversarial", "margin"] = "softmax"
    """softmax, self_adversarial (both with sampler: shared), or margin (with sampler: bernoulli)."""
    margin: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Handicap of the positive in the softmax; γ of the other losses."""
    optimizer: Optimizer = "adagrad"
    """adagrad (one sum a row), sgd, or damped_adagrad, which at first moves little what fits already."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 0.07
    """Of rows of the tables."""
    dense_learning_rate: Annotated[float | None, EXPERT, Field(gt=0, le=1e6)] = 0.01
    """Of W, u and the gates; null means as for rows."""
    schedule: Annotated[Schedule, EXPERT] = "linear"
    """Of the learning rate. linear: down to nothing over max_epochs; or constant."""
    products: Annotated[Literal["auto", "float32", "bfloat16"], EXPERT] = "auto"
    """Precision of the products of context vectors with W in a step: float32, bfloat16 (twice as fast, 8 significant
    bits), or auto: bfloat16 where the processor has instructions for it. What is ranked and published is computed in
    float32 in any case."""
    init_scale: Annotated[float, EXPERT, Field(gt=0, le=1e3)] = 0.2
    """Initial vectors, as a share of the published U(-6/√d, 6/√d). Smaller ones generalise better and take more
    epochs."""
    hide_targets: Annotated[float, EXPERT, Field(ge=0, le=1)] = 0.8
    """Share of the triples of a batch that are left out of the contexts they are learnt with. With 1 an entity that has
    one triple never learns with the context that it is asked with."""
    max_epochs: Annotated[int, Field(ge=1, le=10_000_000)] = 20
    """The end of training; the learning rate is planned for it."""
    max_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Seconds to train at most; 0 means no limit. With a limit, schedules end with it."""
    eval_every: Annotated[int, Field(ge=1)] = 20
    """Epochs between validations, of which the best is kept. The default validates at the end: while the offset of
    evidence fades out, vectors rank held-out triples no better for a while, but learn many more train triples."""
    early_stopping_metric: Metric = "hits@10"
    """Early stopping: the validation metric that has to get better: mrr, hits@1, hits@3 or hits@10."""
    patience: Annotated[int, Field(ge=0)] = 5
    """Early stopping: validations without a better one to stop after; 0 means never."""
    valid_triples: Annotated[int, EXPERT, Field(ge=1)] = 3000
    """Validation triples to rank: a sample drawn once."""
    valid_candidates: Annotated[int, EXPERT, Field(ge=1)] = 100_000
    """Entities that they compete with: a sample drawn once."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 300.0
    """Seconds between checkpoints."""
    least_rate: Annotated[float, EXPERT, Field(ge=0, le=1)] = 0.01
    """Share of the learning rate that a linear schedule ends at."""
    diverged_above: Annotated[float, EXPERT, Field(gt=1)] = 3.0
    """An epoch whose loss is so many times that of the first one (or the margin) ends the training."""
    in_batch_from: Annotated[float, EXPERT, Field(gt=0)] = 2.0
    """A batch of so many times the negatives lends them its own ends. A small one would learn from few entities."""

    @model_validator(mode="after")
    def _fits(self) -> TrainSettings:
        if (self.sampler == "bernoulli") != (self.loss == "margin"):
            raise ValueError("train.loss=margin goes with train.sampler=bernoulli, the other losses with shared")
        return self

    def batch_for(self, triples: int) -> tuple[int, float]:
        """The positives of a batch for so many train triples, and what the learning rate of rows is multiplied by.

        Large batches encode fewer contexts a triple and learn as well with longer steps, as long as there are enough.
        """
        if self.batch_size is not None:
            return self.batch_size, 1.0
        size = min(max(triples // BATCHES_AN_EPOCH, LEAST_BATCH), LARGEST_BATCH)
        return size, (size / LEAST_BATCH) ** RATE_EXPONENT


NUMBER = r"[0-9]+(?:\.[0-9]+)?"
CONDITION = re.compile(
    rf"never|mrr_drop > (?P<mrr_drop>{NUMBER})%|added_mrr < (?P<added_mrr>{NUMBER})"
    r"|every (?P<nights>[1-9][0-9]*) nights"
)


class RetrainPolicy(NamedTuple):
    """When a model should be trained from scratch again; a condition that is not asked for is None.

    `mrr_drop`: validation MRR fell by more percent since the training. `added_mrr`: the MRR of what a night added is
    lower. `nights`: so many passed since the training.
    """

    mrr_drop: float | None = None
    added_mrr: float | None = None
    nights: int | None = None

    @staticmethod
    def parse(text: str) -> RetrainPolicy:
        """From conditions such as `mrr_drop > 3%`, joined by `or`; `never` is none of them."""
        asked: dict[str, str] = {}
        for condition in text.split(" or "):
            found = CONDITION.fullmatch(condition)
            if found is None:
                expected = "`never`, `mrr_drop > 3%`, `added_mrr < 0.7`, `every 30 nights`, or several joined by `or`"
                raise ValueError(f"expected {expected}")
            named = {name: value for name, value in found.groupdict().items() if value is not None}
            if named.keys() & asked.keys():
                raise ValueError(f"`{condition}` comes after another condition of its kind")
            asked |= named
        limits = {name: float(asked[name]) for name in ("mrr_drop", "added_mrr") if name in asked}
        return RetrainPolicy(**limits, nights=int(asked["nights"]) if "nights" in asked else None)


def _checked_policy(text: str) -> str:
    RetrainPolicy.parse(text)
    return text


class OnlineSettings(Section):
    """Learning what a night changed."""

    affected_by: Literal["context", "endpoints"] = "endpoints"
    """context: affected are only objects whose context changed, as published. endpoints: also the end points of changed
    triples."""
    hold_relations: Annotated[bool, EXPERT] = True
    """Relations that existed are not trained: a few triples more are no reason to move all others of a relation."""
    epochs_over: Annotated[Literal["changed", "affected"], EXPERT] = "changed"
    """changed: an epoch passes over all added and deleted triples, with some of their surroundings. affected: over all
    triples of affected objects, as published, until validation stops getting better."""
    replay: Annotated[float, EXPERT, Field(ge=0, le=1000)] = 5.0
    """Triples of the surroundings beside each changed one in a batch, drawn anew, so that they stay where they are. In
    a night of which an epoch has `narrow_after` batches, a `replay_ratio` of it while the surroundings are retained."""
    global_replay: Annotated[float, EXPERT, Field(ge=0, le=1000)] = 2.0
    """Triples of the whole graph beside each changed one: what learns this night is a wrong answer to their questions.
    Without them, emerging entities rank above the answers of others, and more so every night."""
    negatives: Annotated[int | None, EXPERT, Field(ge=1, le=1_000_000)] = 256
    """Shared negatives of a batch, and as many again of entities that learn this night: other questions hardly meet
    them otherwise. null means as in training."""
    hide_targets: Annotated[float | None, EXPERT, Field(ge=0, le=1)] = 0.25
    """Share of the triples of a batch that are left out of the contexts of their ends; null means as in training. It is
    smaller than there because a fact of tonight will be asked with a context that shows it."""
    proximal_weight: Annotated[float, EXPERT, Field(ge=0, le=1000)] = 0.2
    """How strongly affected entities are drawn back to where they were (a penalty of half of it times the squared
    distance). One that has more than `stayed_per_changed` triples for each that changed is drawn back more, in
    proportion. More keeps more of what was known, and forgets less of what was deleted."""
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    """Positives of a batch, changed ones and their surroundings."""
    optimizer: Annotated[Optimizer, EXPERT] = "damped_adagrad"
    """adagrad, sgd, or damped_adagrad: as adagrad, but a vector that fits already moves little at first."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 0.15
    """At first; see `online.schedule`."""
    schedule: Annotated[Schedule, EXPERT] = "linear"
    """Of the learning rate. linear: down to nothing over max_epochs; or constant."""
    max_epochs: Annotated[int, Field(ge=0, le=10_000_000)] = 20
    """Over what changed, all of them are learnt, without validation. Over affected objects, validation may stop
    earlier; one epoch is not validated."""
    narrow_after: Annotated[int, EXPERT, Field(ge=0)] = 64
    """Over what changed: so many batches, an epoch at least, pass over all of it. Then progress is measured every four
    epochs: as long as the surroundings of the change are retained, batches only pass over added triples that are not
    learnt yet (something is nearer than an end of theirs) and deleted ones that still score well. 0: always over all of
    it."""
    refit_evidence: Annotated[float, EXPERT, Field(ge=0)] = 0.1
    """The weights of evidence are fitted anew on the night by which this share of the train triples changed since they
    were fitted: they suit the graph that they were fitted on. Takes a second, half a minute with millions of entities.
    0: never."""
    refresh_epochs: Annotated[int, Field(ge=1, le=10_000_000)] = 4
    """Epochs of a refresh (`dkge train --refresh`), which goes over the whole graph from where the model is, with all
    vectors and weights free. Nights hold relations and all that did not change, and what these would need to follow
    adds up."""
    refresh_learning_rate: Annotated[float, EXPERT, Field(gt=0, le=1e6)] = 0.1
    """The learning rate of a refresh."""
    refresh_dense_rate: Annotated[float, EXPERT, Field(gt=0, le=1e6)] = 0.003
    """The learning rate of dense parameters in a refresh: they hardly change from night to night."""
    max_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Seconds to learn at most; 0 means no limit."""
    max_triples_per_object: Annotated[int, Field(ge=0)] = 30
    """Triples that one object brings, sampled where it has more; 0 means all. Added triples are always learnt."""
    early_stopping_metric: Annotated[Metric, EXPERT] = "mrr"
    """Early stopping over affected objects: the validation metric that has to get better."""
    patience: Annotated[int, EXPERT, Field(ge=0)] = 3
    """Early stopping over affected objects: epochs without a better one to stop after; 0 means never."""
    valid_triples: Annotated[int, EXPERT, Field(ge=1)] = 1000
    """Validation triples while learning over affected objects: a sample drawn once, so that the cost does not follow
    the graph."""
    valid_candidates: Annotated[int, EXPERT, Field(ge=1)] = 5000
    """Entities that they compete with: a sample drawn once. Fidelity in the report of every update is measured against
    as many candidates."""
    replay_ratio: Annotated[float, EXPERT, Field(ge=0, le=1)] = 0.6
    """Share of the replay in a night of which an epoch has `narrow_after` batches, while its surroundings are retained.
    A small night has time for all of it."""
    retention_threshold: Annotated[float, EXPERT, Field(ge=0)] = 0.99
    """The surroundings of the change are retained while their MRR is so large a share of that before the night."""
    unlearn_above: Annotated[float, EXPERT, Field(ge=0, le=1)] = 0.7
    """A deleted triple is unlearnt while the mean reciprocal rank of its ends is above this. Many stay likely for a
    good reason: unlearnt further, they would take with them what speaks for others."""
    narrow_every: Annotated[int, EXPERT, Field(ge=1)] = 4
    """Epochs between two looks at what is not learnt: most of it needs few, and a look costs about as much as one."""
    global_sample: Annotated[int, EXPERT, Field(ge=0)] = 20
    """Triples of the whole graph that are drawn for each one that changed; `global_replay` is of these."""
    stayed_per_changed: Annotated[float, EXPERT, Field(gt=0)] = 3.0
    """An entity with more triples than so many for each one that changed is held more strongly, in proportion."""
    deleted_weight: Annotated[int, EXPERT, Field(ge=0)] = 3
    """A deleted triple counts as so many that changed: unlearning it must separate its ends."""
    retrain_when: Annotated[str, AfterValidator(_checked_policy)] = "mrr_drop > 3% or added_mrr < 0.7"
    """When training from scratch is due: never, or one or more of these, joined by `or`.
      mrr_drop > 3%     validation MRR fell by more since the last training, on validation triples that both versions
                        know, and its 99% interval excludes zero
      added_mrr < 0.7   the MRR of the triples that a night added is lower, by the upper end of its 99% interval
      every 30 nights   so many passed since the last training
    The first two count when two nights in succession found them. Fewer than 30 triples are too few to decide."""
    on_drift: Literal["warn", "train"] = "warn"
    """What `dkge nightly` does when one of the first two holds: warn (say so, with the command to run), or train.
    `every 30 nights` always trains. A model trained at night is promoted unless it is measurably worse than the one
    learnt online."""

    @property
    def retrain_policy(self) -> RetrainPolicy:
        """`retrain_when`, parsed."""
        return RetrainPolicy.parse(self.retrain_when)


def _possible_threads(threads: int) -> int:
    if threads > MAX_THREADS:
        raise ValueError(f"this machine has {os.cpu_count()} cores; more than {MAX_THREADS} threads are refused")
    return threads


class Settings(Section):
    """Everything that can be set."""

    context: ContextSettings = ContextSettings()
    model: ModelSettings = ModelSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    train: TrainSettings = TrainSettings()
    online: OnlineSettings = OnlineSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 7
    """Of everything random, and of the sampled contexts."""
    threads: Annotated[int, Field(ge=0), AfterValidator(_possible_threads)] = 0
    """Threads of the compiled kernels; 0 means all cores."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")] = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""
    on_publish: Annotated[str | None, Field(min_length=1)] = None
    """A command or an http(s) URL that is told of every model that `train`, `update` and `nightly` publish: JSON with
    version, snapshot and headline, on stdin or by POST. A failure is reported and undoes nothing. It belongs to this
    machine: no version keeps it, so give it every time, best in a file."""
    on_publish_seconds: Annotated[float, Field(gt=0, le=86400)] = 30.0
    """Seconds that it may take."""

    def of_the_model(self) -> dict[str, Any]:
        """What a version keeps: not what is run on the machine that learns it."""
        return self.model_dump(mode="json", exclude=set(OF_THE_MACHINE))


OF_THE_MACHINE = ("on_publish", "on_publish_seconds")
"""Never taken from a store: whoever hands one over must not say what is run here."""


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # As published for YAGO-3SP.
    "paper": {
        "model.dim": 100,
        "evidence.enabled": False,
        "train.batch_size": 500,
        "train.sampler": "bernoulli",
        "train.negatives": 1,
        "train.loss": "margin",
        "train.margin": 10.0,
        "train.optimizer": "sgd",
        "train.learning_rate": 0.005,
        "train.dense_learning_rate": None,
        "train.schedule": "constant",
        "train.init_scale": 1.0,
        "train.hide_targets": 0.0,
        "train.own_negative": False,
        "train.logq_correction": False,
        "train.max_epochs": 800,
        "train.eval_every": 2,
        "online.affected_by": "context",
        "online.hold_relations": False,
        "online.hide_targets": None,
        "online.proximal_weight": 0.0,
        "online.negatives": None,
        "online.epochs_over": "affected",
        "online.batch_size": 500,
        "online.optimizer": "sgd",
        "online.learning_rate": 0.005,
        "online.schedule": "constant",
        "online.max_epochs": 100,
        "online.max_triples_per_object": 0,
    },
}


def load_settings(path: Path | None = None, overrides: SettingsGiven = (), preset: str = "default") -> Settings:
    """The preset, then the YAML file, then `key=value` words such as `context.cap=20`, or a mapping."""
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}: one of {', '.join(PRESETS)}")
    return _validated({**PRESETS[preset], **_given(path, overrides)})


def settings_of_model(stored: dict[str, Any], path: Path | None = None, overrides: SettingsGiven = ()) -> Settings:
    """The settings that a model was learnt with, then the file, then the words; what belongs to it may not change."""
    learnt_with = dict(_flat(stored))
    given = _given(path, overrides)
    for key, value in given.items():
        if key.partition(".")[0] in OF_THE_MODEL and value != learnt_with.get(key):
            raise UsageError(
                f"{key}={value}: the model was learnt with {learnt_with.get(key)}; train from scratch to change it"
            )
    known = set(known_keys()) - set(OF_THE_MACHINE)
    return _validated({**{key: value for key, value in learnt_with.items() if key in known}, **given})


OF_THE_MODEL = ("context", "model", "evidence", "seed")


def _given(path: Path | None, overrides: SettingsGiven) -> dict[str, Any]:
    """What a file, and words or a mapping, say, by dotted name."""
    values: dict[str, Any] = {}
    if path is not None:
        for key, value in _flat(_read_yaml(path)):
            values[full_name(key, str(path))] = value
    if isinstance(overrides, Mapping):
        return values | {full_name(key, "settings"): value for key, value in _flat(dict(overrides))}
    for word in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r}: settings are given as key=value")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError):
            raise UsageError(f"setting {key}={_short(text)}: not a YAML value") from None
        values[full_name(key, "command line")] = value
    return values


def _validated(values: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(_nested(values))
    except ValidationError as error:
        first = error.errors()[0]
        message = first["ctx"]["error"] if first["type"] == "value_error" else first["msg"]
        key = ".".join(str(part) for part in first["loc"])
        # What is wrong about several settings together is told of their group.
        is_group = isinstance(first["input"], dict)
        raise UsageError(
            f"settings: {message}" if is_group else f"setting {key}={_short(first['input'])}: {message}"
        ) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(read_regular(path, MAX_FILE_BYTES).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected `key: value` lines")
    return content


def known_keys(section: type[Section] = Settings, prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from known_keys(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _short(value: Any) -> str:
    """A value for a message: YAML can repeat a list in lists of itself, which takes no room until it is written out."""
    return reprlib.repr(value) if isinstance(value, list | dict) else repr(value)[:MAX_SHOWN]


def _flat(values: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted name. A group whose settings are all commented out (null in YAML) holds none."""
    groups = {key.rpartition(".")[0] for key in known_keys()}
    groups |= {EXPERT, *(f"{EXPERT}.{group}" for group in groups)}
    for name, value in values.items():
        key = f"{prefix}{str(name)[:MAX_SHOWN]}"
        if isinstance(value, dict) and prefix.count(".") >= MAX_DEPTH:
            raise UsageError(f"setting {key[:MAX_SHOWN]}: there are no groups within groups")
        if isinstance(value, dict):
            yield from _flat(value, f"{key}.")
        elif value is not None or key not in groups:
            yield key, value


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *groups, last = key.split(".")
        target = nested
        for group in groups:
            target = target.setdefault(group, {})
        target[last] = value
    return nested


SHORT = {"evidence": "evidence.enabled"}
"""Short names of settings."""


def full_name(key: str, where: str) -> str:
    """A setting by its own name: files may have it under `expert:`, and some have a short name."""
    key = key.removeprefix(f"{EXPERT}.")
    key = SHORT.get(key, key)
    _refuse_unknown(key, where)
    return key


def _refuse_unknown(key: str, where: str) -> None:
    keys = list(known_keys())
    if key not in keys:
        # Whoever left out the group, or named a wrong one, is helped by the last word alone.
        by_last_word = {known.rpartition(".")[2]: known for known in keys}
        near = difflib.get_close_matches(key, keys, 1, 0.6)
        near = near or difflib.get_close_matches(key.rpartition(".")[2], by_last_word, 1, 0.6)
        hint = f"; did you mean {by_last_word.get(near[0], near[0])!r}?" if near else ""
        raise UsageError(f"{where}: no setting {key!r}{hint}")
