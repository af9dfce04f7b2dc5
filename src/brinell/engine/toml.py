"""The request as a TOML file: what `brinell audit FILE` reads and what a run folder keeps."""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line, option, short
from brinell.core.settings import listed_words
from brinell.core.suggestions import suggestion
from brinell.core.user_files import path_hint
from brinell.engine.request import BaseRequest
from brinell.engine.spelling import expand_specs

Kind = TypeVar("Kind", bound=BaseRequest)
LIMITS = {
    "greater_than_equal": "at least",
    "greater_than": "above",
    "less_than_equal": "at most",
    "less_than": "below",
}
"""The meanings of pydantic's errors about limits."""
NUMBERS = {"int": "a whole number", "float": "a number, such as 0.5, 8/255 or 50%"}
"""What is expected, by the beginning of pydantic's errors."""


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
            f"{path} is no file of settings, which ends with .toml: name data by "
            f"{option('data')} and a model "
            f"by {option('model')}"
        )

    try:
        content = bounded.read(path, bounded.MOST_SETTINGS)
        with bounded.decoding(path, len(content), "no TOML"):
            return tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise RequestError(
            f"there is no file {path}: name a TOML file such as the run.toml of "
            f"an earlier run{path_hint(path)}"
        ) from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {one_line(error)}") from None


def parse_request(kind: type[Kind], values: dict[str, Any]) -> Kind:
    """Build a request of any kind from keys and values."""
    check_keys(values, kind.model_fields)
    try:
        return kind(**expand_specs(kind.with_paths(values), kind))
    except ValidationError as error:
        first = error.errors()[0]
        # The location is the field, then the places in a list; other parts are names of types.
        name = str(first["loc"][0])
        places = [str(part) for part in first["loc"][1:] if isinstance(part, int)]
        location = ".".join([name.replace("_", "-"), *places])
        if first["type"] == "missing":
            raise RequestError(
                f"{location} is missing, and there is no default: give it as an "
                "option or in the file"
            ) from None

        value = first["input"]
        if isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        problem = _problem(first, kind.model_fields[name].annotation)
        raise RequestError(
            f"{location} is {short(value)}: {problem[0].lower()}{problem[1:]}"
        ) from None


def _problem(error: Any, annotation: Any) -> str:
    """The reason why pydantic refuses a value, in our words."""
    words = listed_words(annotation)
    kind = error["type"]
    if kind in LIMITS:
        # The context of such an error is its limit alone.
        limit = next(iter(error["ctx"].values()))
        return f"it must be {LIMITS[kind]} {limit}"
    # Kinds such as int_parsing, int_type and float_parsing begin with what is expected.
    if number := NUMBERS.get(kind.partition("_")[0]):
        return f"it must be {' or '.join([number, *words])}"
    if kind != "literal_error" or not words:
        return str(error["msg"])
    hint = suggestion(error["input"], words) if isinstance(error["input"], str) else ""
    return f"it is {', '.join(words[:-1])}{' or ' * (len(words) > 1)}{words[-1]}{hint}"


def check_keys(keys: Iterable[str], valid_keys: Iterable[str]) -> None:
    """Refuse the first key that is not known, with the nearest one that is."""
    valid_keys = list(valid_keys)
    for key in keys:
        if key not in valid_keys:
            raise RequestError(f"there is no setting {key!r}{suggestion(key, valid_keys)}")
