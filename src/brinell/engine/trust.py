"""What a folder from elsewhere names is data: it is not imported, opened or asked before a person says so.

A run folder keeps the request that made it, and the request names models, data and attacks: files that run code, files that are
read, and addresses to which a token goes. Whoever made the folder chose them. They are used where the person gives them again on
the command line, where the person trusts the folder, and where the folder was made by the same person in the same directory: its
manifest then carries a mark, a keyed hash of what is named, and the key never leaves this person's own folder
(design/0020-trust.md).
"""

import hashlib
import hmac
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from brinell import plugins
from brinell.core import bounded
from brinell.core.errors import RequestError, option
from brinell.core.settings import PLAIN, Names, mark_of
from brinell.core.user_files import own_folder
from brinell.engine.cascade import ALSO, CASCADES, PRESETS, Turn
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.store.folder import MANIFEST, REQUEST

JOINED_KINDS = frozenset(("distortion", "defence"))
"""Kinds of plug-ins that a setting joins by +, each with settings of its own in brackets."""
NUMBER = re.compile(r"\d[\d.x]*")
SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
KEPT_TO = frozenset(field.name for field in fields(Turn)) | {"eot", "gradient"}
"""Options of a stage that are none of its attack's."""
KEY_BYTES = 32
MARK = "made_here"
"""The key of a manifest under which the mark stands."""

Named = dict[str, tuple[str, ...]]
"""By setting: what it names that would be imported, opened or asked."""


def named(values: Mapping[str, Any], request: type[BaseRequest]) -> Named:
    """What the settings of a request name that is code, a file or an address; nothing is opened for this.

    The fields of the request say what their text names; a setting that it does not have names something.
    """
    found: Named = {}
    for setting, value in values.items():
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        mark = request.names_of(setting)
        if some := tuple(str(text) for text in texts if not _harmless(mark, str(text))):
            found[setting] = some
    return found


def _harmless(mark: Names | None, text: str) -> bool:
    """Whether a text names nothing that would be run, opened or asked."""
    if not text or mark == PLAIN or text.partition(":")[0] == IN_MEMORY:
        return True
    if mark is None:
        return False
    if mark.kind == "budgets":
        return "recommended" not in text or text.partition("?")[0] == "recommended"
    if mark.kind in JOINED_KINDS:
        return _parts(mark.kind, text)
    if mark.kind in plugins.FOLDERS:
        return _built_in(mark.kind, text)
    return text in mark.words


def _built_in(kind: str, text: str) -> bool:
    """Whether a spec names what comes with Brinell or was installed, with settings that are no files."""
    try:
        name, path, options = plugins.parse(text)
    except RequestError:
        return False
    if kind == "attack":
        if ALSO.get(text, text) in CASCADES:
            return True
        name, _ = PRESETS.get(name, (name, {}))
        options = {key: value for key, value in options.items() if key not in KEPT_TO}
    if path or name not in plugins.names(kind):
        return False
    return _plain_options(kind, name, options)


def _plain_options(kind: str, name: str, options: Mapping[str, str]) -> bool:
    plugin = plugins.load(kind, name)
    hints, known = get_type_hints(plugin, include_extras=True), {field.name: field for field in fields(plugin)}
    for key, value in options.items():
        if key not in known:
            return False
        if part := known[key].metadata.get("plugin"):
            if not _parts(part, value):
                return False
        elif not NUMBER.fullmatch(value) and not _harmless(mark_of(hints[key]), value):
            return False
    return True


def _parts(kind: str, text: str) -> bool:
    """The same of plugins joined by `+`, each with settings of its own in brackets."""
    for one in re.split(r"\+(?![^(]*\))", text):
        name, _, inside = one.partition("(")
        options = dict(pair.partition("=")[::2] for pair in inside.removesuffix(")").split(",") if pair)
        options = {key.strip(): value for key, value in options.items()}
        if name.strip() not in plugins.names(kind) or not _plain_options(kind, name.strip(), options):
            return False
    return True


# Whose folder it is


