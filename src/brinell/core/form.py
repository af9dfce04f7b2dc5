"""The form of what others wrote as JSON or TOML: which keys, which kinds of values, which least and most. One reader for all.

A form is written as the value itself would be:

- `str`, `bool`, `int`, `float`, `dict`, `list`, `None`: a text, a switch, a whole number, a number (a whole one will do), a
  table of anything, a list of anything, nothing;
- `Count(...)`, `Number(...)`: a whole number or a finite number within limits; `Word(...)`: one of some texts;
- `[form]`: a list of such values; `Row(form, form)`: a list of as many values; `{str: form}`: a table of such values by any
  name;
- `{"key": form, "key?": form}`: a table with these keys, of which those with a question mark may be left out, and any others;
- `(form, form)`: the one or the other.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

MOST = 2**53
"""The most that a whole number may be: beyond, JSON of others is no longer exact."""
SHOWN = 40
NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "a list",
    None: "null",
}


class Count(NamedTuple):
    """A whole number within limits, both included."""

    least: int = 0
    most: int = MOST


class Number(NamedTuple):
    """A finite number within limits, both included."""

    least: float = -math.inf
    most: float = math.inf


class Word:
    """One of some texts."""

    def __init__(self, *words: str) -> None:
        self.words = words


class Row:
    """A list of as many values as there are forms."""

    def __init__(self, *forms: Any) -> None:
        self.forms = forms


def wrong(value: Any, form: Any) -> str | None:
    """What is wrong with a value, in words that follow the name of its file; None where it has the form."""
    for where, found, wanted in _wrong(value, form, ""):
        if wanted is None:
            return f"it does not say {where}"
        return f"{where or 'it'} is {_shown(found)} and must be {wanted}"
    return None


def _wrong(value: Any, form: Any, where: str) -> Iterator[tuple[str, Any, str | None]]:
    """Places whose values have another form, with what they should have; None where they are missing."""
    if isinstance(form, tuple) and type(form) is tuple:
        faults = [list(_wrong(value, one, where)) for one in form]
        if all(faults):
            deeper = [found for found in faults if found[0][0] != where]
            yield deeper[0][0] if deeper else (where, value, said(form))
    elif isinstance(form, dict) and isinstance(value, dict):
        yield from _in_table(value, form, where)
    elif isinstance(form, list) and isinstance(value, list):
        for at, one in enumerate(value):
            yield from _wrong(one, form[0], f"{where}[{at}]")
    elif isinstance(form, Row) and isinstance(value, list) and len(value) == len(form.forms):
        for at, (one, wanted) in enumerate(zip(value, form.forms, strict=True)):
            yield from _wrong(one, wanted, f"{where}[{at}]")
    elif not _is(value, form):
        yield where, value, said(form)


def _in_table(value: dict[Any, Any], form: dict[Any, Any], where: str) -> Iterator[tuple[str, Any, str | None]]:
    before = f"{where}." if where else ""
    if str in form:
        for key, one in value.items():
            yield from _wrong(one, form[str], f"{before}{_shown(key)}")
        return
    for key, wanted in form.items():
        name = key.removesuffix("?")
        if name in value:
            yield from _wrong(value[name], wanted, f"{before}{name}")
        elif name == key:
            yield f"{before}{name}", None, None


def _is(value: Any, form: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(form, Count):
        return whole and form.least <= value <= form.most
    if isinstance(form, Number):
        return (whole or isinstance(value, float)) and math.isfinite(value) and form.least <= value <= form.most
    if isinstance(form, Word):
        return value in form.words
    if form is int:
        return whole and abs(value) <= MOST
    if form is float:
        return isinstance(value, float) or (whole and abs(value) <= MOST)
    return value is None if form is None else isinstance(form, type) and isinstance(value, form)


def said(form: Any) -> str:
    """A form in words."""
    if isinstance(form, Count | Number):
        what = "a whole number" if isinstance(form, Count) else "a number"
        if form.least > -math.inf and form.most not in (MOST, math.inf):
            return f"{what} from {form.least:g} to {form.most:g}"
        return f"{what} of at least {form.least:g}" if form.least > -math.inf else what
    if isinstance(form, Word):
        return " or ".join(form.words)
    if isinstance(form, tuple):
        return " or ".join(map(said, form))
    if isinstance(form, list | Row):
        return "a list" + (f" of {len(form.forms)}" if isinstance(form, Row) else "")
    return NAMES[dict if isinstance(form, dict) else form]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
