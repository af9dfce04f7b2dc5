"""The notebooks run from top to bottom, hold no outputs, and what they end with is what a notebook
can show."""

import ast
import json
import re
import sys
import warnings
from pathlib import Path

import pytest

from brinell.core.errors import BrinellWarning
from brinell.engine.attack_names import CASCADES

NAMES = ("colab", "first_audit", "which_eps", "your_own_attack")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Shortens the default cascade to a hundredth of its time."""
    monkeypatch.setitem(CASCADES, "fast", ("apgd-ce?steps=10", "square?steps=30"))


def cells_of(root: Path, name: str) -> list[dict]:
    return json.loads(
        (root / "examples" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    )["cells"]


def run_cell(text: str, scope: dict) -> object:
    """A cell as a notebook runs it, the value of its last expression included; of magics
    `%%writefile` alone is known.
    """
    if match := re.match(r"%%writefile (\S+)\n", text):
        Path(match[1]).write_text(text[match.end() :], encoding="utf-8")
        return None
    body = ast.parse(text).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), scope) if last else None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    scope: dict = {"__name__": "__main__"}
    cells = cells_of(root, name)
    assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        assert not cell["outputs"] and cell["execution_count"] is None, (
            "a notebook is kept without its outputs"
        )
        output = run_cell("".join(cell["source"]), scope)
        text = output._repr_html_() if hasattr(output, "_repr_html_") else repr(output)
        assert text and "Traceback" not in text
    assert scope["result"].robust(scope["result"].models[0].eps[0]).n >= 40
    assert (Path(scope["result"].folder) / "report.html").is_file()
    sys.modules.pop("corners", None)


def test_every_notebook_is_run(root):
    assert {path.stem for path in (root / "examples" / "notebooks").glob("*.ipynb")} == set(NAMES)


def test_the_first_audit_takes_three_lines(root):
    """With the module and the data at hand: import, audit, look."""
    text = next(
        "".join(cell["source"])
        for cell in cells_of(root, "first_audit")
        if "brinell.audit" in "".join(cell["source"])
    )
    lines = [line for line in text.splitlines() if line.strip()]
    assert (
        len(lines) == 3
        and lines[0] == "import brinell"
        and lines[1].startswith("result = brinell.audit(model, x_test, y_test,")
    )


@pytest.mark.slow
def test_robustness_as_a_pytest_test(root, tmp_path):
    """The example passes, and fails where more is demanded than the network holds."""
    source = (root / "examples" / "test_robustness.py").read_text(encoding="utf-8")
    scope: dict = {"__name__": "example"}
    exec(compile(source, "test_robustness.py", "exec"), scope)
    trained = (
        scope["trained"].__wrapped__()
        if hasattr(scope["trained"], "__wrapped__")
        else scope["trained"]._fixture_function()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrinellWarning)
        scope["test_robust_accuracy"](trained, tmp_path)
        harder = source.replace("8 / 255", "0.5")
        exec(compile(harder, "test_robustness.py", "exec"), scope)
        with pytest.raises(AssertionError):
            scope["test_robust_accuracy"](trained, tmp_path / "harder")
