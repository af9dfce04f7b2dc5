"""Trust in foreign folders: files, code and addresses that a folder refers to are not used before the user allows it.

A run folder keeps the request that made it, and the request names models, data and attacks: files that run code, files that are
read, and addresses to which a token goes. Whoever made the folder chose them. Brinell uses them if the user repeats them on the
command line, trusts the folder, or made the folder. In the last case the manifest carries a mark, a keyed hash of the specs and,
if there are relative ones, of their directory and the folder's place. Its key never leaves the user's configuration folder
(design/0020-trust.md).
"""

import hashlib
import hmac
import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import chdir, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import quote, unquote, urlsplit

from brinell import plugins
from brinell.core import bounded
from brinell.core.errors import RequestError, option
from brinell.core.settings import PLAIN, Names, mark_of
from brinell.core.user_files import cache_folder
from brinell.engine.attack_names import ALIASES, CASCADES, PRESETS
from brinell.engine.cascade import Turn
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.engine.spelling import JOINED_KINDS
from brinell.store.folder import MANIFEST, REQUEST
from brinell.store.shared import address_of

NUMBER = re.compile(r"\d[\d.x]*")
SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
STAGE_OPTIONS = frozenset(field.name for field in fields(Turn)) | {"eot", "gradient"}
"""Options of a stage that do not belong to its attack."""
KEY_BYTES = 32
MARK = "made_here"
"""Key of the mark in a manifest."""

NamedSpecs = dict[str, tuple[str, ...]]
"""By setting: its specs that would be imported, opened or queried."""


def named_specs(values: Mapping[str, Any], request: type[BaseRequest]) -> NamedSpecs:
    """Collect the settings of a request that refer to code, files or addresses, without opening anything.

    The marks of the request's fields decide; a setting that the request does not have counts as such a reference.
    """
    specs: NamedSpecs = {}
    for setting, value in values.items():
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        mark = request.names_of(setting)
        if harmful := tuple(str(text) for text in texts if not _is_harmless(mark, str(text))):
            specs[setting] = harmful
    return specs


def _is_harmless(mark: Names | None, text: str) -> bool:
    """True if a text refers to nothing that would be run, opened or queried."""
    if not text or mark == PLAIN or text.partition(":")[0] == IN_MEMORY:
        return True
    if mark is None:
        return False
    if mark.kind == "budgets":
        return "recommended" not in text or text.partition("?")[0] == "recommended"
    if mark.kind in JOINED_KINDS:
        return _parts_built_in(mark.kind, text)
    if mark.kind in plugins.FOLDERS:
        return _is_built_in(mark.kind, text)
    return text in mark.words


def _is_built_in(kind: str, text: str) -> bool:
    """True if a spec names a built-in or installed plug-in, with settings that refer to no files."""
    try:
        name, path, options = plugins.parse(text)
    except RequestError:
        return False
    if kind == "attack":
        if ALIASES.get(text, text) in CASCADES:
            return True
        name, _ = PRESETS.get(name, (name, {}))
        options = {key: value for key, value in options.items() if key not in STAGE_OPTIONS}
    if path or name not in plugins.names(kind):
        return False
    return _has_plain_options(kind, name, options)


def _has_plain_options(kind: str, name: str, options: Mapping[str, str]) -> bool:
    """True if no option of a plug-in can name code, files or servers."""
    if not plugins.is_built_in(kind, name):  # of an installed package, whose settings only its code knows
        return all(NUMBER.fullmatch(value) for value in options.values())
    plugin = plugins.load(kind, name)
    hints, parameters = get_type_hints(plugin, include_extras=True), {field.name: field for field in fields(plugin)}
    for key, value in options.items():
        if key not in parameters:
            return False
        if part := parameters[key].metadata.get("plugin"):
            if not _parts_built_in(part, value):
                return False
        elif not NUMBER.fullmatch(value) and not _is_harmless(mark_of(hints[key]), value):
            return False
    return True


def _parts_built_in(kind: str, text: str) -> bool:
    """The same for plug-ins joined by `+`, each with its settings in brackets."""
    for part in re.split(r"\+(?![^(]*\))", text):
        name, _, settings = part.partition("(")
        options = dict(pair.partition("=")[::2] for pair in settings.removesuffix(")").split(",") if pair)
        options = {key.strip(): value for key, value in options.items()}
        if name.strip() not in plugins.names(kind) or not _has_plain_options(kind, name.strip(), options):
            return False
    return True


# Whose folder it is


