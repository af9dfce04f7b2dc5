"""The register of studies: found by folder and by entry point, listed without an import, imported
one at a time.
"""

import ast
import functools
import importlib.util
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from brinell.core.errors import RequestError
from brinell.core.suggestions import suggestion
from brinell.studies.kit import GROUPS, Study

GROUP = "brinell.study"
"""The entry points by which an installed package names its studies: the verb, and the package
that holds the record."""


@dataclass(frozen=True, kw_only=True)
class StudyEntry:
    """What is known of a study before it is imported."""

    verb: str
    package: str
    help: str
    """The docstring of its package: one line, and what more the help of the command says."""

    @property
    def summary(self) -> str:
        """The first paragraph of the help, on one line."""
        return " ".join(self.help.partition("\n\n")[0].split())


@functools.cache
def entries() -> dict[str, StudyEntry]:
    """All studies by verb, in alphabetical order, read from their sources."""
    import brinell.studies as folder

    packages = [
        f"{folder.__name__}.{module.name}"
        for module in pkgutil.iter_modules(folder.__path__)
        if module.ispkg
    ]
    packages += [entry.value for entry in entry_points(group=GROUP)]
    entries_by_verb: dict[str, StudyEntry] = {}
    for package in packages:
        entry = _read(package)
        if entry.verb in entries_by_verb:
            first, second = entries_by_verb[entry.verb].package, package
            raise RequestError(
                f"two studies have the verb {entry.verb!r} ({first} and "
                f"{second}): uninstall one of the packages"
            )
        entries_by_verb[entry.verb] = entry
    return dict(sorted(entries_by_verb.items()))


def commands() -> dict[str, StudyEntry]:
    """The entries of the verbs that have a command."""
    return {
        verb: entry
        for verb, entry in entries().items()
        if " " not in verb or verb.partition(" ")[0] in GROUPS
    }


def entry_of(verb: str) -> StudyEntry | None:
    """The entry of a verb, or of the verb whose form for tasks it is; None if there is none."""
    return entries().get(verb) or entries().get(verb.partition(" ")[0])


def load(verb: str) -> Study:
    """The record of a verb, or its form for tasks, whose folders name a verb of two words."""
    entry = entry_of(verb)
    study: Study | None = None if entry is None else import_module(entry.package).STUDY
    if study is not None and study.verb != verb:
        study = study.of_tasks
    if study is None or study.verb != verb:
        raise RequestError(
            "there is no command "
            f"{verb!r}{suggestion(verb, commands(), '`brinell --help` lists them')}"
        )
    return study


def studies() -> dict[str, Study]:
    """All records by verb, with their forms for tasks: imports every study's package, and none of
    its code.
    """
    records = [load(verb) for verb in entries()]
    forms = [study.of_tasks for study in records if study.of_tasks is not None]
    return {study.verb: study for study in sorted((*records, *forms), key=attrgetter("verb"))}


def study_of(folder: Path) -> Study:
    """The study that made a folder, by the verb in its manifest."""
    from brinell.store.folder import verb_of  # it brings numpy, which listing does without

    verb = verb_of(folder)
    if verb is None:
        audit = load("audit")
        audit.layout.open(folder)  # says what is missing or damaged
    try:
        return load(str(verb))
    except RequestError:
        raise RequestError(
            f"{folder} was made by brinell {verb}, and no study of that verb is "
            "installed: install its package"
        ) from None


def open_folder(folder: Path) -> Any:
    """The result of a folder, from its records, by the study that made it."""
    return study_of(folder).open(folder)


def write_page(folder: Path) -> Path:
    """Write page and tables of a folder again, from its records, by the study that made it; returns
    the path of the page.
    """
    from brinell.store.folder import fitting

    study = study_of(folder)
    with fitting(folder):
        return study.write_page(folder)


def of_data(study: Study, data: Any) -> Study:
    """The form of a study that takes a call with such data, a spec or a data set."""
    if data is None or study.of_tasks is None:
        return study
    from brinell.engine.sources import has_truth

    return study.of_tasks if has_truth(data) else study


def _read(package: str) -> StudyEntry:
    """The entry of a package from the text of its `__init__`, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RequestError(
            f"the entry point {package!r} of the group {GROUP} leads to no "
            "package: reinstall what names it"
        )

    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Study"
        ):
            for keyword in node.keywords:
                if keyword.arg == "verb" and isinstance(keyword.value, ast.Constant):
                    return StudyEntry(
                        verb=str(keyword.value.value),
                        package=package,
                        help=ast.get_docstring(tree) or "",
                    )

    raise RequestError(
        f"{package} holds no STUDY = Study(verb='...', ...) with the verb as a "
        "literal: mend its __init__.py"
    )


def schemas() -> dict[str, Any]:
    """Types that the commands print with --json, by the name of their schema: the verb, or an
    additional schema of a study.
    """
    return dict(
        sorted(
            {
                name: kind for study in studies().values() for name, kind in study.printed().items()
            }.items()
        )
    )


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints."""
    return TypeAdapter(schemas()[name]).json_schema(by_alias=True, mode="serialization")
