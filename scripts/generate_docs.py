"""Write the parts of the documentation that repeat what the code says; with --check, only tell
which are out of date.

The reference lies in docs/reference: plugins/KIND.md comes from the plugins' docstrings and fields,
commands/VERB.md from the command line and the calls of the register, records.md from the record's
columns and the checks, benchmark-sets.md from the columns of a benchmark set, json.md and
docs/schema/*.json from the results that `--json` prints and from the manifests. The calls in api.md
and the tree in reading.md come from docstrings; in these pages the text around the marked lists is
written by hand. tests/messages.txt lists what refusals say. src/brinell/__init__.pyi has the types of
the calls.
"""

import argparse
import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from call_signatures import signature_lines, stub_text, typed
from jsonschema import Draft202012Validator
from list_messages import message_page
from typer.testing import CliRunner

import brinell
from brinell import calls, plugins
from brinell.analysis import statements
from brinell.core.checks import Code
from brinell.core.record import COLUMNS, Outcome
from brinell.distortions._published import Published
from brinell.distortions._shared import SIDES, Scale
from brinell.rlab.distort import SEVERITIES
from brinell.store.folder import Layout
from brinell.studies import register
from brinell.studies.benchmark import run as benchmark
from brinell.studies.benchmark.card import columns_text
from brinell.studies.benchmark.rows import SearchOutcome
from brinell.studies.verification.run import declared_claims

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by `make docs` from the code. Do not edit by hand. -->\n\n"
BEGIN, END = "<!-- Begin: written by `make docs` from the code. -->\n", "<!-- End -->\n"
"""Markers around a generated list in a hand-written page."""
CLASSES = {
    "training": (
        "In a training loop",
        ("training.AdversarialBatch", "training.AdversarialLoss", "training.AWP"),
    ),
    "audit": (
        "The result of an audit",
        ("studies.audit.result.Audit", "studies.audit.result.StoredInputs"),
    ),
    "attack": ("The result of an attack", ("batch_attack.AttackResult",)),
    "results": ("Figures of results", ("analysis.results",)),
    "errors": ("Errors", ("core.errors",)),
    "contracts": ("Contracts of plugins", ("core.contracts",)),
    "threat": ("Threats: distance, budget and criterion", ("core.threat",)),
    "domain": ("Domains of inputs", ("core.domain",)),
    "model": ("The contract of a model", ("core.model",)),
    "checkers": (
        "Checkers of plugins",
        (
            *(
                f"testing.{kind}s.check_{kind}"
                for kind in ("attack", "distortion", "defence", "detector", "explainer")
            ),
            "testing.others",
        ),
    ),
}
"""Pages of classes, with their titles and what of the package they show."""
WIDTH = 100
"""The width of prose in pages that people write."""


def pages() -> dict[str, str]:
    """Every generated file, by its path from the root, with what it should hold."""
    texts = {
        "docs/reference/records.md": record_page(),
        "docs/reference/json.md": json_page(),
        "docs/reference/benchmark-sets.md": benchmark_page(),
        "docs/reference/statements.md": statement_page(),
        "docs/reference/api.md": with_list("docs/reference/api.md", calls_list()),
        "docs/reference/reading.md": with_list("docs/reference/reading.md", tree_list()),
        "docs/reference/trust.md": with_list("docs/reference/trust.md", standing_tables()),
        "tests/messages.txt": message_page(),
        "src/brinell/__init__.pyi": stub_text(),
    }
    texts |= {
        f"docs/reference/classes/{name}.md": class_page(*page) for name, page in CLASSES.items()
    }
    return texts | plugin_pages() | command_pages() | schema_pages()


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; bars and line breaks within a cell are escaped."""
    lines = [list(header), *map(list, rows)]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    cells.insert(1, ["---"] * len(cells[0]))
    return "".join("| " + " | ".join(line) + " |\n" for line in cells)


def first_line(thing: Any) -> str:
    """The first paragraph of a docstring in one line, without its full stop."""
    doc = inspect.getdoc(thing)
    if not doc:
        raise ValueError(f"{thing!r} has no docstring")
    return " ".join(doc.partition("\n\n")[0].split()).rstrip(".")


def whole_docstring(thing: Any) -> str:
    """A docstring as Markdown: its first paragraph as a sentence, and those that follow."""
    further = (inspect.getdoc(thing) or "").partition("\n\n")[2]
    return "\n\n".join(filter(None, [first_line(thing) + ".", further]))


def attribute_docs(cls: type[Any]) -> dict[str, str]:
    """The string that follows each attribute in the source of a class."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    docs = {}
    for attribute, string in zip(node.body, node.body[1:], strict=False):
        match attribute, string:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = inspect.cleandoc(text)
    return docs


