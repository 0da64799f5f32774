"""TransE, ComplEx, ConvE and RotatE by PyKEEN, with its own training loops, stopped by our clock and our validation.

PyKEEN is no dependency of the package: `pip install --constraint constraints.txt pykeen`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.peers.protocol import FitReport, Graph, OutOfBudgetError, Watch
from benchmarks.peers.ranking import validation_hits
from dkge_dist.types import Array, DkgeError

INSTALL = "PyKEEN is not installed: pip install --constraint constraints.txt pykeen"
TRIPLES_AT_ONCE = 2000
"""Of a batch with sampled negatives. PyKEEN's optimizers go over whole tables, so that small batches cost too much."""
LABELS_AT_ONCE = 7_000_000
"""Of a batch in which all entities compete: 256 questions of YAGO-3SP. More cost as much each, and learn less."""
NUMBERS_AT_ONCE = 30_000_000
"""Of a block of scores: 120 MB."""
FOREVER = 1_000_000


@dataclass(frozen=True)
class PykeenSettings:
    """A model and how it is trained. `negatives` of each triple; 0: all entities compete (1-N scoring)."""

    model: str
    rate: float
    negatives: int
    loss: str
    optimizer: str = "Adam"
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    loss_kwargs: dict[str, Any] = field(default_factory=dict)
    label_smoothing: float = 0.0
    inverse: bool = False


