"""Stores that several processes write to at once: a folder on a shared disk, or an address that fsspec supports, such as S3.

A store holds whole contents by key. The one promise that everything else rests on is `create`: of several processes that create
one key, one succeeds, and nobody ever reads half of what it wrote. On a disk that is a hard link to a file that is whole already,
on S3 a conditional put (If-None-Match).
"""

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from brinell.core.errors import BrinellError, RequestError, StoppedError, one_line, option

Answer = TypeVar("Answer")
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")
"""An address; of one that went through `Path` a slash is missing."""
PATIENCE = 120.0
"""Seconds for which a request to a store is repeated, all attempts together."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts; each pause is twice the one before."""
LASTING = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, ImportError, TypeError, AttributeError)
"""Errors that waiting cannot mend. A missing file in a folder is not one: another process was deleting its parent folder."""
LASTING_NUMBERS = (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EROFS)
"""Numbers of system errors that waiting cannot mend."""


class Store(Protocol):
    """Contents by key, for several processes. A key is a path of names joined by `/`."""

    def create(self, key: str, content: bytes) -> bool:
        """Write a key that does not exist yet; returns False, and changes nothing, if it does."""

    def write(self, key: str, content: bytes) -> None:
        """Write a key, in place of what it held."""

    def read(self, key: str) -> bytes | None:
        """Content of a key; None if the key does not exist."""

    def names(self, folder: str) -> list[str]:
        """The last names of the keys in a folder, without folders below; none where it is not there."""

    def changed(self, key: str) -> float | None:
        """When a key was last written, in seconds since 1970 by the clock of the store; None where that is not told."""

    def delete(self, key: str) -> None:
        """Delete a key, if it exists."""

    def drop(self, folder: str) -> None:
        """Delete every key below a folder."""


class FolderStore:
    """A folder on a disk that all processes see."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, key: str, content: bytes) -> bool:
        """See `Store.create`; the file gets its name after its full content is on disk."""
        temporary = self._half(key, content)
        try:
            os.link(temporary, self.root / key)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            raise RequestError(
                f"{self.root} lies on a disk without hard links ({error.strerror}), on which two processes could count one "
                "shard twice: name a folder on another disk, or a store by its address, such as s3://BUCKET/RUN"
            ) from None
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def write(self, key: str, content: bytes) -> None:
        """See `Store.write`."""
        self._half(key, content).replace(self.root / key)

    def _half(self, key: str, content: bytes) -> Path:
        """Write the content to a temporary file next to the file of a key, and return its path."""
        path = self.root / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            if path.parent.exists() and not path.parent.is_dir():
                raise
            # It was there, and another process cleared it away before it could be looked at, which passes.
            raise FileNotFoundError(error.errno, error.strerror, error.filename) from None
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def read(self, key: str) -> bytes | None:
        """See `Store.read`."""
        try:
            return (self.root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        """See `Store.names`."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def changed(self, key: str) -> float | None:
        """See `Store.changed`."""
        try:
            return (self.root / key).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        (self.root / key).unlink(missing_ok=True)

    def drop(self, folder: str) -> None:
        """See `Store.drop`."""
        shutil.rmtree(self.root / folder, ignore_errors=True)