# --- plugins
# ------------------------------------------------------------------------------------------


def plugin_pages() -> dict[str, str]:
    """A page for each kind of plug-ins, with their settings and what their authors wrote about
    them, and the list of all.
    """
    intro = inspect.cleandoc(plugins.__doc__ or "").partition("\n\n")[2]
    index = [NOTE, f"# Plugins\n\n{intro}\n"]
    pages = {}
    for kind in plugins.FOLDERS:
        classes = {name: plugins.load(kind, name) for name in plugins.names(kind)}
        rows = [
            [f"[{name}]({kind}.md#{name})", first_line(plugin)] for name, plugin in classes.items()
        ]
        index.append(f"\n## [{kind}]({kind}.md)\n\n{table(['name', 'what it is'], rows)}")
        sections = [
            f"\n## {name}\n\n{plugin_section(plugin)}\n</details>\n"
            for name, plugin in classes.items()
        ]
        pages[f"docs/reference/plugins/{kind}.md"] = f"{NOTE}# Plugins: {kind}\n{''.join(sections)}"
    return {"docs/reference/plugins/index.md": "".join(index)} | pages


def plugin_section(plugin: type[Any]) -> str:
    """Description, requirements and settings of one plug-in."""
    module = inspect.getdoc(sys.modules[plugin.__module__]) or ""
    parts = [
        f'{whole_docstring(plugin)}\n\n<details markdown="1"><summary>Settings</summary>\n',
        f"\n{module}\n" if module else "",
    ]
    facts = {
        fact: getattr(plugin, fact)
        for fact in ("access", "distances", "domains", "family")
        if hasattr(plugin, fact)
    }
    if facts:
        parts.append(
            "\n" + "; ".join(f"{fact}: {fact_text(value)}" for fact, value in facts.items()) + ".\n"
        )
    fields, docs = dataclasses.fields(plugin), dict[str, str]()
    for base in reversed(plugin.__mro__):
        docs |= attribute_docs(base) if dataclasses.is_dataclass(base) else {}
    scales = [(name, value) for name, value in vars(plugin).items() if isinstance(value, Scale)]
    levels = [(docs[name], (scale.small, scale.large)) for name, scale in scales]
    if issubclass(plugin, Published):
        levels.append(("Published parameters.", (plugin.small, plugin.large)))
    if levels:
        rows = [
            [title, f"{side}", *map(str, row)]
            for title, sizes in levels
            for side, row in zip(SIDES, sizes, strict=True)
        ]
        parts.append(
            "\n"
            + table(["parameter", "side", *(f"severity {level}" for level in SEVERITIES)], rows)
        )
    if fields:
        rows = [
            [f"`{f.name}`", f"`{type_text(f.type)}`", default_text(f), docs[f.name]] for f in fields
        ]
        parts.append("\n" + table(["setting", "type", "default", "meaning"], rows))
    return "".join(parts)


def fact_text(value: Any) -> str:
    """A declaration of a plugin in words."""
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    return value.name.lower() if isinstance(value, Enum) else str(value)


def type_text(hint: Any) -> str:
    """A type as one writes it; literals as their values."""
    if isinstance(hint, type):
        return hint.__name__
    return str(hint).replace("typing.", "")


def default_text(field: dataclasses.Field[Any]) -> str:
    """The default of a field."""
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    return (
        f"`{field.default_factory()!r}`"
        if field.default_factory is not dataclasses.MISSING
        else "must be given"
    )


# --- records
# ------------------------------------------------------------------------------------------


