"""The documentation says what the code does: generated pages are up to date and whole, and the example in it works."""

import ast
import json
import posixpath
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.main import get_command

import brinell
import brinell.studies
from brinell import plugins
from brinell.cli import command_line, run
from brinell.core.checks import Code
from brinell.core.record import COLUMNS, Outcome
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


def test_generated_pages_are_up_to_date(generate: ModuleType, root: Path) -> None:
    stale = [path for path, text in generate.pages().items() if generate.read(root / path) != text]
    assert not stale, f"run `make docs`: {', '.join(stale)}"


def test_every_verb_and_option_is_in_the_reference(verbs: dict[str, Any], root: Path) -> None:
    page = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## brinell (\S+)\n\n```text\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL))
    assert sections.keys() == verbs.keys()
    for verb, command in verbs.items():
        visible = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        for option in (name for parameter in visible for name in parameter.opts if name.startswith("-")):
            assert re.search(rf"^  (-., )?{option}\b", sections[verb], flags=re.MULTILINE), f"{verb} {option}"


def test_every_verb_and_option_says_what_it_does(verbs: dict[str, Any]) -> None:
    mute = [f"{verb} {p.name}" for verb, command in verbs.items() for p in command.params if not (p.hidden or p.help)]
    assert not mute
    assert all(command.help for command in verbs.values())


