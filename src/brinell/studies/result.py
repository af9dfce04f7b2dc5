"""The base of the results of studies: what was asked, what was found, and the report
that says it.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from brinell.analysis.folder_result import ClaimingResult, Result
from brinell.core import bounded, checks
from brinell.core.outward import printable
from brinell.reports import html, terminal
from brinell.reports.notebook import notebook
from brinell.reports.numbers import region_text
from brinell.reports.values import Cell, Claimed, Code, Note, Picture, Report, Seconds
from brinell.store.folder import MANIFEST, PAGE


class ReportedResult(Result):
    """A result that answers by its report: printed, in a notebook, at a terminal and as a page in
    its `folder`, if it has one.

    A report writes FOLDER for its folder, since its page may be moved; a terminal names the folder.
    """

    page: ClassVar[str] = ""
    """Name of the page in the folder; empty for a result without one."""

    @abstractmethod
    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""

    def class_columns(self, model: str) -> Mapping[str, Mapping[str, Cell]]:
        """Figures of each class for the page of a model: by column the cells by the names of the
        classes; none by default.

        Args:
            model: the name of the model.
        """
        return {}

    def pictures_of_samples(self, samples: Collection[int]) -> Mapping[int, Picture]:
        """A picture of each of some samples for the page of an audit of the same model and data
        in whose folder this study lies; none by default.

        Args:
            samples: positions in the data.
        """
        return {}

    def __str__(self) -> str:
        return " ".join(self.report().sentences[:2])

    def _repr_html_(self) -> str:
        return notebook(self.report())

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The report as a terminal shows it, without styles, and where files lie."""
        yield from self.styled_lines(colors=None, verbose=verbose)

    def styled_lines(
        self, colors: terminal.ColorSystem | None, *, verbose: bool = False
    ) -> Iterator[str]:
        """The report in the colours of a terminal, as wide as it is, and where files lie."""
        folder = printable(str(getattr(self, "folder", "FOLDER")).rstrip("/"))
        report = self.report()
        for line in terminal.lines(report, verbose=verbose, colors=colors):
            yield line.replace("FOLDER", folder)
        yield from map(printable, self.places())

    def places(self) -> Iterator[str]:
        """The last lines of a terminal: the paths of the page and of other files."""
        if self.page:
            folder = str(getattr(self, "folder", "FOLDER")).rstrip("/")
            yield f"page: {folder}/{self.page}"

    def write(self) -> Path:
        """Write the page and its tables into the folder; returns the path of the page."""
        return html.write(Path(getattr(self, "folder")), self.report())  # noqa: B009  # results with a page have one


class NamedModel(Result):
    """A model of a folder; studies with figures of each model add them."""

    name: str
    """Its name."""


class FolderResult(ReportedResult, ClaimingResult):
    """A result that is counted from the rows of a folder.

    A study names the classes of its request and facts.
    """

    page = PAGE
    claimed_names: ClassVar[frozenset[str]] = frozenset({"seconds"})
    beside: ClassVar[tuple[str, ...]] = ()
    """Files of the folder that its manifest does not list: those that change after the folder is
    finished, such as answers of people, and those that follow from its records."""

    folder: str
    """The folder."""
    data: str
    """Name of the data."""
    classes: list[str]
    """Names of the classes."""
    models: Sequence[NamedModel]
    """The models."""
    seconds: float
    """Wall time of the computation."""

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [model.name for model in self.models]

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the folder, for what only pictures and provenance need."""
        manifest: dict[str, Any] = bounded.json_of(Path(self.folder) / MANIFEST)
        return manifest

    @property
    def misfits(self) -> list[str]:
        """What is wrong with models that the data do not fit."""
        texts = self.manifest.get("fit", {})
        return [f"{model}: {text}" for model, text in texts.items()]

    def write(self) -> Path:
        """Write the page and its tables into the folder."""
        report, manifest = self.report(), self.manifest
        facts = (*report.provenance, *provenance(manifest), ("computed in", Seconds(self.seconds)))
        faults = [Note(str(checks.Code.CLEAN), "warn", f"{text}.") for text in self.misfits]
        report = replace(
            report,
            request=manifest["request"],
            provenance=facts,
            notes=[*report.notes, *faults],
        )
        return html.write(Path(self.folder), report)


def provenance(manifest: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    """With what a folder was made."""
    facts: list[tuple[str, Cell]] = [
        ("inputs", _inputs(manifest["data"])),
        ("digest of the data", Code(manifest["data"]["digest"])),
        *(("data", note) for note in manifest["data"].get("notes", [])),
    ]

    for model in (*manifest["models"], *manifest.get("more_models", [])):
        facts += [
            (f"digest of {model['name']}", Code(model["digest"])),
            *(("model", note) for note in model.get("notes") or []),
        ]

    return [
        *facts,
        ("brinell", Claimed(f"{manifest['brinell']}, {manifest['revision'] or 'no revision'}")),
        (
            "versions",
            Claimed(
                ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
            ),
        ),
        (
            "hardware",
            Claimed(", ".join(f"{name}: {value}" for name, value in manifest["hardware"].items())),
        ),
        ("time", Claimed(f"{manifest['created']} to {manifest['finished'] or '–'}")),
    ]


def _inputs(data: Mapping[str, Any]) -> str:
    """The space of the inputs and how they were recorded."""
    domain, sampling = data["domain"], data.get("sampling")
    low, high = np.min(domain["low"]), np.max(domain["high"])
    texts = [
        f"{domain['kind']} of shape {' × '.join(map(str, domain['shape']))}",
        f"in [{low:g}, {high:g}]",
    ]
    if sampling:
        texts[1:] = [
            f"{texts[1]} {sampling['unit']}".strip(),
            f"{sampling['rate']:g} values per second",
        ]

    if region := domain.get("region"):
        texts.append(f"changed only in {region_text(region)}")
    if fixed := sum(column[3] for column in domain.get("columns", [])):
        texts.append(f"{fixed} of its {len(domain['columns'])} columns or channels fixed")

    return ", ".join(texts)