def record_page() -> str:
    """The columns of a record and the outcomes a sample can have."""
    columns = [[f"`{name}`", c.kind, "yes" if c.null else "", c.doc] for name, c in COLUMNS.items()]
    docs = attribute_docs(Outcome)
    outcomes = [[f"`{o.value}`", docs[o.name]] for o in Outcome]
    return (
        f"{NOTE}# Records\n\n"
        "`rows.parquet` in a run folder holds facts: a clean row for each "
        "sample, and a row for each\n"
        "sample and stage that attacked it. Every figure of the report is\n"
        "computed from these rows. The table of each sample, attack and eps follows from them:\n"
        "`result.to_pandas(dense=True)` makes it.\n\n"
        f"{table(['column', 'type', 'may be null', 'meaning'], columns)}\n"
        "## Outcomes\n\n"
        "A sample counts as robust at an eps when it is right untouched and no "
        "attack that ran found an adversarial\n"
        "example within it: from its smallest `broken` on it is not.\n\n"
        f"{table(['outcome', 'meaning'], outcomes)}\n"
        "## Checks\n\n"
        f"{inspect.getdoc(Code)}\n\n"
        "Each model's result lists them all (`checks` in `audit --json`, the "
        "report, `tables/checks.csv`).\n"
        "`manifest.json` keeps those that ask the model (`checks`) and the "
        "evaluations spent on them and\n"
        "on recognising the kind of its answers (`probes`). `gate`\n"
        "fails where one failed (unless `--allow CODE`) and, without "
        "`--without-checks`, where one that counts\n"
        "was not made. [Checks](checks.md) says what each one catches, how it "
        "was calibrated, its false alarms\n"
        "and what it cannot see.\n\n"
        f"{table(['code', 'what fails it'], [[f'`{code.value}`', attribute_docs(Code)[code.name]] for code in Code])}"
    )


def benchmark_page() -> str:
    """The folder of a benchmark set and its columns."""
    docs = attribute_docs(SearchOutcome)
    return (
        f"{NOTE}# Benchmark sets\n\n{inspect.getdoc(benchmark)}\n"
        + columns_text()
        + "\n## Outcomes\n\n"
        + table(
            ["outcome", "meaning"],
            [[f"`{outcome.value}`", docs[outcome.name]] for outcome in SearchOutcome],
        )
    )


def statement_page() -> str:
    """The kinds of statements, and what each stands on."""
    intro = inspect.cleandoc(statements.__doc__ or "").partition("\n\n")[2]
    rows = [
        [f"`{name}`", kind.meaning, kind.assumption, kind.test, kind.family, f"{kind.least_n}"]
        for name, kind in statements.KINDS.items()
    ]
    header = ["kind", "what it says", "what it assumes", "test", "corrected for", "least n"]
    return (
        f"{NOTE}# Statements\n\n{intro}\n\n{table(header, rows)}\n"
        "[How often each is false where nothing is there](../results/inference.md), by size.\n"
    )


# --- command line and JSON
# ------------------------------------------------------------------------------------------


def command_pages() -> dict[str, str]:
    """A page for each verb, with its examples, its help as it is printed and its Python call, and
    the list of all by panel.
    """
    from brinell.cli import PANELS, command_line

    app = command_line()

    def help_text(*words: str) -> str:
        """What `brinell WORDS --help` prints."""
        result = CliRunner().invoke(
            app, [*words, "--help"], prog_name="brinell", terminal_width=100, color=False
        )
        if result.exit_code:
            raise SystemExit(
                f"brinell {' '.join(words)} --help ended with {result.exit_code}: {result.output}"
            )
        return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())

    index, pages = (
        [NOTE, "# Commands\n\nEvery command takes `--json` ([schemas](../json.md)).\n"],
        {},
    )
    remaining = register.commands()
    panels = {
        title: [verb for verb in remaining if verb.split()[0] in verbs]
        for title, verbs in PANELS.items()
    }
    panels["Installed"] = [
        verb
        for verb in remaining
        if verb not in {verb for verbs in panels.values() for verb in verbs}
    ]
    for title, verbs in panels.items():
        rows = []
        for verb in verbs:
            study, summary, name = (
                register.load(verb),
                remaining[verb].summary,
                verb.replace(" ", "-"),
            )
            rows.append([f"[{verb}]({name}.md)", summary, f"`{study.examples[0]}`"])
            text = (
                f"{NOTE}# {verb}\n\n{summary}\n\n## brinell "
                f"{verb}\n\n```text\n{help_text(*verb.split())}\n```\n"
            )
            if study.call:
                text += "\n" + call_section(study.name, calls.call_of(study), typed(study)).replace(
                    "### ", "## ", 1
                )
            pages[f"docs/reference/commands/{name}.md"] = text
        if rows:
            index.append(
                f"\n## {title}\n\n" + table(["command", "what it does", "for example"], rows)
            )
    index.append(
        "\n## Options of every "
        f"command\n\n```text\n{help_text().partition('Options:')[2].strip()}\n```\n"
    )
    return {"docs/reference/commands/index.md": "".join(index)} | pages


