"""The folders that runs and studies write: a manifest, a lock, and files that are put in place whole.

What the manifest of a verb says is an argument, part of its `Layout`; the rows' columns are one too (`store.parquet`). So every
study uses the same code.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line, option
from brinell.manifest import Manifest, fault, shown
from brinell.store import seal
from brinell.store.files import check, write_text


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Refuse files of a folder that have their form and contradict each other, as those of several folders do, with one line."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if os.environ.get("BRINELL_DEBUG"):
            raise
        raise RequestError(
            f"what the files of {path} say does not fit together ({type(error).__name__}: {one_line(error, 120)}): take the "
            "folder from a copy; BRINELL_DEBUG=1 shows where"
        ) from None


MANIFEST, REQUEST, PAGE = "manifest.json", "run.toml", "report.html"
"""In every folder: what it holds, the request with which it can be made again, and the page that is made of it."""
SEAL = "seal"
"""The key of a manifest that holds its own hash."""
SHARDS = "shards"
"""The folder in which several processes meet until what they make is whole."""


def verb_of(path: Path) -> str | None:
    """The verb that made a folder; None where it holds no manifest that can be read."""
    try:
        manifest = json.loads(bounded.read(path / MANIFEST, bounded.MOST_TEXT))
    except (ValueError, RecursionError, OSError, RequestError):
        return None
    verb = manifest.get("verb") if isinstance(manifest, dict) else None
    return verb if isinstance(verb, str) else None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the folders of one verb look like."""

    verb: str
    """The verb that makes one, which its manifest names."""
    what: str
    """What a folder holds, in the singular: run, benchmark set."""
    version: int
    """The version of rows and manifest that is written and read."""
    manifest: type[Manifest]
    """What a manifest says."""
    folders: tuple[str, ...] = ("records", "arrays")
    """Where rows and arrays lie."""
    alone: bool = False
    """Whether a folder that holds any other file is refused, because all of it is to be published."""
    resumable: bool = True
    """Whether the verb takes --resume."""

    @property
    def command(self) -> str:
        """The command that makes a folder, as a person types it."""
        return f"brinell {self.verb}"

    @property
    def head(self) -> dict[str, Any]:
        """What a manifest begins with: the verb and the version."""
        return {"verb": self.verb, "schema": self.version}

    def has(self, path: Path) -> bool:
        """Whether a folder is one of this verb."""
        return verb_of(path) == self.verb

    def open(self, path: Path) -> dict[str, Any]:
        """The manifest of a folder.

        Raises:
            RequestError: there is none, it is damaged, or another verb or another version of brinell wrote it.
        """
        file = path / MANIFEST
        try:
            content = bounded.read(file, bounded.MOST_TEXT)
            manifest = json.loads(content)
        except (FileNotFoundError, NotADirectoryError):
            raise self._refusal(path, f"it has no {MANIFEST}") from None
        except (ValueError, RecursionError, OSError) as error:
            raise RequestError(f"{file} is damaged: {one_line(error)}") from None
        if seal.holds(content) is False:
            raise RequestError(f"{file} is damaged: the digest that it holds is not its own; take it from a copy of the folder")
        if why := fault(manifest, Manifest):
            raise RequestError(f"{file} is damaged: {why}")
        if (verb := manifest["verb"]) != self.verb:
            raise self._refusal(path, f"its verb is {shown(verb)}")
        if (version := manifest["schema"]) != self.version:
            raise RequestError(
                f"{path} was written by another version of brinell (schema {version}, here {self.version}): "
                f"read it with that one, or make it again with {self.command}"
            )
        if why := fault(manifest, self.manifest):
            raise RequestError(f"{file} is damaged: {why}; take it from a copy of the folder")
        manifest.pop(SEAL, None)
        return manifest  # type: ignore[no-any-return]

    def _refusal(self, path: Path, why: str) -> RequestError:
        """The line about a folder of something else, with those in it that would do."""
        inside = sorted(str(file.parent) for file in path.glob(f"*/{MANIFEST}") if self.has(file.parent))
        then = f"name {' or '.join(inside)}, which it holds" if inside else f"{self.command} makes one"
        return RequestError(f"{path} is no {self.what} folder: {why}; {then}")

    def check(self, path: Path, manifest: Mapping[str, Any]) -> None:
        """Before a folder is resumed: refuse one of which a file is damaged, or arrays are gone whose rows are there."""
        for folder in self.folders:
            for file in sorted(one for one in (path / folder).glob("*.*") if one.suffix in (".parquet", ".safetensors")):
                with bounded.opened(file) as stream:
                    check(file, stream.read())
        for name in manifest.get("files") or ():
            if name.startswith("arrays/") and not (path / name).exists():
                rows = [one for one in (path / "records").glob("*.parquet") if Path(name).stem.startswith(one.stem)]
                if rows:
                    raise RequestError(
                        f"{path / name} is missing: delete records/{rows[0].name} too and go on with {option('resume')}"
                    )

    def begin(self, path: Path, *, resume: bool = False) -> dict[str, Any]:
        """The manifest of the folder that is to be resumed; empty where nothing was begun there.

        Raises:
            RequestError: the folder holds something already, and nobody asked for a resume.
        """
        if (path / MANIFEST).exists():
            if resume:
                return self.open(path)
            if not self.has(path):
                raise RequestError(
                    f"{path} is the folder of something else, which {MANIFEST} describes: choose another {option('out')}"
                )
            article = "an" if self.what[0] in "aeiou" else "a"
            more = f"add {option('resume')} to go on with it, or " if self.resumable else ""
            raise RequestError(f"{path} holds {article} {self.what}: {more}choose another {option('out')}")
        if not resume:
            self.check_free(path)
        return {}

    def check_free(self, path: Path, *besides: str) -> None:
        """Refuse a folder that holds other files, where this is to be alone in it; `besides` are names that do no harm."""
        if self.alone and path.is_dir() and any(one.name[0] != "." and one.name not in besides for one in path.iterdir()):
            raise RequestError(
                f"{path} is not empty, and a {self.what} needs a folder of its own: choose another {option('out')}"
            )

    def save(self, path: Path, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, with the verb and the version before what it says."""
        content = self.head | dict(manifest) | {SEAL: seal.BLANK}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_text(path / MANIFEST, seal.sealed(text.encode()).decode())

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Keep a second process from writing to a folder, and delete what a killed one left half written.

        Raises:
            RequestError: one already does, or the folder cannot be made.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / ".lock").open("w")
        except OSError as error:
            raise RequestError(
                f"{path} cannot be a {self.what} folder ({error.strerror}): choose another {option('out')}"
            ) from None
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RequestError(
                    f"another process is writing to {path}: wait for it, or choose another {option('out')}"
                ) from None
            for folder in (path, *(path / name for name in self.folders)):
                for half in folder.glob(".*.tmp"):
                    half.unlink()
            yield
