"""A storage in a folder: links are not followed, and failures leave nothing behind."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dkge_dist.store.storage import Blob, Removable, Storage, StoreError
from dkge_dist.store.storage.local import LocalStorage
from tests.store.storage.contract import StorageContract, add, part_of, removable, stored

LATER = time.time() + 3600


class TestLocalStorage(StorageContract):
    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        return str(tmp_path / "deep" / "store")

    def overwrite(self, storage: Storage, part: Blob, content: bytes | None) -> None:
        path = storage.part_path(part)
        path.unlink() if content is None else path.write_bytes(content)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def place(storage: LocalStorage, part: Blob) -> Path:
    return storage.root / "parts" / part.digest[:2] / part.digest


def test_location_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("store")
    assert (str(storage), storage.location) == ("store", str(tmp_path / "store"))


def test_create_leaves_no_other_file(storage: LocalStorage) -> None:
    for data in (b"first", b"second"):
        storage.create("versions/1.json", data)
    assert os.listdir(storage.root / "versions") == ["1.json"]


def test_create_that_fails_takes_no_name(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            storage.create("store.json", b"data")
    assert os.listdir(storage.root) == []
    assert storage.create("store.json", b"data")


def test_unfinished_names_are_not_listed_and_are_removed(storage: LocalStorage) -> None:
    left = [".store.json.0123456789abcdef", ".3.json.0123456789abcdef"]
    for name in left:
        (storage.root / name).write_bytes(b"half")
    storage.create("versions/1.json", b"")
    for name in (".hidden", "versions/.3.json.0123456789abcdef", "versions/.hidden"):
        (storage.root / name).touch()
    assert storage.names("versions") == ["1.json"]
    assert removable(storage) == {Removable("unfinished", name, 4) for name in left}
    assert all(storage.remove(item, LATER) for item in removable(storage))
    assert not any((storage.root / name).exists() for name in left)


@pytest.mark.parametrize(
    ("name", "is_empty"),
    [("lost+found", True), (".store.json.0123456789abcdef", True), ("notes", False), (".hidden", False)],
)
def test_what_an_empty_folder_may_hold(storage: LocalStorage, name: str, is_empty: bool) -> None:
    (storage.root / name).touch()
    assert storage.is_empty() == is_empty


def test_file_is_no_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not LocalStorage(tmp_path / "file").is_empty()


def test_links_are_not_followed_in_names(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "store.json").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match=r"store\.json"):
        storage.read("store.json")


FOLDER_USERS: dict[str, tuple[str, Callable[[LocalStorage], object]]] = {
    "read": ("versions", lambda storage: storage.read("versions/1.json")),
    "create": ("versions", lambda storage: storage.create("versions/1.json", b"")),
    "replace": ("rejects", lambda storage: storage.replace("rejects/1.txt", b"")),
    "names": ("versions", lambda storage: storage.names("versions")),
    "part_path": ("parts", lambda storage: storage.part_path(part_of(b"content"))),
    "verify": ("parts", lambda storage: storage.verify(part_of(b"content"))),
    "add": ("parts", lambda storage: stored(storage, b"content")),
    "older_than parts": ("parts", lambda storage: removable(storage)),
    "older_than staging": ("staging", lambda storage: removable(storage)),
    "remove": ("parts", lambda storage: storage.remove(Removable("part", part_of(b"content").digest, 7), LATER)),
    "staging": ("staging", lambda storage: storage.staging().__enter__()),
    "workspace": ("training", lambda storage: storage.workspace("training")),
}


@pytest.mark.parametrize("user", FOLDER_USERS)
def test_links_are_not_followed_in_folders(tmp_path: Path, user: str) -> None:
    folder, use = FOLDER_USERS[user]
    storage = LocalStorage(tmp_path / "store")
    stored(storage, b"content")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(storage.root / folder, ignore_errors=True)
    (storage.root / folder).symlink_to(elsewhere)
    with pytest.raises(StoreError, match=f"{storage.root / folder} is a link; links are not followed in a store"):
        use(storage)
    assert list(elsewhere.iterdir()) == []


def test_lease_does_not_write_over_a_link(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("content")
    (tmp_path / "gc.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"gc\.lock"), storage.lease("gc"):
        pass
    assert (tmp_path / "precious").read_text() == "content"


def test_parts_and_staging_are_where_they_belong(storage: LocalStorage) -> None:
    part = stored(storage, b"content")
    assert storage.part_path(part) == place(storage, part)
    assert list((storage.root / "staging").iterdir()) == []


def test_part_that_is_added_again_stays_the_same_file(storage: LocalStorage) -> None:
    part = stored(storage, b"content")
    before = place(storage, part).stat()
    stored(storage, b"content")
    after = place(storage, part).stat()
    assert after.st_ino == before.st_ino
    assert after.st_mtime_ns > before.st_mtime_ns


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_link_instead_of_a_part_is_replaced(storage: LocalStorage, tmp_path: Path, target: str) -> None:
    part = stored(storage, b"content")
    path = place(storage, part)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / target)
    for read in (storage.part_path, storage.verify):
        with pytest.raises(StoreError, match="is not a plain file"):
            read(part)
    stored(storage, b"content")
    storage.verify(part)
    assert not path.is_symlink()


def test_folder_instead_of_a_part_is_refused(storage: LocalStorage) -> None:
    part = part_of(b"content")
    place(storage, part).mkdir(parents=True)
    with pytest.raises(StoreError, match="is not a plain file"):
        storage.part_path(part)


def test_other_files_among_the_parts_are_not_removed(storage: LocalStorage) -> None:
    part = stored(storage, b"content")
    (place(storage, part).parent / "notes").touch()
    (storage.root / "parts" / "me").touch()
    assert {item.name for item in removable(storage)} == {part.digest}


def test_write_that_fails_makes_no_folder_for_parts(storage: LocalStorage) -> None:
    def fails(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"), storage.staging() as staging:
        staging.add(fails)
    assert list((storage.root / "staging").iterdir()) == []
    assert not (storage.root / "parts").exists()


def test_part_that_is_cleaned_away_meanwhile_is_written(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes it between the moment that the writer finds it and the moment that it renews its age."""
    part = stored(storage, b"content")
    real = os.utime

    def late(path: Path) -> None:
        path.unlink()
        real(path)

    with storage.staging() as staging:
        monkeypatch.setattr(os, "utime", late)
        assert add(staging, b"content") == part
        assert staging.written == 7
    storage.verify(part)


