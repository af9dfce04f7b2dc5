"""The request as a TOML file: what `brinell audit FILE` reads and what a run folder keeps."""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from brinell import plugins
from brinell.core import bounded
from brinell.core.errors import RequestError, option
from brinell.engine.request import BaseRequest, Request
from brinell.engine.spelling import respelled

Kind = TypeVar("Kind", bound=BaseRequest)


def dump(request: BaseModel, command: str = "brinell audit run.toml") -> str:
    """TOML text that reads back as the same request."""
    lines = [f"# {command} repeats this run"]
    for key, value in request.model_dump(mode="json").items():
        if value is not None:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def load(path: Path) -> dict[str, Any]:
    """The keys of a TOML file; refuses one that is not there, or no TOML."""
    if path.suffix != ".toml":
        raise RequestError(
            f"{path} is no file of settings, which ends with .toml: name data by {option('data')} and a model "
            f"by {option('model')}"
        )
    try:
        return tomllib.loads(bounded.text(path))
    except FileNotFoundError:
        raise RequestError(f"there is no file {path}: name a TOML file such as the run.toml of an earlier run") from None
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"{path} is no TOML: {error}") from None


def make_request(values: dict[str, Any]) -> Request:
    """An audit's request from keys and values; errors as of `checked`."""
    return checked(Request, values)


def checked(kind: type[Kind], values: dict[str, Any]) -> Kind:
    """A request of any kind from keys and values.

    Raises:
        RequestError: an unknown key (with the nearest one) or a value out of range.
    """
    check_known(values, kind.model_fields)
    try:
        return kind(**respelled(values, kind))
    except ValidationError as error:
        first = error.errors()[0]
        where, problem = ".".join(str(part) for part in first["loc"]), first["msg"]
        if first["type"] == "missing":
            raise RequestError(
                f"{where.replace('_', '-')} is missing, and there is no default: give it as an option or in the file"
            ) from None
        raise RequestError(f"{where.replace('_', '-')} is {first['input']!r}: {problem[0].lower()}{problem[1:]}") from None


def check_known(keys: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first key that is not known, with the nearest one that is."""
    known = list(known)
    for key in keys:
        if key not in known:
            raise RequestError(f"there is no setting {key!r}{plugins.nearest(key, known)}")
