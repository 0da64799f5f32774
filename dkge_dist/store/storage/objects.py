"""The objects below one prefix of a bucket, by name. Nothing here knows what they mean.

obstore does the requests; it repeats those that fail. What it cannot tell is settled here: whose an object is whose
creation was not answered, and whether the bytes of a small object arrived as they were sent. Errors are StoreErrors
that name the object.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from dkge_dist.store.storage.base import MissingError, StoreError

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")

URL = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
"""A bucket, and a prefix in it."""
SEGMENT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9!_.*'()=@+ -]+")
"""What S3 calls safe characters, and a few that nothing encodes."""

CLIENT = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "600s"}
RETRIES = 8
ATTEMPTS = 4
"""How often something is tried anew that obstore does not repeat by itself: bytes that arrived damaged, conflicts."""
PIECE = 16 << 20
"""Objects of more than two pieces are sent in pieces: each of them has the time that a request has."""
WRITER, CHECKSUM = "writer", "sha256"


class Meta(NamedTuple):
    """What a bucket says of an object. Times are the service's, in whole seconds."""

    name: str
    size: int
    modified: float
    tag: str


class Found(NamedTuple):
    """A small object: its bytes, and who created it."""

    data: bytes
    writer: str | None
    tag: str


class Objects:
    """Objects by their names below `location`, as in `s3://bucket/prefix`. May be pickled; may not be forked."""

    def __init__(self, location: str) -> None:
        match = URL.fullmatch(location)
        segments = (match[2] or "").strip("/").split("/") if match else []
        if match is None or not all(SEGMENT.fullmatch(segment) for segment in segments if segments != [""]):
            raise StoreError(f"{location}: not the name of a place in a bucket, such as s3://bucket/prefix")
        self.bucket, self.prefix = match[1], "/".join(segments)
        self.location = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self._client: S3Store | None = None

    def __reduce__(self) -> tuple[type[Objects], tuple[str]]:
        return Objects, (self.location,)

    def __str__(self) -> str:
        return self.location

    @property
    def client(self) -> S3Store:
        """The connection, made when it is first needed: nothing is imported for a store in a folder."""
        if self._client is None:
            from obstore.store import S3Store

            endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
            options: Any = {**CLIENT, "allow_http": endpoint.startswith("http://")}
            with self._named(""):
                self._client = S3Store(
                    self.bucket,
                    prefix=self.prefix or None,
                    client_options=options,
                    retry_config={"max_retries": RETRIES},
                )
        return self._client

    def read(self, name: str) -> Found:
        """A small object. One that says its checksum is read again if it arrives with another."""
        import obstore

        client, found = self.client, ""

        def work() -> tuple[obstore.GetResult, bytes]:
            got = obstore.get(client, name)
            return got, bytes(got.bytes())

        for _ in range(ATTEMPTS):
            got, data = self._ask(name, work)
            told: dict[str, str] = {str(key): str(value) for key, value in got.attributes.items()}
            found = hashlib.sha256(data).hexdigest()
            if told.get(CHECKSUM, found) == found:
                return Found(data, told.get(WRITER), _tag(got.meta))
        raise StoreError(f"{self}/{name} is damaged: its bytes have checksum {found}")

    def create(self, name: str, data: bytes) -> bool:
        """Create a small object. False if there is one by another writer."""
        writer = secrets.token_hex(16)
        for attempt in range(ATTEMPTS):
            error = self._put_if(name, data, writer, "create")
            if error is None:
                return True
            # Taken; or by this very request, whose answer was lost; or two requests met (409), and neither was served.
            try:
                return self.read(name).writer == writer
            except MissingError:
                time.sleep(0.1 * 2**attempt)
        raise StoreError(f"{self}/{name} could not be created: {error}")

    def update(self, name: str, data: bytes, tag: str) -> bool:
        """Write over the small object that has this tag. False if it is another one by now."""
        writer = secrets.token_hex(16)
        error = self._put_if(name, data, writer, {"e_tag": tag})
        try:
            return error is None or self.read(name).writer == writer
        except MissingError:
            return False

    def _put_if(self, name: str, data: bytes, writer: str, mode: Any) -> str | None:
        """Put with a condition. What went wrong, if something did and it is not clear what that means."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

        attributes: Any = {WRITER: writer, CHECKSUM: hashlib.sha256(data).hexdigest()}
        with self._named(name):
            client = self.client
            try:
                _interruptible(lambda: obstore.put(client, name, data, attributes=attributes, mode=mode))
            except (AlreadyExistsError, PreconditionError, GenericError) as error:
                return _first_line(error)
        return None

    def put(self, name: str, data: bytes | Path) -> str:
        """Write an object, over the one of that name; its tag. A file is sent as it is."""
        import obstore

        whole = isinstance(data, bytes) or data.stat().st_size <= 2 * PIECE
        told: Any = {CHECKSUM: hashlib.sha256(data).hexdigest()} if isinstance(data, bytes) else None
        how: dict[str, Any] = {"attributes": told, "use_multipart": not whole, "chunk_size": PIECE}
        with self._named(name):
            client = self.client
            return _tag(_interruptible(lambda: obstore.put(client, name, data, **how)))

    def download(self, name: str, file: IO[bytes], size: int) -> str:
        """Write an object of this size to a file; the SHA-256 of what came."""
        import obstore

        client = self.client

        def work() -> str:
            got = obstore.get(client, name)
            if got.meta["size"] != size:
                raise StoreError(
                    f"part {self}/{name} has {got.meta['size']} bytes instead of {size}: truncated or replaced"
                )
            digest = hashlib.sha256()
            for piece in got.stream(1 << 20):
                digest.update(piece)
                file.write(piece)
            file.flush()
            return digest.hexdigest()

        with self._named(name):
            return _interruptible(work)

    def head(self, name: str) -> Meta | None:
        """What the bucket says of an object, None if there is none."""
        import obstore

        client = self.client
        try:
            return _meta(self._ask(name, lambda: obstore.head(client, name)))
        except MissingError:
            return None

    def walk(self, folder: str) -> Iterator[Meta]:
        """All objects below `folder/`, at any depth."""
        import obstore

        client, last = self.client, None

        def begin() -> tuple[Any, Any]:
            pieces = iter(obstore.list(client, prefix=folder or None, offset=last))
            return pieces, next(pieces, None)

        pieces, piece = self._ask(f"{folder}/", begin)
        while piece is not None:
            for entry in piece:
                yield _meta(entry)
                last = str(entry["path"])
            try:
                piece = _interruptible(partial(next, pieces, None))
            except obstore.exceptions.BaseError:
                pieces, piece = self._ask(f"{folder}/", begin)  # Go on after the last that came.

    def names(self, folder: str) -> tuple[list[str], list[str]]:
        """(Objects, folders) directly below `folder/`, by their last names, sorted."""
        import obstore

        client = self.client
        found = self._ask(f"{folder}/", lambda: obstore.list_with_delimiter(client, prefix=folder))
        objects = sorted(str(entry["path"]).rpartition("/")[2] for entry in found["objects"])
        return objects, sorted(str(path).rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, *names: str) -> None:
        """Remove objects, those that are there."""
        import obstore

        with self._named(names[0] if names else ""):
            client = self.client
            _interruptible(lambda: obstore.delete(client, names))

    def _ask(self, name: str, work: Callable[[], T]) -> T:
        """Do what may be done twice. obstore repeats requests, but does not ask again for a body that breaks off."""
        from obstore.exceptions import GenericError

        for attempt in range(ATTEMPTS - 1):
            with self._named(name), suppress(GenericError):
                return _interruptible(work)
            time.sleep(0.1 * 2**attempt)
        with self._named(name):
            return _interruptible(work)

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        where = f"{self}/{name}".rstrip("/")
        try:
            yield
        except (FileNotFoundError, BaseError) as error:
            raise self._told(where, error) from None

    def _told(self, where: str, error: Exception) -> StoreError:
        """An error of obstore as one of ours."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        said = _first_line(error)
        if "NoSuchBucket" in said:
            return StoreError(f"{where}: there is no bucket {self.bucket}")
        if isinstance(error, FileNotFoundError):
            return MissingError(f"{where}: no such object")
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return StoreError(f"{where}: the service refuses access: {said}")
        hint = "; are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY set?" if "169.254.169.254" in said else ""
        return StoreError(f"{where}: {said}{hint}")


def _interruptible(work: Callable[[], T]) -> T:
    """Let another thread wait for the service: signals are handled by the main thread, which obstore would block."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # Whatever it is, the waiting thread raises it.
            result.set_exception(error)

    threading.Thread(target=run, name="bucket", daemon=True).start()
    return result.result()


def _meta(entry: Any) -> Meta:
    modified: datetime = entry["last_modified"]
    return Meta(str(entry["path"]), int(entry["size"]), modified.timestamp(), _tag(entry))


def _tag(entry: Any) -> str:
    return str(entry["e_tag"] or "")


def _first_line(error: BaseException) -> str:
    """What obstore says, without its own internals, which follow an empty line."""
    return " ".join(str(error).partition("\n\n")[0].split())[:500]
