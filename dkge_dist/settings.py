"""Settings: defaults, a YAML file, then `key=value` overrides. Unknown keys are refused, the nearest one suggested."""

from __future__ import annotations

import difflib
import os
import re
import reprlib
import warnings
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


MAX_FILE_BYTES = 1 << 20
MAX_SHOWN = 200
MAX_DEPTH = 2
MAX_THREADS = 4096

Metric = Literal["mrr", "hits@1", "hits@3", "hits@10"]


class ContextSettings(Section):
    """What a context is. These belong to the model version: an update refuses to change them."""

    cap: Annotated[int, Field(ge=1, le=4096, description="vertices of a context besides the object")] = 35
    hops: Annotated[int, Field(ge=1, le=4, description="radius of entity contexts")] = 1
    path_length: Annotated[int, Field(ge=1, le=4, description="longest relation path in relation contexts")] = 2


class ModelSettings(Section):
    """The shape of the model. It belongs to the model version."""

    dim: Annotated[int, Field(ge=1, le=4096, description="dimension of the vectors")] = 128
    entity_layers: Annotated[int, Field(ge=1, le=3, description="layers of the entities' graph convolution")] = 1
    relation_layers: Annotated[int, Field(ge=1, le=3, description="layers of the relations' graph convolution")] = 1


class EvidenceSettings(Section):
    """What the graph itself says for an answer. They belong to the model version. `evidence=false` turns it off."""

    enabled: Annotated[bool, Field(description="learn with evidence, rank and answer by it")] = True
    max_candidates: Annotated[int, Field(ge=8, le=1_000_000, description="of a question that may have evidence")] = 8000
    max_neighbours: Annotated[int, Field(ge=1, le=4096, description="of an entity that walks go to, a sample")] = 64
    offset: Annotated[
        float,
        Field(ge=0, le=100, description="logit that a certain link gives a positive at first, and less to the end"),
    ] = 10.0


BATCHES_AN_EPOCH = 50
"""That a large batch leaves at least."""

LEAST_BATCH, LARGEST_BATCH = 1000, 4000
"""Positives of a batch that is chosen by the size of the graph."""

RATE_EXPONENT = 0.5
"""The learning rate is multiplied by this power of the growth of the batch."""