def make_mark(values: Mapping[str, Any], request: type[BaseRequest], folder: Path) -> str | None:
    """The mark of a folder that is made here: `HASH` or `HASH:DIRECTORY`; None if the key cannot be stored.

    A relative spec means another file in another directory. So where there is one, the mark states the current directory,
    relative to the folder, and the hash covers both in full.
    """
    specs, place = named_specs(values, request), _place(folder)
    if all(_is_absolute(text) for texts in specs.values() for text in texts):
        return _hash_origin("", "", specs)
    directory = os.getcwd()
    digest = _hash_origin(place, directory, specs)
    stated = directory if address_of(folder) else os.path.relpath(directory, place)
    return digest and f"{digest}:{quote(stated)}"


def find_origin(values: Mapping[str, Any], request: type[BaseRequest], folder: Path, claimed_mark: object) -> Path | None:
    """The directory from which a folder's specs are opened, if its mark is the user's; None for a foreign or moved folder."""
    if not isinstance(claimed_mark, str):
        return None
    claimed, colon, stated = claimed_mark.partition(":")
    place = _place(folder) if colon else ""
    directory = os.path.normpath(os.path.join(place, unquote(stated))) if colon else ""
    expected = _hash_origin(place, directory, named_specs(values, request))
    if expected is None or not hmac.compare_digest(claimed.encode(), expected.encode()):
        return None
    origin = Path(directory or os.getcwd())
    return origin if origin.is_dir() else None


def specs_at_origin(texts: Iterable[str], recorded: Iterable[str], origin: Path | None) -> list[str]:
    """Specs that the user typed, as they are written in the directory where a folder was made.

    A spec of the same files as a recorded one is written like that one; any other names its files in full.
    """
    if origin is None or origin == Path.cwd():
        return list(texts)
    with chdir(origin):
        spellings = {_absolute_spec(text): text for text in recorded}
    return [spellings.get(full, full) for full in map(_absolute_spec, texts)]


def _absolute_spec(text: str) -> str:
    """A spec with the files and folders that it names in the current directory in full."""
    body, mark, query = text.partition("?")
    parts = re.split(r"(:)", body)
    options = re.split(r"([=&])", query)
    return "".join(map(_absolute_path, parts)) + mark + "".join(map(_absolute_path, options))


def _absolute_path(text: str) -> str:
    """A text that is a path in the current directory, in full; any other text as it is."""
    return os.path.abspath(text) if text and not text.isdecimal() and os.path.exists(text) else text


def _place(folder: Path) -> str:
    """Where a folder is, whatever links lead to it."""
    return address_of(folder) or str(folder.resolve())


def _hash_origin(place: str, directory: str, specs: NamedSpecs) -> str | None:
    """Keyed hash of specs and, if some are relative, of the folder's place and their directory; None without a key."""
    key = _key()
    text = json.dumps([place, directory, sorted(specs.items())], ensure_ascii=True)
    return None if key is None else hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _is_absolute(text: str) -> bool:
    """True if a spec means the same files in every directory."""
    try:
        name, path, options = plugins.parse(text)
    except RequestError:
        return False
    main = path or name.removeprefix(f"{IN_MEMORY}:")
    files = [value for value in options.values() if "/" in value or SUFFIX.search(value)]
    return all(path_.startswith(("/", "http://", "https://")) for path_ in (main, *files))


