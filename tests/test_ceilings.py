"""Every count that somebody gives, on a command line or in a file, has a ceiling, and one line says
so."""

import dataclasses
import re
from typing import get_origin, get_type_hints

import pytest

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.core.settings import number_type
from brinell.engine import toml
from brinell.engine.eps_grid import parse_eps
from brinell.studies import register
from brinell.studies.benchmark.run import parse_levels

ENDLESS = 10**18
REQUESTS = tuple({study.request for study in register.studies().values()})


def counts(hints):
    return [
        name
        for name, hint in hints.items()
        if number_type(hint) is int and get_origin(hint) is not tuple and name != "seed"
    ]


SETTINGS = [
    (kind, name, key)
    for kind in plugins.FOLDERS
    for name in plugins.names(kind)
    for key in counts(
        {
            field.name: get_type_hints(plugins.load(kind, name))[field.name]
            for field in dataclasses.fields(plugins.load(kind, name))
        }
    )
]


def test_settings_of_plugins():
    assert len(SETTINGS) > 40
    for kind, name, key in SETTINGS:
        for value in (ENDLESS, str(ENDLESS)):
            with pytest.raises(RequestError, match=f"{key} .*is {ENDLESS}.* at most") as error:
                plugins.build(kind, name, {key: value})
            assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.nightly
def test_settings_of_requests():
    """Counts, numbers and lists of every study: whatever has no ceiling is listed."""
    endless = []
    for kind in REQUESTS:
        needed = {name: "x" for name, field in kind.model_fields.items() if field.is_required()}
        for name, field in kind.model_fields.items():
            hint = field.annotation
            if number_type(hint) is int and get_origin(hint) is not tuple and name != "seed":
                values = [(ENDLESS, f"{name.replace('_', '-')} is {ENDLESS}: .*(at most|below)")]
            elif hint in (float, float | None):
                values = [(float("inf"), "finite"), (float("nan"), "finite")]
            elif get_origin(hint) is tuple:
                values = [
                    (
                        ("a",) * 1001,
                        "at most 1,000 are given, and these are 1,001|whole number|is .*: it is",
                    )
                ]
            else:
                values = []
            for value, words in values:
                try:
                    toml.parse_request(kind, needed | {name: value})
                    endless.append(f"{kind.__name__}.{name} takes {str(value)[:20]}")
                except RequestError as error:
                    if not re.search(words, str(error)):
                        endless.append(f"{kind.__name__}.{name}: {error}")
    assert not endless
    assert len(REQUESTS) > 15


def test_lists_in_one_text():
    with pytest.raises(RequestError, match="more than 10000 budgets"):
        parse_eps("0:0.1:9999,0.2:0.3:9999")
    with pytest.raises(RequestError, match="levels is"):
        parse_levels(",".join(map(str, range(1, 2000))))
