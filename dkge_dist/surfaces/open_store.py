"""A store that stays open for many questions: `dkge_dist.open(store)`."""

from __future__ import annotations

from threading import Lock
from types import TracebackType

from dkge_dist.ask.model import Asked, Model, newer_snapshot, open_model
from dkge_dist.ask.results import Log
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.history import describe_version
from dkge_dist.store.store import Store
from dkge_dist.surfaces.nightly_summary import NIGHTS, nightly_summary
from dkge_dist.surfaces.pages.figures import NightlySummary
from dkge_dist.types import DkgeError


class OpenStore(Asked):
    """One model of a store, kept open. Many threads may ask at once.

    Answers are those of that version until `refresh` follows a newer one.
    """

    def __init__(self, store: Store, version: str | None) -> None:
        self._store, self._named = store, version
        self._changing = Lock()
        self._model: Model | None = open_model(store, version)

    def log(self) -> Log:
        """Every version of the store, those published since it was opened too."""
        store = self._store
        return Log(versions=[describe_version(store, store.manifest(number)) for number in store.versions()])

    def report(self, nights: int = NIGHTS, answers: bool = True) -> NightlySummary:
        """The figures of the page about the newest nights: `dkge_dist.report` writes it."""
        return nightly_summary(self._store, LocalRuntime(), nights, answers)

    def refresh(self) -> bool:
        """Follow the store to the model that is current now (or that of `version`). Was there another one?

        Questions under way are answered by the version that they were asked.
        """
        with self._changing:
            model = self.model
            if self._store.find_model(self._named).version == model.version:
                # What was made for questions stays; only what is newer than the model may be something else.
                model.notice = newer_snapshot(model, self._named)
                return False
            self._model = open_model(self._store, self._named)
            return True

    @property
    def model(self) -> Model:
        """The model that answers now."""
        if self._model is None:
            raise DkgeError(f"{self._store}: is closed")
        return self._model

    @property
    def version(self) -> int:
        """The version that is asked."""
        return self.model.version

    @property
    def snapshot(self) -> str:
        """The name of the snapshot that it was learnt from."""
        return self.model.snapshot_name

    @property
    def notice(self) -> str | None:
        """A newer snapshot that is not learnt yet, as of when the store was opened or refreshed."""
        return self.model.notice

    def close(self) -> None:
        """Release what is open. No question can be asked afterwards."""
        with self._changing:
            self._model = None

    def __enter__(self) -> OpenStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<store {self._store}, closed>" if self._model is None else repr(self._model)