class TrainSettings(Section):
    """Learning from scratch. The defaults learn best and fastest; the `paper` preset is the published method."""

    batch_size: Annotated[
        int | None,
        Field(ge=1, le=10_000_000, description="positives; null: by the size of the graph, the learning rate with it"),
    ] = None
    sampler: Annotated[
        Literal["shared", "bernoulli"],
        Field(description="negatives shared by a batch and scored on both sides, or one Bernoulli negative a triple"),
    ] = "shared"
    negatives: Annotated[int, Field(ge=1, le=1_000_000, description="shared negatives of a batch")] = 1024
    own_negative: Annotated[
        bool, Field(description="the question's own entity competes too, if its relation has no self loops")
    ] = True
    logq_correction: Annotated[
        bool, Field(description="a shared negative weighs as many entities as it stands for")
    ] = True
    loss: Literal["softmax", "self_adversarial", "margin"] = "softmax"
    margin: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    optimizer: Annotated[
        Literal["adagrad", "sgd", "damped_adagrad"],
        Field(description="row-wise Adagrad, plain descent, or Adagrad that moves little what is well where it is"),
    ] = "adagrad"
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 0.07
    dense_learning_rate: Annotated[
        float | None, Field(gt=0, le=1e6, description="of W, u and gates; null: as for rows")
    ] = 0.01
    schedule: Annotated[Literal["linear", "constant"], Field(description="of the learning rate, over max_epochs")] = (
        "linear"
    )
    products: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Field(description="precision of products with W in a step; auto: bfloat16 where the processor has it"),
    ] = "auto"
    init_scale: Annotated[float, Field(gt=0, le=1e3, description="start values, as a share of published ones")] = 0.2
    hide_targets: Annotated[
        float, Field(ge=0, le=1, description="share of triples left out of the contexts they are learnt with")
    ] = 0.8
    max_epochs: Annotated[int, Field(ge=1, le=10_000_000)] = 20
    max_seconds: Annotated[float, Field(ge=0, description="0 means no limit")] = 0.0
    eval_every: Annotated[int, Field(ge=1, description="epochs between validations")] = 20
    early_stopping_metric: Annotated[Metric, Field(description="which validation metric has to get better")] = "hits@10"
    patience: Annotated[int, Field(ge=0, description="validations without a better one to stop after; 0: never")] = 5
    valid_triples: Annotated[int, Field(ge=1, description="validation triples to rank, sampled once")] = 3000
    valid_candidates: Annotated[int, Field(ge=1, description="entities they compete with, sampled once")] = 100_000
    checkpoint_seconds: Annotated[float, Field(ge=0, description="between checkpoints")] = 300.0

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

    affected_by: Annotated[
        Literal["context", "endpoints"],
        Field(description="affected: objects whose context changed; `endpoints` adds all ends of changed triples"),
    ] = "endpoints"
    hold_relations: Annotated[
        bool, Field(description="relations that existed keep their vectors; only their contexts change")
    ] = True
    epochs_over: Annotated[
        Literal["changed", "affected"],
        Field(description="added and deleted triples with some of their surroundings, or all of affected objects"),
    ] = "changed"
    replay: Annotated[
        float, Field(ge=0, le=1000, description="triples of the surroundings beside each changed one in a batch")
    ] = 5.0
    elsewhere: Annotated[
        float, Field(ge=0, le=1000, description="triples of the whole graph beside each changed one in a batch")
    ] = 2.0
    negatives: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="of a batch, and as many again of what learns; null: as in training"),
    ] = 256
    hide_targets: Annotated[
        float | None,
        Field(ge=0, le=1, description="the share of triples that do not show in contexts; null: as in training"),
    ] = 0.25
    hold_affected: Annotated[
        float, Field(ge=0, le=1000, description="how strongly affected entities are drawn back to where they were")
    ] = 0.2
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    optimizer: Annotated[
        Literal["adagrad", "sgd", "damped_adagrad"],
        Field(description="damped: what is well where it is moves little at first"),
    ] = "damped_adagrad"
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 0.15
    schedule: Annotated[Literal["linear", "constant"], Field(description="of the learning rate, over max_epochs")] = (
        "linear"
    )
    max_epochs: Annotated[int, Field(ge=0, le=10_000_000)] = 20
    narrow_after: Annotated[
        int,
        Field(
            ge=0,
            description="batches (two epochs at least) over all that changed; then, as long as the surroundings are "
            "unhurt, only over what is not learnt; 0: never",
        ),
    ] = 64
    refit_evidence: Annotated[
        float,
        Field(
            ge=0,
            description="share of the train triples that changed since the weights of evidence were fitted from which "
            "a night fits them anew; 0: never",
        ),
    ] = 0.1
    refresh_epochs: Annotated[
        int, Field(ge=1, le=10_000_000, description="of a refresh, which goes over the whole graph")
    ] = 4
    refresh_learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    max_seconds: Annotated[float, Field(ge=0, description="0 means no limit")] = 0.0
    max_triples_per_object: Annotated[int, Field(ge=0, description="triples an object brings; 0 means all")] = 30
    early_stopping_metric: Annotated[Metric, Field(description="which validation metric has to get better")] = "mrr"
    patience: Annotated[int, Field(ge=0, description="epochs without a better one to stop after; 0: never")] = 3
    valid_triples: Annotated[int, Field(ge=1, description="validation triples to rank, sampled once")] = 1000
    valid_candidates: Annotated[int, Field(ge=1, description="entities they compete with, sampled once")] = 5000
    retrain_when: Annotated[
        str,
        AfterValidator(_checked_policy),
        Field(
            description="never, mrr_drop > 3%, added_mrr < 0.7, every 30 nights, joined by `or`: when a training is due"
        ),
    ] = "mrr_drop > 3% or added_mrr < 0.7"
    on_drift: Annotated[
        Literal["warn", "train"], Field(description="a training that mrr_drop or added_mrr asks for: say so, or do it")
    ] = "warn"

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
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 7
    threads: Annotated[
        int, Field(ge=0, description="threads of the kernels; 0 means all cores"), AfterValidator(_possible_threads)
    ] = 0
    device: Annotated[
        str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$", description="auto: a GPU where there is one")
    ] = "auto"
    on_publish: Annotated[
        str | None,
        Field(min_length=1, description="a command or URL that is told of every new model; no part of a version"),
    ] = None
    on_publish_seconds: Annotated[float, Field(gt=0, le=86400, description="that it may take")] = 30.0

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
        "online.hold_affected": 0.0,
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
    learnt_with = dict(_current_name(key, value) for key, value in _flat(stored))
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
            key, value = _renamed(key, value, str(path))
            values[key] = value
    if isinstance(overrides, Mapping):
        return values | dict(_renamed(key, value, "settings") for key, value in _flat(dict(overrides)))
    for word in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r}: settings are given as key=value")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError):
            raise UsageError(f"setting {key}={_short(text)}: not a YAML value") from None
        key, value = _renamed(key, value, "command line")
        values[key] = value
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


RENAMED: dict[str, tuple[str, dict[Any, Any]]] = {
    "train.correct_sampling": ("train.logq_correction", {}),
    "online.literal": ("online.affected_by", {True: "context", False: "endpoints"}),
}
"""Settings of the release before, by their old names: the new name, and what old values are called now."""


SHORT = {"evidence": "evidence.enabled"}
"""Short names of settings."""


def _current_name(key: str, value: Any) -> tuple[str, Any]:
    """A setting under the name that it has now."""
    if key not in RENAMED:
        return key, value
    name, values = RENAMED[key]
    return name, values.get(value, value)


def _renamed(key: str, value: Any, where: str) -> tuple[str, Any]:
    """A known setting under the name that it has now; an old name is still read, with a warning."""
    key = SHORT.get(key, key)
    name, value = _current_name(key, value)
    if name != key:
        # A FutureWarning is one that Python shows to users by default.
        warnings.warn(f"{where}: the setting {key!r} is called {name!r} now", FutureWarning, stacklevel=2)
    _refuse_unknown(name, where)
    return name, value


def _refuse_unknown(key: str, where: str) -> None:
    keys = list(known_keys())
    if key not in keys:
        # Whoever left out the group, or named a wrong one, is helped by the last word alone.
        by_last_word = {known.rpartition(".")[2]: known for known in keys}
        near = difflib.get_close_matches(key, keys, 1, 0.6)
        near = near or difflib.get_close_matches(key.rpartition(".")[2], by_last_word, 1, 0.6)
        hint = f"; did you mean {by_last_word.get(near[0], near[0])!r}?" if near else ""
        raise UsageError(f"{where}: no setting {key!r}{hint}")