class TestRemoveBesideAWriter:
    """Something happens between any two steps of a cleaning that removes a part."""

    STEPS = ("lstat", "unlink", "rename", "lstat aside")

    @staticmethod
    def disturb(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], None]) -> None:
        """Let `act` happen right after a step of the removal."""
        seen: list[str] = []

        def then(name: str, real: Callable[..., object]) -> Callable[..., object]:
            def call(path: Path, *arguments: object, **options: object) -> object:
                done = real(path, *arguments, **options)
                told = name
                if name == "lstat" and str(path).endswith(".removing"):
                    told = "lstat aside"
                if told == step and step not in seen:
                    seen.append(told)
                    act()
                return done

            return call

        monkeypatch.setattr(Path, "lstat", then("lstat", Path.lstat))
        monkeypatch.setattr(os, "rename", then("rename", os.rename))
        monkeypatch.setattr(Path, "unlink", then("unlink", Path.unlink))

    @pytest.mark.parametrize("step", STEPS)
    def test_part_that_is_added_meanwhile_stays(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        part = stored(storage, b"content")
        item = Removable("part", part.digest, part.size)
        before = time.time() + 1
        os.utime(place(storage, part), (before - 100, before - 100))
        later = before + 100

        def add_again() -> None:
            assert stored(storage, b"content") == part
            os.utime(place(storage, part), (later, later))

        with monkeypatch.context() as patch:
            self.disturb(patch, step, add_again)
            storage.remove(item, before)
        storage.verify(part)
        assert not storage.remove(item, before)
        assert removable(storage, later + 1) == {item}

    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("renewed", [True, False])
    def test_part_of_a_killed_cleaning_is_whole_until_its_last_step(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, step: str, renewed: bool
    ) -> None:
        part = stored(storage, b"content")
        item = Removable("part", part.digest, part.size)
        before = time.time() + 1

        def killed() -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            self.disturb(patch, step, killed)
            with pytest.raises(KeyboardInterrupt):
                storage.remove(item, before)
        storage.require([part])
        storage.verify(part)
        if renewed:
            stored(storage, b"content")
            os.utime(place(storage, part), (before + 1, before + 1))
            assert not storage.remove(item, before)
            storage.verify(part)
        else:
            assert storage.remove(item, before)
            assert removable(storage) == set()


@pytest.mark.parametrize("error", [FileExistsError(17, "File exists"), OSError(5, "Input/output error")])
def test_lost_answer_to_link_is_no_defeat(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """NFS: the request is carried out, the answer is lost, and its repetition finds the name taken."""
    real = os.link

    def lost(source: Path, target: Path) -> None:
        real(source, target)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lost)
        assert storage.create("versions/1.json", b"data")
    assert storage.read("versions/1.json") == b"data"
    assert not storage.create("versions/1.json", b"data"), "the same bytes, of another writer"
    assert os.listdir(storage.root / "versions") == ["1.json"]


def test_link_that_fails_is_an_error(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(source: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fails)
        with pytest.raises(OSError, match="Input/output"):
            storage.create("versions/1.json", b"data")
    assert os.listdir(storage.root / "versions") == []
    assert storage.create("versions/1.json", b"data")


def test_create_whose_unfinished_file_is_cleaned_away(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link
    tried: list[Path] = []

    def late(source: Path, target: Path) -> None:
        tried.append(source)
        if len(tried) == 1:
            source.unlink()
        real(source, target)

    monkeypatch.setattr(os, "link", late)
    assert storage.create("versions/1.json", b"data")
    assert len(tried) == 2


def test_staging_that_is_cleaned_away_before_it_is_locked(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.mkdir
    made: list[Path] = []

    def late(path: Path, *arguments: object, **options: object) -> None:
        real(path, *arguments, **options)
        if path.parent.name == "staging":
            made.append(path)
            if len(made) == 1:
                assert storage.remove(Removable("staging", f"staging/{path.name}", 0), LATER)

    monkeypatch.setattr(Path, "mkdir", late)
    part = stored(storage, b"content")
    assert len(set(made)) == 2
    storage.verify(part)
