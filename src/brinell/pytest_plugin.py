"""A fixture of pytest: `def test_robust(brinell_audit): brinell_audit(model, data, eps=8 / 255,
robust=0.3)`.

pytest finds it by the entry point `pytest11` wherever Brinell is installed, so that this file
imports nothing but pytest.
"""

import re
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

CONDITIONS = ("robust", "worst_class", "clean", "baseline")
"""Keywords of which a test needs at least one."""
OTHERS = ("max_drop", "allow", "without_checks", "until_decided")
"""Keywords that are the gate's as well."""
FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


@pytest.fixture
def brinell_audit(tmp_path: Path) -> Callable[..., Any]:
    """A function that audits a model and fails the test where its gate fails.

    It takes what `brinell.audit` takes, and the conditions of `brinell.gate`: `robust`,
    `worst_class`, `clean`, `baseline`, `max_drop`, `allow`, `without_checks`. With
    `until_decided=True` the audit ends once it is decided whether it reaches `robust`; a test whose
    samples leave it open fails, and says so. It returns the result of the audit.
    """
    numbers = count(1)

    def check(*inputs: Any, **settings: Any) -> Any:
        __tracebackhide__ = True
        conditions = {
            name: settings.pop(name) for name in (*CONDITIONS, *OTHERS) if name in settings
        }
        if all(conditions.get(name) is None for name in CONDITIONS):
            pytest.fail(f"brinell_audit needs a condition: {', '.join(CONDITIONS)}", pytrace=False)
        if conditions.get("until_decided"):
            if conditions.get("robust") is None:
                pytest.fail("until_decided=True needs robust, a least value", pytrace=False)
            settings["until"] = f"robust:{conditions['robust']}"
        settings.setdefault("out", tmp_path / f"brinell-{next(numbers)}")
        result, failures = _audit(inputs, settings, conditions)
        if failures:
            pytest.fail("\n".join([*failures, f"the run: {result.folder}"]), pytrace=False)
        return result

    return check


def _audit(
    inputs: tuple[Any, ...], settings: dict[str, Any], conditions: dict[str, Any]
) -> tuple[Any, list[str]]:
    """The result of an audit, and the lines of the gate that fail or are open."""
    __tracebackhide__ = True
    import brinell

    try:
        with warnings.catch_warnings():
            # The gate fails on these checks by itself.
            warnings.simplefilter("ignore", brinell.BrinellWarning)
            result = brinell.audit(*inputs, **settings)
            verdict = brinell.gate(result, **conditions)
    except brinell.BrinellError as error:
        pytest.fail(f"brinell: {error}", pytrace=False)
    lines = verdict.lines()
    return result, [_python(line) for line in lines if line.startswith(("FAIL", "OPEN"))]


def _python(line: str) -> str:
    return FLAG.sub(lambda match: match[1].replace("-", "_"), line)
