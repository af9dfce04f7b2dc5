"""The folders that runs and studies write: a manifest, a lock, and files that are put in place whole.

What the folders of one verb are called and which keys their manifest must have is an argument, the `Layout`; the rows' columns
are one too (`store.tables`). So every study uses the same code.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line, option
from brinell.core.form import wrong
from brinell.store import seal
from brinell.store.files import check, write_text


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Figures are made of what the files of a folder say; where that does not fit together, one line says so.

    Each file has its form by then, so what is left are files that contradict each other, as those of several folders do.

    Raises:
        RequestError: it does not fit together.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if os.environ.get("BRINELL_DEBUG"):
            raise
        raise RequestError(
            f"what the files of {path} say does not fit together ({type(error).__name__}: {one_line(error, 120)}): take the "
            "folder from a copy; BRINELL_DEBUG=1 shows where"
        ) from None


SEAL = "seal"
"""The key of a manifest that holds its own hash."""
MANIFESTS = (
    *("manifest.json", "benchmark.json", "corrupt.json", "detection.json", "epsilon.json", "explain.json", "harden.json"),
    *("study.json", "transfer.json", "trials.json", "unrestricted.json"),
)
"""What the manifests of all verbs are called, so that none writes into the folder of another."""
SHARDS = "shards"
"""The folder in which several processes meet until what they make is whole."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the folders of one verb look like."""

    what: str
    """What a folder holds, in the singular: run, benchmark set."""
    verb: str
    """The command that makes one, as a person types it."""
    version: int
    """The version of rows and manifest that is written and read."""
    version_key: str = "schema"
    """The key of the manifest that states it."""
    manifest: str = "manifest.json"
    """The name of the manifest."""
    request: str = "run.toml"
    """The name of the request, with which the folder can be made again."""
    form: Mapping[str, Any] = field(default_factory=dict)
    """What a manifest says, key by key (`core.form`)."""
    misfit: Callable[[Mapping[str, Any]], str | None] = lambda manifest: None
    """What does not fit together in a manifest that has the form, in words; None where all does."""
    folders: tuple[str, ...] = ("records", "arrays")
    """Where rows and arrays lie."""
    alone: bool = False
    """Whether a folder that holds any other file is refused, because all of it is to be published."""
    resumable: bool = True
    """Whether the verb takes --resume."""

    def has(self, path: Path) -> bool:
        """Whether there is a manifest."""
        return (path / self.manifest).exists()

    def open(self, path: Path) -> dict[str, Any]:
        """The manifest of a folder.

        Raises:
            RequestError: there is none, it is damaged, or another version of brinell wrote it.
        """
        file = path / self.manifest
        try:
            content = bounded.read(file, bounded.MOST_TEXT)
            manifest = json.loads(content)
        except (FileNotFoundError, NotADirectoryError):
            inside = sorted(str(one.parent) for one in path.glob(f"*/{self.manifest}"))
            then = f"name {' or '.join(inside)}, which it holds" if inside else f"{self.verb} makes one"
            raise RequestError(f"{path} is no {self.what} folder: it has no {self.manifest}; {then}") from None
        except (ValueError, RecursionError, OSError) as error:
            raise RequestError(f"{file} is damaged: {one_line(error)}") from None
        if seal.holds(content) is False:
            raise RequestError(f"{file} is damaged: the digest that it holds is not its own; take it from a copy of the folder")
        if not isinstance(manifest, dict) or self.version_key not in manifest:
            raise RequestError(f"{file} is damaged: it does not say {self.version_key}")
        if (found := manifest[self.version_key]) != self.version:
            raise RequestError(
                f"{path} was written by another version of brinell ({self.version_key} {found}, here {self.version}): "
                f"read it with that one, or make it again with {self.verb}"
            )
        if fault := wrong(manifest, self.form) or self.misfit(manifest):
            raise RequestError(f"{file} is damaged: {fault}; take it from a copy of the folder")
        manifest.pop(SEAL, None)
        return manifest

    def check(self, path: Path, manifest: Mapping[str, Any]) -> None:
        """Before a folder is resumed: refuse one whose files are not all as they were written.

        Raises:
            RequestError: a file is damaged, or arrays are gone whose rows are there.
        """
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
        if self.has(path):
            if resume:
                return self.open(path)
            article, more = (
                "an" if self.what[0] in "aeiou" else "a",
                f"add {option('resume')} to go on with it, or " if self.resumable else "",
            )
            raise RequestError(f"{path} holds {article} {self.what}: {more}choose another {option('out')}")
        if others := [name for name in MANIFESTS if name != self.manifest and (path / name).exists()]:
            raise RequestError(
                f"{path} is the folder of something else, which {others[0]} describes: choose another {option('out')}"
            )
        if not resume:
            self.check_free(path)
        return {}

    def check_free(self, path: Path, *besides: str) -> None:
        """Refuse a folder that holds other files, where this is to be alone in it; `besides` are names that do no harm.

        Raises:
            RequestError: it does.
        """
        if self.alone and path.is_dir() and any(one.name[0] != "." and one.name not in besides for one in path.iterdir()):
            raise RequestError(
                f"{path} is not empty, and a {self.what} needs a folder of its own: choose another {option('out')}"
            )

    def save(self, path: Path, manifest: Mapping[str, Any]) -> None:
        """Write the manifest.

        Raises:
            StoppedError: the folder cannot be written.
        """
        text = json.dumps({**manifest, SEAL: seal.BLANK}, indent=1, ensure_ascii=False) + "\n"
        write_text(path / self.manifest, seal.sealed(text.encode()).decode())

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