def test_every_plugin_is_in_the_docs(root: Path) -> None:
    page = (root / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    shipped = [(kind, name) for kind in plugins.FOLDERS for name in plugins.names(kind)]
    assert not [entry for entry in shipped if "\n## {}: {}\n".format(*entry) not in page], "no section"
    assert not [(kind, name) for kind, name in shipped if f"| {kind} | [{name}](#{kind}-{name}) |" not in page], "not listed"


def test_every_column_and_outcome_is_in_the_docs(root: Path) -> None:
    page = (root / "docs" / "reference" / "records.md").read_text(encoding="utf-8")
    for word in [*COLUMNS, *Outcome]:
        assert f"| `{word}` |" in page


SAID_OF_CHECKS = ("Catches", "Calibrated", "False alarms", "Cannot see")


def test_of_every_check_the_docs_say_what_it_catches_and_what_it_cannot_see(root: Path) -> None:
    page = (root / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    sections = [section.partition("\n") for section in page.split("\n### ")[1:]]
    texts = {code: text for title, _, text in sections for code in re.findall(r"`([a-z-]+)`", title)}
    assert texts.keys() == set(Code)
    for code, text in texts.items():
        labels = re.findall(r"^- \*\*([A-Z][a-z ]+)\.\*\* \S", text, flags=re.MULTILINE)
        assert tuple(label for label in labels if label != "What follows") == SAID_OF_CHECKS, code


def test_schemas_are_valid(root: Path) -> None:
    files = sorted((root / "docs" / "schema").glob("*.json"))
    assert files
    for file in files:
        Draft202012Validator.check_schema(json.loads(file.read_text(encoding="utf-8")))


def test_check_names_the_stale_file(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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

    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 0


def test_a_file_that_nothing_generates_any_more_is_removed(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "docs" / "schema" / "old.json"
    generate.replace(old, "{}")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "pages", dict)
    monkeypatch.setattr("sys.argv", ["generate_docs.py", "--check"])
    assert generate.main() == 1
    monkeypatch.setattr("sys.argv", ["generate_docs.py"])
    assert generate.main() == 0
    assert not old.exists()


@pytest.mark.slow
def test_the_attack_of_the_contributing_page_keeps_the_contract(root: Path, tmp_path: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    module, trial, *_ = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "sign_walk.py"
    file.write_text(module, encoding="utf-8")
    attack = plugins.load("attack", f"{file}:SignWalk", in_process=True)
    check_attack(attack)
    assert "check_attack" in trial
    compile(trial, "CONTRIBUTING.md", "exec")


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links: small letters, dashes for spaces, no other punctuation."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def dead_links(page: Path) -> list[str]:
    """The relative links of a page to a file or heading that is not there."""
    links = re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8"))
    return [
        f"{page.name}: {link}#{anchor}"
        for link, anchor in links
        if not (page.parent / link).exists() or (anchor and anchor not in anchors(page.parent / link if link else page))
    ]


def test_links_between_the_pages_lead_somewhere(root: Path) -> None:
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("design/*.md")]
    assert not [dead for page in pages for dead in dead_links(page)]


@pytest.mark.parametrize("link", ["nowhere.md", "other.md#no-heading", "#no-heading", "../other.md"])
def test_a_dead_link_is_noticed(tmp_path: Path, link: str) -> None:
    (tmp_path / "other.md").write_text("# A heading\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n[x]({link}) [y](other.md#a-heading) [z](#here) [w](https://example.org/#no)\n", encoding="utf-8")
    assert len(dead_links(page)) == 1


def test_every_page_is_in_the_navigation_of_the_site(root: Path) -> None:
    targets = re.findall(r"^ +- .*: (\S+\.md)$", (root / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    pages = {page.relative_to(root / "docs").as_posix() for page in root.glob("docs/**/*.md")}
    assert sorted(targets) == sorted(pages | {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"})


def test_the_first_page_lists_every_guide_and_every_page_of_results(root: Path) -> None:
    text = (root / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [*root.glob("docs/guides/*.md"), *root.glob("docs/results/*.md")]
    assert pages and not [page.name for page in pages if f"]({page.relative_to(root / 'docs').as_posix()})" not in text]


def test_links_of_the_repository_lead_to_the_same_pages_on_the_site(root: Path) -> None:
    source = (root / "scripts" / "site_files.py").read_text(encoding="utf-8").partition("def site_link")
    space: dict[str, Any] = {"posixpath": posixpath, "ROOT": root}
    exec(source[1] + source[2], space)
    link = space["site_link"]
    assert link("../../design/0013-epsilon.md", "results/epsilon.md") == "../design/0013-epsilon.md"
    assert link("../../examples/to_onnx.py", "guides/attacks.md") == "../examples/to_onnx.py"
    assert link("../results/epsilon.md", "guides/which-eps.md") == "../results/epsilon.md"
    assert link("docs/reference/plugins.md", "CONTRIBUTING.md") == "reference/plugins.md"
    assert link("../docs/reference/cli.md", "design/0018-house.md") == "../reference/cli.md"


def test_files_outside_of_docs_that_pages_link_to_belong_to_the_site(root: Path) -> None:
    tree = ast.parse((root / "scripts" / "site_files.py").read_text(encoding="utf-8"))
    values = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    patterns = ast.literal_eval(values["BESIDE"])
    files = {path for pattern in patterns for path in root.glob(pattern)}
    pages = [*(root / "docs").rglob("*.md"), *(path for path in files if path.suffix == ".md")]
    found = ((page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")))
    links = [(page, (page.parent / link).resolve()) for page, link in found if "://" not in link]
    outside = [(page, path) for page, path in links if path.is_file() and root / "docs" not in path.parents]
    assert outside and not [pair for pair in outside if pair[1] not in files]


def test_every_call_with_settings_is_on_their_page(generate: ModuleType) -> None:
    page = generate.settings_page()
    calls = [study.name for study in register.studies().values() if study.call]
    assert "audit" in calls and not [name for name in calls if f"\n## brinell.{name}\n" not in page or name not in dir(brinell)]


def test_the_citation_is_of_this_version(root: Path) -> None:
    text = (root / "CITATION.cff").read_text(encoding="utf-8")
    front_matter = dict(re.findall(r"^([a-z-]+): (\S.*)$", text, flags=re.MULTILINE))
    assert {"cff-version", "message", "title"} <= front_matter.keys() and "\nauthors:\n  - name: " in text
    assert front_matter["version"] == brinell.__version__
    assert front_matter["license"] == "Apache-2.0"


def test_make_help_lists_every_target(root: Path) -> None:
    text = (root / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)
    described = set(re.findall(r"^([a-z]+):.*## ", text, flags=re.MULTILINE))
    assert described == set(phony.split())


def test_constraints_are_exact_and_name_no_address(root: Path) -> None:
    for file in ("constraints.txt", "benchmarks/constraints.txt"):
        comment, *lines = (root / file).read_text(encoding="utf-8").splitlines()
        assert comment.startswith("# ")
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line) for line in lines)


LINES_OF_RESULTS = 150


def test_pages_of_results_are_short(root: Path) -> None:
    pages = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in root.glob("docs/results/*.md")}
    assert not {name: lines for name, lines in pages.items() if lines > LINES_OF_RESULTS}


README_BYTES = 4608


def test_the_readme_is_short(root: Path) -> None:
    assert (root / "README.md").stat().st_size <= README_BYTES


@pytest.mark.slow
def test_the_readme_example_runs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert example in (root / "docs" / "guides" / "first-audit.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    assert (tmp_path / "runs" / "mine" / "report.html").exists()


@pytest.mark.slow
def test_the_readme_commands_run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^    (\S.*)$", text, flags=re.MULTILINE)]
    targets = re.findall(r"^([a-z]+):.*## ", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    ran = []
    for words in commands:
        match words:
            case ["brinell", *rest]:
                assert run(rest) == 0, rest
                ran.append(rest[0])
            case ["make", target]:
                assert target in targets
            case _:  # `make smoke` installs and uses the wheel
                assert words in (["pip", "install", "."], ["uv", "pip", "install", "."])
    assert ran == ["audit", "gate", "verify"]


PLANTED = '''"""Plant a study. It does nothing."""

from brinell.engine.request import BaseRequest
from brinell.studies.kit import Output, Study


class PlantedRequest(BaseRequest):
    """What a person may ask for."""


class PlantedResult(BaseRequest):
    """What is answered."""


STUDY = Study(
    package=__name__,
    verb="planted-study",
    request=PlantedRequest,
    run=lambda call: PlantedResult(),
    result=PlantedResult,
    lines=lambda result: (),
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


@pytest.mark.usefixtures("planted")
def test_a_new_study_is_in_every_list(generate: ModuleType) -> None:
    pages = generate.pages()
    for path, text in {
        "docs/index.md": "[planted-study](reference/cli.md#brinell-planted-study) | Plant a study. It does nothing. | `",
        "docs/reference/reading.md": "  - `planted` (`planted-study`): Plant a study.\n",
        "docs/reference/api.md": "### brinell.planted_study\n\n```python\ndef planted_study(\n) -> PlantedResult\n```\n\nPlant a",
        "docs/reference/cli.md": "\n## brinell planted-study\n",
        "docs/reference/settings.md": "\n## brinell.planted_study\n",
        "docs/reference/json.md": "| `brinell planted-study --json` | [planted-study.json](../schema/planted-study.json) |",
        "src/brinell/__init__.pyi": "def planted_study(\n",
    }.items():
        assert text in pages[path], path
    assert "docs/schema/planted-study.json" in pages