class AddressStore:
    """A store at an address that fsspec supports: s3://BUCKET/RUN with s3fs installed, memory://RUN within one process.

    Settings are those of the file system, as fsspec takes them from the environment: FSSPEC_S3_ENDPOINT_URL, AWS_PROFILE.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self._url = url
        try:
            self._system, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise RequestError(
                f"{url} needs a package that is not installed ({one_line(error)}): pip install brinell[store]"
            ) from None
        except ValueError as error:
            raise RequestError(f"{url} is no address of a store: {one_line(error)}") from None

    def create(self, key: str, content: bytes) -> bool:
        """See `Store.create`."""
        try:
            self._write(key, content, "create")
        except FileExistsError:
            return False
        return True

    def write(self, key: str, content: bytes) -> None:
        """See `Store.write`."""
        self._write(key, content, "overwrite")

    def _write(self, key: str, content: bytes, mode: str) -> None:
        try:
            self._system.pipe_file(self._address(key), content, mode=mode)
        except FileNotFoundError as error:
            raise RequestError(f"{self._url} is no place to write to ({one_line(error)}): make the bucket first") from None

    def read(self, key: str) -> bytes | None:
        """See `Store.read`."""
        try:
            content: bytes = self._system.cat_file(self._address(key))
        except FileNotFoundError:
            return None
        return content

    def names(self, folder: str) -> list[str]:
        """See `Store.names`."""
        try:
            entries: list[dict[str, Any]] = self._system.ls(self._address(folder), detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "file")

    def changed(self, key: str) -> float | None:
        """See `Store.changed`."""
        try:
            return float(self._system.modified(self._address(key)).timestamp())
        except (FileNotFoundError, NotImplementedError):
            return None

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        try:
            self._system.rm_file(self._address(key))
        except FileNotFoundError:
            pass

    def drop(self, folder: str) -> None:
        """See `Store.drop`."""
        try:
            self._system.rm(self._address(folder), recursive=True)
        except FileNotFoundError:
            pass

    def _address(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"


class Patient:
    """A store whose requests are repeated while they fail, within a total time.

    A `create` that failed may have been carried out all the same; then the key holds our content, which the next attempt takes
    for success. So contents that compete for one key differ by who wrote them.

    Args:
        store: the store.
        name: how a person calls it.
        patience: seconds that all attempts of a request may take together.
        sleep: waits so many seconds.
    """

    def __init__(
        self, store: Store, name: str, patience: float = PATIENCE, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._store, self._name, self._patience, self._sleep = store, name, patience, sleep

    def create(self, key: str, content: bytes) -> bool:
        """See `Store.create`."""
        attempts = 0

        def attempt() -> bool:
            """Create the key; a lost answer of an earlier attempt counts."""
            nonlocal attempts
            attempts += 1
            return self._store.create(key, content) or (attempts > 1 and self._store.read(key) == content)

        return self._retry(attempt)

    def write(self, key: str, content: bytes) -> None:
        """See `Store.write`."""
        self._retry(lambda: self._store.write(key, content))

    def read(self, key: str) -> bytes | None:
        """See `Store.read`."""
        return self._retry(lambda: self._store.read(key))

    def names(self, folder: str) -> list[str]:
        """See `Store.names`."""
        return self._retry(lambda: self._store.names(folder))

    def changed(self, key: str) -> float | None:
        """See `Store.changed`."""
        return self._retry(lambda: self._store.changed(key))

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._retry(lambda: self._store.delete(key))

    def drop(self, folder: str) -> None:
        """See `Store.drop`."""
        self._retry(lambda: self._store.drop(folder))

    def _retry(self, attempt: Callable[[], Answer]) -> Answer:
        """Repeat an attempt until it succeeds, and return its answer.

        Raises:
            StoppedError: no attempt succeeded within the time limit, or the disk is full.
            RequestError: the attempt fails with an error that waiting cannot mend.
        """
        end, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                return attempt()
            except BrinellError:
                raise
            except LASTING as error:
                raise RequestError(f"{self._name} cannot be used as a store: {one_line(error)}") from error
            except Exception as error:
                if isinstance(error, OSError) and error.errno in LASTING_NUMBERS:
                    raise RequestError(f"{self._name[:80]} cannot be used as a store: {one_line(error)}") from error
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise StoppedError(f"{self._name} is full: make room, then go on with {option('resume')}") from error
                if time.monotonic() + pause > end:
                    raise StoppedError(
                        f"{self._name} has not answered for {self._patience:g} s ({one_line(error, 200)}): when it does, go on "
                        f"with {option('resume')}"
                    ) from error
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def address_of(out: Path | str) -> str | None:
    """The address that a path is, if it is one: `s3://BUCKET/RUN`, also where it went through `Path`; None for a folder."""
    match = URL.fullmatch(str(out))
    return f"{match[1]}://{match[2]}" if match and match[1] != "file" else None


def open_store(out: Path | str, patience: float = PATIENCE) -> Patient:
    """The store that a path or an address names.

    Raises:
        RequestError: no such kind of store, or one that does not refuse to create what is there.
    """
    address = address_of(out)
    if address is None:
        path = URL.fullmatch(str(out))
        return Patient(FolderStore(Path(f"/{path[2]}") if path else Path(out)), str(out), patience)
    return Patient(AddressStore(address), address, patience)


def check_exclusive(store: Store, folder: str, name: str) -> None:
    """Refuse a store, called by `name`, that lets a key be created twice; one is tried in `folder`."""
    key = f"{folder}/{uuid.uuid4().hex}"
    first, second = store.create(key, b"first"), store.create(key, b"second")
    store.delete(key)
    if not first or second:
        raise RequestError(
            f"{name} lets two processes create one key, so that a shard could count twice: name a store with conditional "
            "writes, as S3 has, or a folder on a shared disk"
        )
