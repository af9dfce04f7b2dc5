"""The documentation says what the code does: generated pages are up to date and whole, and the
example in it works.
"""

import inspect
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

import brinell
import brinell.studies
from brinell import plugins
from brinell.cli import command_line
from brinell.core.checks import Code
from brinell.core.user_files import import_file
from brinell.studies import register
from brinell.testing import check_attack


@pytest.fixture(scope="module")
def generate(root: Path) -> ModuleType:
    return import_file(root / "scripts" / "generate_docs.py")


@pytest.fixture(scope="module")
def verbs() -> dict[str, Any]:
    """Every command of the command line by its name."""
    root: Any = get_command(command_line())
    return dict(root.commands)


def test_every_verb_and_option_says_what_it_does(verbs: dict[str, Any]) -> None:
    mute = [
        f"{verb} {p.name}"
        for verb, command in verbs.items()
        for p in command.params
        if not (p.hidden or p.help)
    ]
    assert not mute
    assert all(command.help for command in verbs.values())


def test_of_every_check_the_docs_say_in_one_line_what_it_compares_its_error_rate_and_what_it_cannot_see(
    root: Path,
) -> None:
    page = (root / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in page.partition("## Rate and power")[0].splitlines()
        if line.startswith("| `")
    ]
    assert sorted(code for row in rows for code in re.findall(r"`([a-z-]+)`", row[0])) == sorted(
        Code
    )
    assert all(len(row) == 4 and row[1] and row[2] for row in rows)


def test_stale_pages_are_named_and_written(
    generate: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "docs" / "page.md"
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "pages", lambda: {"docs/page.md": "new"})

    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 1
    assert capsys.readouterr().out == "docs/page.md is out of date: run `make docs`\n"
    assert not page.exists()

    monkeypatch.setattr("sys.argv", ["generate_docs.py"])
    assert generate.main() == 0
    assert page.read_text(encoding="utf-8") == "new"

    generate.replace(tmp_path / "docs" / "schema" / "old.json", "{}")
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 1, "a file that nothing generates any more"
    monkeypatch.setattr("sys.argv", ["generate_docs.py"])
    assert generate.main() == 0 and not list(tmp_path.glob("docs/schema/*"))


@pytest.mark.slow
def test_the_attack_of_the_contributing_page_keeps_the_contract(root: Path, tmp_path: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    module, trial, *_ = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "sign_walk.py"
    file.write_text(module, encoding="utf-8")
    attack = plugins.load("attack", f"{file}:SignWalk")
    check_attack(attack)
    assert "check_attack" in trial
    compile(trial, "CONTRIBUTING.md", "exec")


def test_links_of_the_repository_lead_to_the_same_pages_on_the_site(root: Path) -> None:
    source = (
        (root / "scripts" / "site_files.py").read_text(encoding="utf-8").partition("def site_link")
    )
    space: dict[str, Any] = {"posixpath": posixpath, "ROOT": root}
    exec(source[1] + source[2], space)
    link = space["site_link"]
    assert link("../../design/0013-epsilon.md", "results/epsilon.md") == "../design/0013-epsilon.md"
    assert link("../../examples/to_onnx.py", "guides/attacks.md") == "../examples/to_onnx.py"
    assert link("../results/epsilon.md", "guides/which-eps.md") == "../results/epsilon.md"
    assert (
        link("docs/reference/plugins/index.md", "CONTRIBUTING.md") == "reference/plugins/index.md"
    )
    assert link("../docs/reference/api.md", "design/0018-house.md") == "../reference/api.md"


PLANTED = '''"""Plant a study. It does nothing."""

from brinell.engine.request import BaseRequest
from brinell.studies.kit import Output, Study


class PlantedRequest(BaseRequest):
    """What a person may ask for."""

class PlantedResult(BaseRequest):
    """What is answered."""

    def lines(self):
        return ()


STUDY = Study(
    package=__name__,
    verb="planted-study",
    request=PlantedRequest,
    run=lambda call: PlantedResult(),
    result=PlantedResult,
    examples=("brinell planted-study --json",),
    memory=(),
    output=Output.ANSWER_ONLY,
)
'''


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A further folder in `brinell.studies`, and nothing else."""
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text(PLANTED, encoding="utf-8")
    monkeypatch.setattr(brinell.studies, "__path__", [*brinell.studies.__path__, str(tmp_path)])
    register.entries.cache_clear()
    yield
    sys.modules.pop("brinell.studies.planted", None)
    vars(brinell.studies).pop("planted", None)
    register.entries.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
@pytest.mark.nightly
def test_a_new_study_is_in_every_list(generate: ModuleType) -> None:
    pages = generate.pages()
    for path, text in {
        "docs/reference/commands/index.md": "[planted-study](planted-study.md) | Plant a study. It does nothing. | `",
        "docs/reference/reading.md": "  - `planted` (`planted-study`): Plant a study.\n",
        "docs/reference/commands/planted-study.md": "\n## brinell.planted_study\n\n```python\ndef planted_study(\n) -> "
        "Planted",
        "docs/reference/json.md": "| `brinell planted-study --json` | "
        "[planted-study.json](../schema/planted-study.json) |",
    }.items():
        assert text in pages[path], path
    assert "docs/schema/planted-study.json" in pages


def test_the_stub_has_the_type_of_every_keyword_of_a_call(generate: ModuleType) -> None:
    bare = []
    for study in register.studies().values():
        if study.call:
            signature = generate.typed(study)
            assert list(signature.parameters) == list(
                inspect.signature(getattr(brinell, study.name)).parameters
            )
            hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
            hints["the answer"] = signature.return_annotation
            bare += [
                f"{study.name}: {name}"
                for name, hint in hints.items()
                if hint is inspect.Signature.empty
            ]
    assert not bare
