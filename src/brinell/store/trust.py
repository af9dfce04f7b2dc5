"""Trust in folders: what a folder names is opened only if the user made the folder here, or trusts
it by `--trust`.

A folder keeps the request that made it, and the request names models, data and attacks: files that
run code, files that are read, hosts that are asked. Whoever made the folder chose them. So each
folder carries a mark, a keyed hash of its request, of its place and of the directory where it was
made, from which relative names are meant. The key never leaves the user's cache folder. A folder
that was copied, moved or edited has no valid mark (design/0020-trust.md).
"""

import hashlib
import hmac
import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from filelock import FileLock

from brinell.core import bounded
from brinell.core.errors import RequestError, option
from brinell.core.user_files import cache_folder
from brinell.store.inventory import MANIFEST

KEY_BYTES = 32
SEPARATORS = re.compile(r'["\'?&=:,+()]')
"""The characters between paths in a request."""
MARK = "made_here"
"""Key of the mark in a manifest, and the word before it in the last line of a file of settings."""


def request_text(manifest: Mapping[str, Any]) -> str:
    """The request of a manifest, as its mark covers it."""
    return json.dumps(manifest["request"], sort_keys=True, ensure_ascii=False)


def make_mark(folder: Path, text: str) -> str | None:
    """The mark of a folder whose request is `text`: `HASH:DIRECTORY`; None where no key can be
    kept.
    """
    return _mark(folder, text, quote(os.path.relpath(Path.cwd(), folder.resolve())))


def add_mark(folder: Path, text: str) -> str:
    """The text of a file of settings in a folder, with its mark as the last line."""
    mark = make_mark(folder, text)
    return text if mark is None else f"{text}# {MARK}: {mark}\n"


def without_mark(content: bytes) -> bytes:
    """A file of settings without its mark, the last line."""
    return re.sub(rb"# %b: [0-9a-f]{64}:[\w./%%~-]*\n\Z" % MARK.encode(), b"", content)


def find_origin(folder: Path, text: str, claimed: object, trust: Path | str | None) -> Path | None:
    """The directory from which the names in a folder's request are opened; None if it is from
    elsewhere and is not trusted.

    Args:
        folder: the folder.
        text: its request, as the mark covers it.
        claimed: the mark that it carries.
        trust: the folder that the user trusts, or one above it.
    """
    if trust is not None and folder.resolve().is_relative_to(Path(trust).resolve()):
        return Path.cwd()

    # Only the user's key makes the hash, which covers the directory that the mark states.
    directory = str(claimed).partition(":")[2]
    expected = _mark(folder, text, directory)
    if expected is None or not hmac.compare_digest(expected.encode(), str(claimed).encode()):
        return None
    origin = Path(os.path.normpath(folder.resolve() / unquote(directory)))
    return origin if origin.is_dir() else None


def check_trust(folder: Path, text: str, claimed: object, trust: Path | str | None) -> None:
    """Refuse a folder from elsewhere that is not trusted, and one that was made in another
    directory; arguments as above.
    """
    origin = find_origin(folder, text, claimed, trust)
    if origin is None:
        raise refusal(folder)
    check_directory(folder, text, origin)


def check_manifest(folder: Path, manifest: Mapping[str, Any], trust: Path | str | None) -> None:
    """`check_trust` of the request in a manifest."""
    check_trust(folder, request_text(manifest), manifest.get(MARK), trust)


def check_settings(file: Path, trust: Path | str | None, resumed: Path | None = None) -> None:
    """`check_trust` of a file of settings in a run folder.

    Any other is trusted, because the user named it.

    Args:
        file: the file.
        trust: the folder that the user trusts.
        resumed: the folder that goes on by this file, which the user did not name.
    """
    file = file.resolve()
    if resumed is not None or (file.parent / MANIFEST).exists():
        text, _, claimed = bounded.text(file).partition(f"# {MARK}: ")
        check_trust(resumed or file.parent, text, claimed.strip(), trust)


def check_directory(folder: Path, text: str, origin: Path) -> None:
    """Refuse a folder in whose request relative names mean files of another directory."""
    # Texts between separators may be no paths at all: only those that exist there are meant as
    # such.
    names = (part for part in SEPARATORS.split(text) if part and not os.path.isabs(part))
    if origin != Path.cwd() and any(os.path.exists(origin / name) for name in names):
        raise RequestError(
            f"you made {folder} in {origin}, and the names in it are meant from "
            f"there: type cd {shlex.quote(str(origin))}, and "
            "give the command again"
        )


def refusal(folder: Path) -> RequestError:
    """The error about a folder from elsewhere."""
    return RequestError(
        f"{folder} was not made by you, or was moved or edited, and what it names "
        "would be run or opened: look at its request, "
        f"then give {option('trust', str(folder))}, before the verb of a command"
    )


def _mark(folder: Path, text: str, directory: str) -> str | None:
    """`HASH:DIRECTORY`, where the hash covers the folder's place, the directory and the request."""
    key = _key()
    signed = json.dumps([str(folder.resolve()), directory, text])
    return (
        None
        if key is None
        else f"{hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()}:{directory}"
    )


def _key() -> bytes | None:
    """The user's key, created on first use and readable by the user alone; None where it cannot be
    kept.
    """
    file = cache_folder() / "key"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):
            if not file.exists() or file.stat().st_size != KEY_BYTES:
                file.touch(0o600)
                file.write_bytes(os.urandom(KEY_BYTES))
            return file.read_bytes()
    except OSError:
        return None
