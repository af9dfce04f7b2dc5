"""The page of one model: everything that any folders of it say, class by class, and
what is missing.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError
from brinell.engine.request import IN_MEMORY
from brinell.reports import html
from brinell.reports.numbers import counted, listed
from brinell.reports.values import Block, Cell, Code, Curve, Link, Note, Prose, Report, Step, Table
from brinell.store.files import write_text
from brinell.store.folder import PAGE, fitting
from brinell.studies.register import study_of
from brinell.studies.result import ReportedResult

STUDIES = {
    "audit": ("robust accuracy by class and budget", "brinell audit {data} {model}"),
    "certify": ("the share that no attack can break", "brinell certify {data} {model}"),
    "corrupt": ("noise, blur and weather", "brinell corrupt {data} {model}"),
    "epsilon": ("which budget makes sense", "brinell epsilon {spec}"),
    "explain": ("what the model looks at", "brinell explain {data} {model}"),
    "harden": ("whether training makes it robust", "brinell harden {data} {model}"),
    "claim": ("the statement to publish", "brinell claim {audit}"),
}
"""Subject and command of each study of a model, in the order of the page."""
MOST_SENTENCES = 6
"""Sentences of a study that the page repeats."""


@dataclass(frozen=True)
class Source:
    """A folder of the model."""

    folder: Path
    verb: str
    manifest: dict[str, Any]
    model: str
    """The name of the model there; empty for a folder of the data alone."""

    @property
    def data_digest(self) -> str:
        """The hash of its data."""
        return str(self.manifest["data"]["digest"])


def write_dossier(folders: Sequence[Path]) -> Path:
    """Write the page of the model that all folders share, next to the first folder; returns its
    path.

    Raises:
        RequestError: they share no model.
    """
    digest, sources = find_sources(folders)
    name = html.slug(next(source.model for source in sources if source.model))
    path = sources[0].folder.parent / f"dossier-{name}-{digest[:8]}.html"
    write_text(path, html.page(dossier(digest, sources, path.parent)))
    return path


def find_sources(folders: Sequence[Path], digest: str = "") -> tuple[str, list[Source]]:
    """The digest of the model that the folders share, and the folders in the order of the page.

    Args:
        folders: the folders.
        digest: of the model; by default the first one that all share.
    """
    manifests = {}
    for folder in folders:
        with fitting(folder):
            manifests[folder] = study_of(folder).verb, _description(folder)
    names = {
        folder: {str(entry["digest"]): str(entry["name"]) for entry in manifest.get("models", [])}
        for folder, (_, manifest) in manifests.items()
    }
    digest, order = digest or _shared_model(names), list(STUDIES)

    sources = [
        Source(folder, verb, manifest, names[folder].get(digest, ""))
        for folder, (verb, manifest) in manifests.items()
    ]
    known = [source for source in sources if source.verb in order]
    known.sort(key=lambda source: order.index(source.verb))
    return digest, [*known, *(source for source in sources if source.verb not in order)]


def _shared_model(names: Mapping[Path, Mapping[str, str]]) -> str:
    """The digest of the first model that all folders share; those without models are of
    the data.
    """
    first = next((folder for folder in names if names[folder]), None)
    if first is None:
        raise RequestError(f"{next(iter(names))} is of no model: name folders of one model")

    shared = list(names[first])
    for folder, models in names.items():
        shared = [digest for digest in shared if digest in models or not models]
        if not shared:
            raise RequestError(
                f"{folder} is of {listed(list(models.values()))} and {first} of "
                f"{listed(list(names[first].values()))}: name folders of one model"
            )
    return shared[0]


def _description(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, or of the run that it is about, with data and models."""
    study = study_of(folder)
    manifest: dict[str, Any] = study.layout.read(folder)
    if "models" in manifest:
        return manifest
    sources = study.function("sources")
    origins = list(sources(folder, manifest)) if sources else []
    if not origins:
        raise RequestError(f"{folder} is of no single model: name folders of one model")
    return _description(origins[0])


