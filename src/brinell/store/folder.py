"""The folders that runs and studies write: a manifest, a lock, and files that are written
atomically.

All studies use this code: the manifest's model is part of a `Layout`, and the columns of rows are
arguments of `store.parquet`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line, option
from brinell.core.user_files import path_hint
from brinell.core.version import VERSION
from brinell.manifest import Manifest, abbreviate, fault
from brinell.store import inventory, trust
from brinell.store.files import write_text


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn lookup, type and arithmetic errors of the block into one request error: the folder's
    files contradict each other.

    Set BRINELL_DEBUG=1 to see the original error.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if os.environ.get("BRINELL_DEBUG"):
            raise

        raise RequestError(
            f"the files of {path} contradict each other ({type(error).__name__}: "
            f"{one_line(error, 120)}): restore the "
            "folder from a copy; BRINELL_DEBUG=1 shows where"
        ) from None


MANIFEST, REQUEST, PAGE = inventory.MANIFEST, "run.toml", "report.html"
"""Files in every folder: the description of its content, the request that reproduces it, and its
page."""
LOCK, SIGNATURE = ".lock", "manifest.json.sig"
"""The lock of a folder, and the signature of its manifest."""
PARTS = inventory.UNFINISHED
"""The folder of what is made so far, within a folder that is not finished."""
PLAN = f"{PARTS}/plan.json"
"""The request and the identity of an unfinished folder."""


def read_json(file: Path) -> dict[str, Any]:
    """The table in a file of JSON; refuses one that is damaged."""
    try:
        content = bounded.json_of(file)
    except OSError as error:
        raise RequestError(f"{file} is damaged: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise RequestError(f"{file} is damaged: it holds no table")
    return content


def verb_of(path: Path) -> str | None:
    """The verb that made a folder; None if it holds no readable manifest."""
    try:
        verb = read_json(path / MANIFEST).get("verb")
    except RequestError:
        return None
    return verb if isinstance(verb, str) else None


def with_article(noun: str) -> str:
    """`a run`, `an explanation`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The format of the folders of one verb."""

    verb: str
    """The verb that makes the folders, as their manifests name it."""
    noun: str
    """The content of a folder, in the singular: run, benchmark set."""
    version: int
    """The schema version of rows and manifest."""
    manifest: type[Manifest]
    """The model of the manifest."""
    resumable: bool = True
    """True if the verb takes --resume."""
    derived: tuple[str, ...] = ()
    """Files that follow from the others, besides request, manifest, page and tables, or that
    grow after the manifest is saved."""

    @property
    def command(self) -> str:
        """The command that makes a folder, as users type it."""
        return f"brinell {self.verb.partition(' ')[0]}"

    @property
    def head(self) -> dict[str, Any]:
        """The first keys of a manifest: the verb, the schema version and the version of Brinell."""
        return {"verb": self.verb, "schema": self.version, "brinell": VERSION}

    def has(self, path: Path) -> bool:
        """True if this verb made a folder."""
        return verb_of(path) == self.verb

    def open(self, path: Path) -> dict[str, Any]:
        """The manifest of a folder, whose files are those that it lists."""
        manifest = self.read(path)
        for name, problem in self.find_faults(path, manifest):
            remedy = (
                "take it away"
                if problem == inventory.FOREIGN
                else "restore it from a copy of the folder"
            )
            raise RequestError(f"{path / name} {problem}: {remedy}")
        return manifest

    def find_faults(self, path: Path, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Files of a folder that are not as its manifest lists them: the path of each, and what is
        wrong with it.
        """
        return inventory.find_faults(path, manifest, self._beside)

    def read(self, path: Path) -> dict[str, Any]:
        """The manifest of a folder alone, whatever the files are; errors about it as in `open`."""
        file = path / MANIFEST
        if not file.exists():
            # Only a command that still fills a folder has a plan there.
            if (path / PLAN).exists():
                raise RequestError(
                    f"{path} is not finished: go on with {self.command} "
                    f"{option('resume')} {option('out', str(path))}"
                )
            raise self._refusal(path, f"it has no {MANIFEST}")

        manifest = read_json(file)
        if problem := fault(manifest, Manifest):
            raise RequestError(f"{file} is damaged: {problem}")
        if (verb := manifest["verb"]) != self.verb:
            raise self._refusal(path, f"its verb is {abbreviate(verb)}")

        if (version := manifest["schema"]) != self.version:
            raise RequestError(
                f"{path} was written by another version of brinell (schema "
                f"{version}, here {self.version}): "
                f"read it with that version, or make it again with {self.command}"
            )
        if problem := fault(manifest, self.manifest):
            raise RequestError(
                f"{file} is damaged: {problem}; restore it from a copy of the folder"
            )
        return manifest

    @property
    def _beside(self) -> frozenset[str]:
        """Names of files in a folder that its inventory leaves out."""
        return frozenset((MANIFEST, REQUEST, PAGE, SIGNATURE, *self.derived))

    def _refusal(self, path: Path, reason: str) -> RequestError:
        """The error about a folder that this verb did not make; it lists subfolders that this verb
        made.
        """
        # A folder above the right one is a frequent slip, so the ones below are named.
        candidates = sorted(
            str(file.parent) for file in path.glob(f"*/{MANIFEST}") if self.has(file.parent)
        )
        if not path.exists() and (hint := path_hint(path)):
            return RequestError(f"there is no folder {path}{hint}")

        then = (
            f"name {' or '.join(candidates)}, which it holds"
            if candidates
            else f"{self.command} makes one"
        )
        return RequestError(f"{path} is no {self.noun} folder: {reason}; {then}")

    def begin(self, path: Path, *, resume: bool = False) -> dict[str, Any]:
        """The manifest of the folder to resume; empty if the folder holds no manifest yet."""
        if (path / MANIFEST).exists():
            # A folder of another verb may be resumed by that verb, and by no other.
            if resume:
                return self.read(path)
            if not self.has(path):
                raise RequestError(
                    f"{path} belongs to another command (see its {MANIFEST}): "
                    f"choose another {option('out')}"
                )
            advice = f"add {option('resume')} to go on with it, or " if self.resumable else ""
            raise RequestError(
                f"{path} holds {with_article(self.noun)}: {advice}choose another {option('out')}"
            )

        # A plan is of a command that was interrupted: its own files are there.
        if not resume and not (path / PLAN).exists():
            self.check_free(path, REQUEST)
        return {}

    def check_free(self, path: Path, *besides: str) -> None:
        """Refuse a folder with other files; hidden files and the names in `besides` are allowed."""
        names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        entries = [name for name in names if name[0] != "." and name not in besides]
        if entries:
            raise RequestError(
                f"{path} is not empty, and {with_article(self.noun)} needs an "
                f"empty folder: choose another {option('out')} "
                f"(it holds {entries[0]})"
            )

    def save(self, path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest, with the verb and the schema version as its first keys; returns it as
        `read` would.
        """
        content = self.head | dict(manifest)
        if "request" in manifest:
            content[trust.MARK] = trust.make_mark(path, trust.request_text(manifest))
        content[inventory.FILES] = inventory.take_inventory(path, self._beside)

        # Last: a folder with a manifest is complete.
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_text(path / MANIFEST, text)
        copy: dict[str, Any] = json.loads(text)
        return copy

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Lock a folder against other processes while the block runs, and delete temporary files of
        killed processes.
        """
        lock = FileLock(path / LOCK, blocking=False)

        try:
            path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise RequestError(
                f"another process is writing to {path}: wait for it, or choose "
                f"another {option('out')}"
            ) from None
        except OSError as error:
            raise RequestError(
                f"{path} cannot be a {self.noun} folder ({error.strerror}): "
                f"choose another {option('out')}"
            ) from None

        try:
            for half in path.rglob(".*.tmp"):
                half.unlink()
            yield
        finally:
            # While it is held: whoever opened the file before finds it gone, and is refused.
            with suppress(OSError):
                (path / LOCK).unlink()
            lock.release()