def _key() -> bytes | None:
    """The user's key, created on first use and readable by the user alone."""
    file = cache_folder() / "key"
    if not file.exists():
        temporary = file.with_name(f".key.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
                new.write(os.urandom(KEY_BYTES))
            os.link(temporary, file)  # whole or not at all: another process may be making one too
        except FileExistsError:
            pass
        except OSError:
            return None
        finally:
            with suppress(OSError):
                temporary.unlink()
    try:
        key = bounded.read(file, KEY_BYTES)
    except (OSError, RequestError):
        return None
    return key if len(key) == KEY_BYTES else None


def untrusted_specs(
    values: Mapping[str, Any],
    request: type[BaseRequest],
    folder: Path,
    claimed_mark: object,
    *,
    trust: Path | str | None = None,
    repeated: Collection[str] = (),
    replaced: Collection[str] = (),
) -> NamedSpecs:
    """Specs of a folder's request that the user has not trusted.

    Args:
        values: the settings of the request as the folder has them.
        request: the kind of request.
        folder: the folder.
        claimed_mark: the mark in its manifest.
        trust: the folder that the user trusts; a parent folder works too.
        repeated: specs that the user has given as well.
        replaced: settings that the user has replaced.

    Raises:
        RequestError: the folder is trusted, and a token would go to a host that the person did not name.
    """
    if find_origin(values, request, folder, claimed_mark) is not None:
        return {}
    specs = {
        key: tuple(spec for spec in texts if spec not in repeated)
        for key, texts in named_specs(values, request).items()
        if key not in replaced
    }
    specs = {key: texts for key, texts in specs.items() if texts}
    if trust is None or not folder.resolve().is_relative_to(Path(trust).resolve()):
        return specs
    for text in (one for texts in specs.values() for one in texts):
        _check_token(folder, text)
    return {}


def _check_token(folder: Path, text: str) -> None:
    """Raise RequestError for an address of the folder to which a token in the environment would go."""
    if not text.startswith(("http:", "https:")):
        return
    token = plugins.parse(text).options.get("token_env", "BRINELL_TOKEN")
    if os.environ.get(token):
        raise RequestError(
            f"{folder} names the host {urlsplit(text).netloc}, to which the token in {token} would go: give the model again by "
            f"{option('model')}, or unset {token}"
        )


def check_trust(
    values: Mapping[str, Any],
    request: type[BaseRequest],
    folder: Path,
    claimed_mark: object,
    *,
    trust: Path | str | None = None,
    replaced: Collection[str] = (),
) -> None:
    """Raise RequestError if a folder has untrusted specs or relative ones of another directory; for arguments see above."""
    if specs := untrusted_specs(values, request, folder, claimed_mark, trust=trust, replaced=replaced):
        raise refusal(folder, specs)
    origin = find_origin(values, request, folder, claimed_mark)
    if origin is not None and origin != Path.cwd() and trust is None:
        raise RequestError(
            f"{folder} names {list_specs(named_specs(values, request))}, relative to {origin}, where you made it: "
            f"type cd {shlex.quote(str(origin))}, and give the command again"
        )


def refusal(folder: Path, specs: NamedSpecs) -> RequestError:
    """The error that lists the untrusted specs and the remedy."""
    return RequestError(
        f"{folder} was not made by you, or was moved, and it names {list_specs(specs)}, which would be run or opened: look at "
        f"it, then give it again as an option, or add {option('trust', str(folder))}"
    )


def list_specs(specs: NamedSpecs) -> str:
    """List the specs by setting, at most three of them."""
    texts_ = [f"{setting.replace('_', '-')} {text!r}" for setting, texts in specs.items() for text in texts]
    return ", ".join(texts_[:3]) + (f" and {len(texts_) - 3} more" if len(texts_) > 3 else "")


def check_file_trust(
    file: Path,
    values: Mapping[str, Any],
    request: type[BaseRequest],
    options: Iterable[str],
    trust: Path | str | None,
    folder: Path | None = None,
) -> None:
    """The same check for a settings file within a run folder, or with the name of a run folder's settings file.

    Any other settings file is trusted, because the user named it on the command line.

    Args:
        file: the settings file.
        values: its content.
        request: the kind of request.
        options: settings that were given on the command line, in place of the file's.
        trust: the folder that the person trusts.
        folder: the folder from which the file was copied; by default the one in which it is.

    Raises:
        RequestError: it names what nobody has trusted.
    """
    file = file.resolve()
    manifest = file.parent / MANIFEST
    if not manifest.exists() and file.name != REQUEST:
        return
    given_options = set(options)
    claimed_mark = _read_manifest_mark(manifest) if manifest.exists() else _read_mark_line(file)
    check_trust(values, request, folder or file.parent, claimed_mark, trust=trust, replaced=given_options)


def add_mark(text: str, claimed_mark: str | None) -> str:
    """A file of settings with its mark as a last line, for a folder that a stop left without a manifest."""
    return text if claimed_mark is None else f"{text}# {MARK}: {claimed_mark}\n"


def _read_mark_line(file: Path) -> object:
    try:
        text = bounded.read(file, bounded.MOST_TEXT)
    except (OSError, RequestError):
        return None
    match = re.search(rf"^# {MARK}: ([0-9a-f]{{64}}(?::\S+)?)$".encode(), text, re.MULTILINE)
    return match[1].decode() if match else None


def _read_manifest_mark(manifest: Path) -> object:
    try:
        content = json.loads(bounded.read(manifest, bounded.MOST_TEXT))
    except (OSError, ValueError, RecursionError, RequestError):
        return None
    return content.get(MARK) if isinstance(content, dict) else None