FIELD = "robustness"
"""The schema of what the hub gets of a model."""
PROMISE = """
## What may change

These are the public interface: the JSON of each verb, the columns of the [records](records.md), the
keys of `manifest.json` and `run.toml`, the [calls in Python](api.md), the options and the exit codes of
commands.

- A version 0.1.x changes none of them.
- A minor version adds keys, columns, options and calls; read what you know and leave the rest.
- Nothing goes without notice: it works for one more minor version, with a `DeprecationWarning` in
  Python and a line on standard error that names what takes its place.
- Every later version reads, verifies and reports folders that version 0.1 wrote; `tests/released`
  keeps some of them.

Not part of it: sentences, pages, names that begin with `_`, and the modules of the package that
api.md does not list.
"""


def json_page() -> str:
    """Page that lists the JSON documents and their schemas."""
    commands = {"plan": "audit --dry-run"} | {
        verb.replace(" ", "-"): study.command for verb, study in register.studies().items()
    }
    manifests = [
        [f"`{layout.command}`", f"[{manifest_name(layout)}](../schema/{manifest_name(layout)})"]
        for layout in layouts()
    ]
    rows = [
        [f"`brinell {commands.get(name, name)} --json`", f"[{name}.json](../schema/{name}.json)"]
        for name in register.schemas()
        if name != FIELD
    ]
    rows.append(
        [
            f"`{FIELD}/MODEL.json` of `brinell export --to hub`",
            f"[{FIELD}.json](../schema/{FIELD}.json)",
        ]
    )
    return (
        f"{NOTE}# JSON\n\n"
        "Every command that reports something prints it as one JSON document "
        "with `--json`, and what it says in passing goes to\n"
        "standard error. Each document follows a JSON Schema (draft 2020-12), whose `$id` names "
        "the version of Brinell:\n\n"
        f"{table(['document', 'schema'], rows)}\n"
        "## Manifests\n\n"
        "Every folder has a `manifest.json`, whose key `verb` says what made it. "
        "It follows the schema of its verb and may have\n"
        "more keys:\n\n"
        f"{table(['folder of', 'schema'], manifests)}"
        f"{PROMISE}"
    )


def manifest_name(layout: Layout) -> str:
    """The name of the schema of a manifest."""
    return f"manifest-{layout.verb.replace(' ', '-')}.json"


def layouts() -> list[Layout]:
    """The folders of all verbs, by verb."""
    study_layouts = [study.layout for study in register.studies().values() if study.leaves_folder]
    return sorted(study_layouts, key=lambda layout: layout.verb)


DIALECT = "https://json-schema.org/draft/2020-12/schema"
MINOR = ".".join(brinell.__version__.split(".")[:2])
"""The version whose documents follow the schemas: a further patch changes none."""


def schema_pages() -> dict[str, str]:
    """The JSON Schema of what each verb prints with --json, and of each manifest."""
    schemas = {name: register.schema(name) for name in register.schemas()}
    schemas |= {
        manifest_name(layout).removesuffix(".json"): layout.manifest.model_json_schema()
        for layout in layouts()
    }
    pages = {}
    for name, content in schemas.items():
        Draft202012Validator.check_schema(content)
        head = {"$schema": DIALECT, "$id": f"urn:brinell:{MINOR}:{name}"}
        pages[f"docs/schema/{name}.json"] = json.dumps(head | content, indent=2) + "\n"
    return pages


# --- lists within pages that people write
# ----------------------------------------------------------------------------


def with_list(path: str, text: str) -> str:
    """A page whose marked list is the given text.

    Raises:
        ValueError: the page has no marks, or several.
    """
    before, begin, remainder = (read(ROOT / path) or "").partition(BEGIN)
    _, end, after = remainder.partition(END)
    if not (begin and end) or BEGIN in after:
        raise ValueError(f"{path} needs the lines {BEGIN.strip()} and {END.strip()} once each")
    return f"{before}{begin}\n{text}\n{end}{after}"


def standing_tables() -> str:
    """What the folders of studies claim."""
    claims: dict[str, list[str]] = {}
    for study in register.studies().values():
        for reason, place in declared_claims(study).listing() if study.leaves_folder else ():
            claims.setdefault(reason, []).append(f"`{place}`")
    rows = ([reason, ", ".join(dict.fromkeys(patterns))] for reason, patterns in claims.items())
    return table(["what", "where"], rows)