def dossier(digest: str, sources: Sequence[Source], place: Path) -> Report:
    """The report of a model.

    Args:
        digest: of the model.
        sources: its folders, in the order of the page.
        place: the folder of the page, from which links lead to the pages of the studies.
    """
    results = {source.folder: study_of(source.folder).open(source.folder) for source in sources}
    reports = {folder: result.report() for folder, result in results.items()}
    titles = {
        source.folder: f"{source.verb}: {_path_from(place, source.folder)}" for source in sources
    }
    links = {
        folder: Link(title, _path_from(place, folder / PAGE)) for folder, title in titles.items()
    }
    missing = list(_missing(sources))
    blocks: list[Block] = [_class_table(sources, results)]
    for source in sources:
        blocks += _study_blocks(titles[source.folder], reports[source.folder], source)
    if missing:
        rows = [(verb, answer, Code(command)) for verb, answer, command in missing]
        columns = ("study", "answers", "type")
        blocks.append(Table(title="What is missing", columns=columns, rows=rows))

    name = next(source.model for source in sources if source.model)
    return Report(
        verb="report",
        title=name,
        subject=f"digest {digest[:12]} · {counted(len(sources), 'folder')}",
        sentences=[reports[source.folder].sentences[0] for source in sources],
        blocks=blocks,
        notes=list(_disagreements(sources)),
        steps=[_next_step(missing, sources)],
        links=list(links.values()),
    )


def _next_step(missing: Sequence[tuple[str, str, str]], sources: Sequence[Source]) -> Step:
    """The first study that is missing; where none is, the verification of the first folder."""
    for _, answer, command in missing:
        return Step(f"Measure {answer}.", command)
    folder = shlex.quote(str(sources[0].folder))
    return Step("Have the figures made again before you pass them on.", f"brinell verify {folder}")


def _study_blocks(title: str, report: Report, source: Source) -> Iterator[Block]:
    """The sentences of a study, its subject with the date, and its first curve."""
    made = str(source.manifest["created"])[:10]
    sentences = [
        *report.sentences[:MOST_SENTENCES],
        f"{report.subject}{'' if made in report.subject else f'; {made}'}.",
    ]
    yield Prose(title=title, sentences=sentences, folded=False)

    curves = [block for block in report.blocks if isinstance(block, Curve)]
    for curve in curves[:1]:
        yield replace(curve, title=f"{title}, {curve.title}")


def _path_from(place: Path, path: Path) -> str:
    """A path as links from a folder name it."""
    return Path(os.path.relpath(path, place)).as_posix()


def _class_table(sources: Sequence[Source], results: dict[Path, ReportedResult]) -> Table:
    """The figures of every study for each class, in the order of the classes."""
    columns: dict[str, dict[str, Cell]] = {}
    for source in sources:
        for column, cells in results[source.folder].class_columns(source.model).items():
            title = column if column not in columns else f"{column} ({source.folder.name})"
            columns[title] = dict(cells)

    classes = [name for source in sources for name in source.manifest["data"]["classes"]]
    present = {name for cells in columns.values() for name in cells}
    names = [name for name in dict.fromkeys(classes) if name in present]
    return Table(
        title="Class by class, over all studies",
        columns=("class", *columns),
        rows=[(name, *(cells.get(name) for cells in columns.values())) for name in names],
        text="A dash: the study has no sample of the class. Each study took its own samples.",
        filter=True,
    )


def _missing(sources: Sequence[Source]) -> Iterator[tuple[str, str, str]]:
    """The studies that are not there: what each answers, and what to type."""
    first = next(source for source in sources if source.model)
    spec, data = _spec_of(first), str(first.manifest["data"]["spec"])
    if IN_MEMORY in f"{spec}{data}":
        spec, data = "MODEL", "DATA"

    audit = next((str(s.folder) for s in sources if s.verb == "audit"), "RUN")
    arguments = {
        "data": f"--data {shlex.quote(data)}",
        "spec": shlex.quote(data),
        "model": f"--model {shlex.quote(str(spec))}",
        "audit": shlex.quote(audit),
    }
    verbs = {source.verb for source in sources}
    for verb, (answer, command) in STUDIES.items():
        if verb not in verbs:
            yield verb, answer, command.format(**arguments)


def _spec_of(source: Source) -> str:
    """The spec of the model: an audit records it, any other study has it in its request."""
    names = [entry["name"] for entry in source.manifest["models"]]
    index = names.index(source.model)
    request = source.manifest["request"].get("model") or "MODEL"
    specs = [request] if isinstance(request, str) else request
    # A study of models in memory may name fewer specs than models.
    return str(source.manifest["models"][index].get("spec", specs[index % len(specs)]))


def _disagreements(sources: Sequence[Source]) -> Iterator[Note]:
    """Folders of other data or classes than the first: their figures are of other samples."""
    data = [source.data_digest for source in sources]
    classes = [source.manifest["data"]["classes"] for source in sources]
    for what, values in (("data", data), ("classes", classes)):
        pairs = zip(sources, values, strict=True)
        others = [source.folder.name for source, value in pairs if value != values[0]]
        if others:
            text = f"{listed(others)} and {sources[0].folder.name} have different {what}."
            yield Note(f"other-{what}", "warn", text)