class PykeenPeer:
    """One model of PyKEEN over the entities alive, numbered from 0 on."""

    def __init__(self, settings: PykeenSettings, seed: int = 0) -> None:
        try:
            import pykeen.models  # noqa: F401
        except ImportError:
            raise DkgeError(INSTALL) from None
        self.settings, self.seed = settings, seed
        self._model: Any = None
        self._candidates: Array = np.empty(0)

    def fit(self, graph: Graph, budget: float) -> FitReport:
        """Until the budget is used up, or validation gets no better; the best model is kept."""
        from pykeen.models import model_resolver
        from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        logging.getLogger("pykeen").setLevel(logging.ERROR)
        for set_seed in (random.seed, np.random.seed, torch.manual_seed):
            set_seed(self.seed)
        how, self._candidates = self.settings, graph.candidates
        head, tail = (np.searchsorted(graph.candidates, rows) for rows in (graph.train.head, graph.train.tail))
        mapped = torch.from_numpy(np.stack([head, graph.train.relation, tail], 1).astype(np.int64))
        factory = CoreTriplesFactory(
            mapped, graph.candidates.shape[0], graph.relation_rows, create_inverse_triples=how.inverse
        )
        self._model = model = model_resolver.make(
            how.model,
            triples_factory=factory,
            loss=how.loss,
            loss_kwargs=how.loss_kwargs,
            random_seed=self.seed,
            **how.model_kwargs,
        )
        optimizer = getattr(torch.optim, how.optimizer)(model.parameters(), lr=how.rate)
        # A small graph has batches too.
        batch = max(8, min(TRIPLES_AT_ONCE, graph.train.count // 20))
        if how.negatives:
            loop = SLCWATrainingLoop(
                model=model, triples_factory=factory, optimizer=optimizer, negative_sampler="bernoulli",
                negative_sampler_kwargs={"num_negs_per_pos": how.negatives},
            )  # fmt: skip
        else:
            batch = max(8, min(batch, LABELS_AT_ONCE // graph.candidates.shape[0]))
            loop = LCWATrainingLoop(model=model, triples_factory=factory, optimizer=optimizer)
        best: dict[str, torch.Tensor] = {}

        def keep() -> None:
            best.update({name: value.detach().clone() for name, value in model.state_dict().items()})

        watch = Watch(budget, lambda: self._validate(graph), keep)
        with contextlib.suppress(OutOfBudgetError), by_products():
            loop.train(
                factory, num_epochs=FOREVER, batch_size=batch, use_tqdm=False, num_workers=0, pin_memory=False,
                label_smoothing=how.label_smoothing, callbacks=[_clock_of(watch, optimizer)],
            )  # fmt: skip
        report = watch.end()
        model.load_state_dict(best)
        model.eval()
        report.facts = {"batch": batch, "parameters": sum(p.numel() for p in model.parameters())}
        return report

    def _validate(self, graph: Graph) -> float:
        self._model.eval()
        found = validation_hits(self, graph, self.seed)
        self._model.train()
        return found

    def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
        """All candidates of each question, a few questions at a time."""
        entity = torch.from_numpy(np.searchsorted(self._candidates, entity_Q))
        relation = torch.from_numpy(relation_Q.astype(np.int64))
        count = self._candidates.shape[0]
        step = max(1, NUMBERS_AT_ONCE // count)
        found = self._distances if self.settings.model in DISTANCES else self._predicted
        score_QC = np.empty((entity_Q.shape[0], count), np.float32)
        with torch.inference_mode():
            for begin in range(0, entity_Q.shape[0], step):
                end = begin + step
                score_QC[begin:end] = found(entity[begin:end], relation[begin:end], asks_tail).numpy()
        return score_QC

    def _predicted(self, entity_Q: torch.Tensor, relation_Q: torch.Tensor, asks_tail: bool) -> torch.Tensor:
        """PyKEEN's own scores."""
        with by_products():
            if asks_tail:
                return self._model.predict_t(torch.stack([entity_Q, relation_Q], 1))  # type: ignore[no-any-return]
            return self._model.predict_h(torch.stack([relation_Q, entity_Q], 1))  # type: ignore[no-any-return]

    def _distances(self, entity_Q: torch.Tensor, relation_Q: torch.Tensor, asks_tail: bool) -> torch.Tensor:
        """The same numbers of TransE and RotatE, by distances from where the answer should be: PyKEEN writes every
        difference down, and then takes longer to validate a training than for the training itself.
        """
        entities = self._model.entity_representations[0]()
        own_QD, relation_QD = entities[entity_Q], self._model.relation_representations[0]()[relation_Q]
        if entities.is_complex():
            # A rotation keeps lengths: |h∘r − t| = |h − t∘r̄|. The length of a complex vector is that of its numbers.
            wanted_QD = _as_real(own_QD * (relation_QD if asks_tail else relation_QD.conj()))
            entities = _as_real(entities)
        else:
            wanted_QD = own_QD + relation_QD if asks_tail else own_QD - relation_QD
        norm = float(self._model.interaction.p)
        if norm == 2:
            # By a matrix product, in which single precision would lose the digits of small distances.
            return -torch.cdist(wanted_QD.double(), entities.double(), compute_mode="use_mm_for_euclid_dist").float()
        return -torch.cdist(wanted_QD, entities, p=norm)


DISTANCES = ("TransE", "RotatE")


@contextlib.contextmanager
def by_products() -> Iterator[None]:
    """While it lasts, ComplEx and ConvE compare with many entities by one real matrix product. PyKEEN writes down every
    number of ConvE's, 20 GB for a batch on YAGO-3SP, and computes the imaginary half of ComplEx's, which nobody needs.
    """

    def dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...d,...d->...", one, other)

    def complex_scores(interaction: Any, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        # The relation goes to the side of fewer rows: to all heads, it would be 5 GB.
        return dot(_as_real(h * r), _as_real(t)) if h.numel() <= t.numel() else dot(_as_real(h), _as_real(r.conj() * t))

    with (
        mock.patch("pykeen.nn.modules.batched_dot", dot),
        mock.patch("pykeen.nn.modules.ComplExInteraction.forward", complex_scores),
    ):
        yield


def _as_real(rows: torch.Tensor) -> torch.Tensor:
    """Complex vectors as real ones of twice the length."""
    return torch.view_as_real(rows.contiguous()).flatten(-2)


def _clock_of(watch: Watch, optimizer: torch.optim.Optimizer) -> Any:
    """A callback that ends a training of PyKEEN when the watch says so, and brings its learning rate down to nothing
    until then, as ours does.
    """
    from pykeen.training.callbacks import TrainingCallback

    rate = optimizer.param_groups[0]["lr"]

    class Clock(TrainingCallback):
        """Counts batches; PyKEEN numbers epochs only."""

        counted = itertools.count(1)
        of_epoch = 0

        def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
            done = next(self.counted)
            epochs = done / self.of_epoch if self.of_epoch else 0.0
            if watch.after_batch(epochs):
                raise OutOfBudgetError
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 - watch.share)

        def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
            if not self.of_epoch:
                self.of_epoch = next(self.counted) - 1
                self.counted = itertools.count(self.of_epoch + 1)

    return Clock()


def _transe(margin: float, rate: float, norm: int) -> PykeenSettings:
    model = {"embedding_dim": 100, "scoring_fct_norm": norm}
    return PykeenSettings("TransE", rate, 1, "MarginRankingLoss", "Adam", model, {"margin": margin})


def _complex(rate: float, negatives: int, optimizer: str) -> PykeenSettings:
    loss = "SoftplusLoss" if negatives else "CrossEntropyLoss"
    # From PyKEEN's start values, of the size of 1, it learns nothing for long: scores of strangers are large.
    small = functools.partial(torch.nn.init.normal_, std=0.01)
    model = {"embedding_dim": 100, "entity_initializer": small, "relation_initializer": small}
    return PykeenSettings("ComplEx", rate, negatives, loss, optimizer, model, inverse=not negatives)


def _conve(rate: float, dropout: float, loss: str = "CrossEntropyLoss") -> PykeenSettings:
    model = {
        "embedding_dim": 200, "input_dropout": dropout, "feature_map_dropout": dropout, "output_dropout": dropout + 0.1
    }  # fmt: skip
    # The published loss is that of every label by itself; against 27,000 of them it takes hours to begin.
    smoothing = 0.1 if loss == "BCEWithLogitsLoss" else 0.0
    return PykeenSettings("ConvE", rate, 0, loss, "Adam", model, {}, smoothing, True)


def _rotate(margin: float, negatives: int, rate: float) -> PykeenSettings:
    # PyKEEN measures RotatE in L2, where rates that are small for the margin take the whole budget to get away from 0.
    loss = {"margin": margin, "adversarial_temperature": 1.0}
    return PykeenSettings("RotatE", rate, negatives, "NSSALoss", "Adam", {"embedding_dim": 100}, loss)


GRIDS: dict[str, dict[str, PykeenSettings]] = {
    "TransE": {
        "L1, margin 5, rate .01": _transe(5.0, 0.01, 1),
        "L1, margin 5, rate .001": _transe(5.0, 0.001, 1),
        "L1, margin 2, rate .01": _transe(2.0, 0.01, 1),
        "L2, margin 1, rate .01": _transe(1.0, 0.01, 2),
    },
    "ComplEx": {
        "10 negatives, Adagrad .1": _complex(0.1, 10, "Adagrad"),
        "10 negatives, Adam .003": _complex(0.003, 10, "Adam"),
        "all entities, Adagrad .1": _complex(0.1, 0, "Adagrad"),
        "all entities, Adam .003": _complex(0.003, 0, "Adam"),
    },
    "ConvE": {
        "dropout .2, rate .001": _conve(0.001, 0.2),
        "dropout .2, rate .003": _conve(0.003, 0.2),
        "dropout .1, rate .003": _conve(0.003, 0.1),
        "dropout .2, rate .003, every label by itself": _conve(0.003, 0.2, "BCEWithLogitsLoss"),
    },
    "RotatE": {
        "margin 12, 4 negatives, rate .01": _rotate(12.0, 4, 0.01),
        "margin 18, 4 negatives, rate .02": _rotate(18.0, 4, 0.02),
        "margin 24, 4 negatives, rate .03": _rotate(24.0, 4, 0.03),
        "margin 18, 16 negatives, rate .02": _rotate(18.0, 16, 0.02),
    },
}
"""Four settings of each, from the published grids (loss, margin, rate, norm, dropout, negatives). The
dimension is 100, the best published one of DKGE, and 200 for ConvE, whose picture of 10 × 20 is published."""
