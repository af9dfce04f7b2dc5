"""Planted violators for the checker of studies: the example from outside, with one promise broken each."""

import dataclasses
import itertools
import sys
from importlib import import_module
from typing import Any

import pytest
from pydantic import Field

from brinell.core.errors import ContractError
from brinell.engine.request import BaseRequest
from brinell.studies import register
from brinell.testing import check_study
from brinell.testing import studies as checker

EXAMPLE = {"samples": 8, "size": [0.0, 0.3]}
COUNT = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def tally(root):
    """The example of a study, registered as an installed one would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "examples" / "study")
        entries = register.entries() | {"tally": register._read("brinell_tally")}
        patch.setattr(register, "entries", lambda: entries)
        yield register.load("tally")
    for name in [name for name in sys.modules if name.partition(".")[0] == "brinell_tally"]:
        del sys.modules[name]


def part(name: str) -> Any:
    return import_module(f"brinell_tally.{name}")


def test_the_example_passes(tally):
    check_study(tally, EXAMPLE)


# What a record says


def with_field(tally, **fields):
    """Its request with further fields."""
    annotations = {name: hint for name, (hint, _) in fields.items()}
    values = {name: field for name, (_, field) in fields.items()}
    kind = type("Broken", (tally.request,), {"__annotations__": annotations, "__module__": __name__, **values})
    return dataclasses.replace(tally, request=kind)


class Endless(BaseRequest):
    """Options that count without an end."""

    repetitions: int = Field(default=1, description="a count")

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        """Nothing."""


ON_PAPER = {
    "names records:nobody as its summarise": lambda study: dataclasses.replace(study, summarise="records:nobody"),
    "names elsewhere:TABLE as its table": lambda study: dataclasses.replace(study, table="elsewhere:TABLE"),
    "has no summarise": lambda study: dataclasses.replace(study, summarise=None),
    "has no example for its help": lambda study: dataclasses.replace(study, examples=()),
    "has a layout of another verb": lambda study: dataclasses.replace(study, verb="corrupt"),
    "does not say what extra is": lambda study: with_field(study, extra=(bool, False)),
    "does not say what the text of extra names": lambda study: with_field(study, extra=(str, Field("", description="a text"))),
}


@pytest.mark.parametrize("line", ON_PAPER)
def test_on_paper(tally, line):
    with pytest.raises(ContractError, match=line):
        check_study(ON_PAPER[line](tally), EXAMPLE)


def test_a_count_without_an_end(tally, monkeypatch):
    monkeypatch.setattr(checker, "_takes", lambda study, name, value: name == "samples")
    with pytest.raises(ContractError, match="has no ceiling for samples"):
        check_study(tally, EXAMPLE)