def tree_list() -> str:
    """Every module and room of the package, and every study, with the first sentence of its
    docstring.
    """
    top = ROOT / "src" / "brinell"
    modules = [
        path for path in sorted(top.glob("*.py")) if path.name not in ("__init__.py", "__main__.py")
    ]
    lines = [item(path.name, sentence(path)) for path in modules]
    for room in (path.parent for path in sorted(top.glob("*/__init__.py"))):
        lines.append(item(room.name, sentence(room / "__init__.py")))
        if room.name == "studies":
            lines += [
                item(path.name, sentence(path), level=1) for path in sorted(room.glob("[a-z]*.py"))
            ]
            lines += [
                item(
                    entry.package.rpartition(".")[2],
                    first_sentence(entry.help),
                    after=f" (`{entry.verb}`)",
                    level=1,
                )
                for entry in sorted(register.entries().values(), key=lambda entry: entry.package)
                if entry.package.startswith("brinell.")
            ]
    return "".join(lines)


def item(name: str, text: str, *, after: str = "", level: int = 0) -> str:
    """An item of a list: a name in code, and what it is."""
    indent = "  " * level
    return wrapped(f"{indent}- `{name}`{after}: {text}", indent + "  ")


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of the width; code between backticks is broken at blanks only."""
    return (
        textwrap.fill(
            text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        + "\n"
    )


def sentence(file: Path) -> str:
    """The first sentence of a module's docstring, read from its source."""
    return first_sentence(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")


def first_sentence(text: str) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=[.!?]) ", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]


def class_page(title: str, objects: Iterable[str]) -> str:
    """A page that the site fills from docstrings."""
    return f"{NOTE}# {title}\n" + "".join(f"\n::: brinell.{name}\n" for name in objects)


def calls_list() -> str:
    """The calls that are no command, with signatures and docstrings."""
    return "\n".join(
        call_section(name, getattr(brinell, name)) for name in ("attack", "data", "open")
    )


def call_section(
    name: str, function: Callable[..., Any], signature: inspect.Signature | None = None
) -> str:
    """A heading, the signature and the docstring of a call as Markdown."""
    lines = signature_lines(name, signature or inspect.signature(function))
    return f"### brinell.{name}\n\n```python\n{chr(10).join(lines)}\n```\n\n" + "".join(
        docstring_parts(function)
    )


def docstring_parts(function: Callable[..., Any]) -> Iterator[str]:
    """A docstring in Google's style as Markdown: paragraphs, and a list for each of its sections."""
    for index, block in enumerate((inspect.getdoc(function) or "").split("\n\n")):
        title, _, body = block.partition("\n")
        yield "\n" if index else ""
        if title not in ("Args:", "Returns:", "Raises:"):
            yield wrapped(" ".join(block.split()))
            continue
        yield f"**{title.removesuffix(':')}**\n\n"
        for text in re.split(r"\n(?=\S)", textwrap.dedent(body)):
            word, colon, meaning = " ".join(text.split()).partition(": ")
            yield wrapped(
                f"- `{word}`: {meaning}"
                if colon and " " not in word
                else f"- {word}{colon}{meaning}",
                "  ",
            )


# --- main
# ------------------------------------------------------------------------------------------


def main() -> int:
    """Write every page, or with --check name those that differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a page is out of date"
    )
    check = parser.parse_args().check
    expected = pages()
    folders = (
        "docs/schema/*.json",
        "docs/reference/commands/*.md",
        "docs/reference/plugins/*.md",
        "docs/reference/classes/*.md",
    )
    stray = {str(path.relative_to(ROOT)) for folder in folders for path in ROOT.glob(folder)} - set(
        expected
    )
    stale = [path for path, text in expected.items() if read(ROOT / path) != text]
    for path in [*stale, *sorted(stray)]:
        print(
            f"{path} is out of date: run `make docs`"
            if check
            else f"{'removed' if path in stray else 'wrote'} {path}"
        )
        if not check:
            replace(ROOT / path, expected.get(path))
    return int(check and bool(stale or stray))


def read(path: Path) -> str | None:
    """The text of a file, or nothing where there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else None


def replace(path: Path, text: str | None) -> None:
    """Write a file anew, or remove it."""
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