def mark(values: Mapping[str, Any], request: type[BaseRequest]) -> str | None:
    """The keyed hash of what a request names; None where there is no place for a key.

    A relative path means another file in another directory, so where there is one the hash is of the directory, too.
    """
    key = _key()
    if key is None:
        return None
    found = named(values, request)
    where = "" if all(_absolute(text) for texts in found.values() for text in texts) else os.getcwd()
    text = json.dumps([where, sorted(found.items())], ensure_ascii=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _absolute(text: str) -> bool:
    """Whether a spec means the same files in every directory."""
    try:
        name, path, options = plugins.parse(text)
    except RequestError:
        return False
    main = path or name.removeprefix(f"{IN_MEMORY}:")
    files = [value for value in options.values() if "/" in value or SUFFIX.search(value)]
    return all(one.startswith(("/", "http://", "https://")) for one in (main, *files))


def _key() -> bytes | None:
    """This person's own key, made on first use and readable by nobody else."""
    file = own_folder() / "key"
    if not file.exists():
        half = file.with_name(f".key.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
                new.write(os.urandom(KEY_BYTES))
            os.link(half, file)  # whole or not at all: another process may be making one too
        except FileExistsError:
            pass
        except OSError:
            return None
        finally:
            with suppress(OSError):
                half.unlink()
    try:
        key = bounded.read(file, KEY_BYTES)
    except (OSError, RequestError):
        return None
    return key if len(key) == KEY_BYTES else None


def untrusted(
    values: Mapping[str, Any],
    request: type[BaseRequest],
    folder: Path,
    said: object,
    *,
    trust: Path | str | None = None,
    given: Collection[str] = (),
    replaced: Collection[str] = (),
) -> Named:
    """What a folder's request names and nobody has trusted.

    Args:
        values: the settings of the request as the folder has them.
        request: the kind of request.
        folder: the folder.
        said: the mark in its manifest.
        trust: the folder that the person trusts; one above it will do.
        given: specs that the person has named too.
        replaced: settings in whose place the person has named something else.

    Raises:
        RequestError: the folder is trusted, and a token would go to a host that the person did not name.
    """
    own = mark(values, request)
    if own is not None and isinstance(said, str) and hmac.compare_digest(said.encode(), own.encode()):
        return {}
    found = {
        key: tuple(one for one in texts if one not in given)
        for key, texts in named(values, request).items()
        if key not in replaced
    }
    found = {key: texts for key, texts in found.items() if texts}
    if trust is None or not folder.resolve().is_relative_to(Path(trust).resolve()):
        return found
    for text in (one for texts in found.values() for one in texts):
        _keep_token(folder, text)
    return {}


def _keep_token(folder: Path, text: str) -> None:
    """Refuse an address that the folder names while a token is set that would go there."""
    if not text.startswith(("http:", "https:")):
        return
    token = plugins.parse(text).options.get("token_env", "BRINELL_TOKEN")
    if os.environ.get(token):
        raise RequestError(
            f"{folder} names the host {urlsplit(text).netloc}, to which the token in {token} would go: give the model again by "
            f"{option('model')}, or unset {token}"
        )


def check(
    values: Mapping[str, Any], request: type[BaseRequest], folder: Path, said: object, *, trust: Path | str | None = None
) -> None:
    """Refuse to go on with what a folder names and nobody has trusted; arguments as of `untrusted`."""
    if found := untrusted(values, request, folder, said, trust=trust):
        raise refusal(folder, found)


def refusal(folder: Path, found: Named) -> RequestError:
    """The error that says what is not used, and what to do."""
    return RequestError(
        f"{folder} was not made by you here, and it names {listed(found)}, which would be run or opened: look at "
        f"it, then give it again as an option, or add {option('trust', str(folder))}"
    )


def listed(found: Named) -> str:
    """What is named, setting by setting, in a few words."""
    told = [f"{setting.replace('_', '-')} {text!r}" for setting, texts in found.items() for text in texts]
    return ", ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")


def check_file(
    file: Path, values: Mapping[str, Any], request: type[BaseRequest], options: Iterable[str], trust: Path | str | None
) -> None:
    """The same for a file of settings that lies in a folder, or is called as the one of a folder is.

    Any other file of settings is the person's own: its name was given on the command line.

    Args:
        file: the file of settings.
        values: what it says.
        request: the kind of request.
        options: settings that were given on the command line, in place of the file's.
        trust: the folder that the person trusts.

    Raises:
        RequestError: it names what nobody has trusted.
    """
    file = file.resolve()
    manifest = file.parent / MANIFEST
    if not manifest.exists() and file.name != REQUEST:
        return
    own = set(options)
    said = _mark_in(manifest) if manifest.exists() else _mark_beside(file)
    check({key: value for key, value in values.items() if key not in own}, request, file.parent, said, trust=trust)


def marked(text: str, said: str | None) -> str:
    """A file of settings with its mark as a last line, for a folder that a stop left without a manifest."""
    return text if said is None else f"{text}# {MARK}: {said}\n"


def _mark_beside(file: Path) -> object:
    try:
        text = bounded.read(file, bounded.MOST_TEXT)
    except (OSError, RequestError):
        return None
    found = re.search(rf"^# {MARK}: ([0-9a-f]{{64}})$".encode(), text, re.MULTILINE)
    return found[1].decode() if found else None


def _mark_in(manifest: Path) -> object:
    try:
        told = json.loads(bounded.read(manifest, bounded.MOST_TEXT))
    except (OSError, ValueError, RecursionError, RequestError):
        return None
    return told.get(MARK) if isinstance(told, dict) else None
