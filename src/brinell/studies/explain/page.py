"""The page of `brinell explain`: samples with their maps side by side, and the table of measures."""

from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.store.table import Folder
from brinell.studies.explain.analysis import LOWER, ExplainResult, Measure, in_words, root, summarise
from brinell.studies.explain.pictures import overlay, plain
from brinell.studies.explain.records import MEASURES, TABLE, Rows, load_inputs, load_maps, load_truths

SHOWN = 12
"""Samples on the page at most."""
AREA = 0.2
"""Share of the places that is outlined where neither ground truth nor the model says how many."""
NAMES = {
    "dice": "Dice",
    "iou": "IoU",
    "best_iou": "best IoU",
    "pointing": "pointing",
    "energy": "energy inside",
    "deletion": "deletion",
    "insertion": "insertion",
    "carries": "carries",
    "breaks": "breaks",
    "infidelity": "infidelity",
    "sensitivity": "max-sensitivity",
    "stability": "stability",
    "similarity": "similarity to random weights",
    "complexity": "rise of entropy",
}


def write(path: Path | str) -> Path:
    """Write `report.html` into a folder of explanations; returns its path.

    Raises:
        RequestError: no explanations there, or a damaged file.
        StoppedError: the folder cannot be written.
    """
    held = TABLE.read(path)
    file = held.path / "report.html"
    write_text(file, render(held))
    return file


def render(held: Folder[Rows]) -> str:
    """The page as one self-contained HTML document."""
    result = summarise(held)
    measures = [name for name in MEASURES if any(getattr(one, name) is not None for one in result.methods)]
    return fill(
        __package__,
        "page.html",
        {"mean_of": mean_of},
        result=result,
        facts=held.manifest,
        request=held.manifest["request"],
        sentences=in_words(result),
        methods=[one for one in result.methods if root(one.name) == one.name],
        controls=[one for one in result.methods if root(one.name) != one.name],
        plain_names=[one.name for one in result.methods if root(one.name) == one.name],
        measures=[(name, NAMES[name], name in LOWER) for name in measures],
        samples=pictures(held, result),
        truth=held.manifest["request"]["truth"] is not None,
        randomised=any(one.forgets is not None for one in result.methods),
    )


def mean_of(measure: Measure | None) -> Markup:
    """A mean with its interval as the cell of a table."""
    if measure is None:
        return Markup("–")
    return Markup(f"<b>{measure.value:.3f}</b><small>{measure.low:.3f} to {measure.high:.3f}</small>")


def pictures(held: Folder[Rows], result: ExplainResult) -> list[dict[str, Any]]:
    """The first samples with a map of each method; those that the model gets wrong come first."""
    rows, facts = held.rows, held.manifest
    methods = [one["name"] for one in facts["methods"]]
    first = np.flatnonzero(rows.method == methods[0])
    order = first[np.lexsort((rows.sample_id[first], rows.prediction[first] == rows.label[first]))][:SHOWN]
    domain, sampling = facts["data"]["domain"], facts["data"].get("sampling")
    names = [str(name) for name in facts["data"]["classes"]]
    shown = [int(rows.sample_id[row]) for row in order]
    inputs, truths, stored = load_inputs(held.path, shown), load_truths(held.path, shown), load_maps(held.path, shown)
    found = []
    for row in order:
        sample = int(rows.sample_id[row])
        truth, x = truths.get(sample), inputs[sample]
        label, told, explained = (class_name(names, int(column[row])) for column in (rows.label, rows.prediction, rows.explained))
        maps = []
        for method in methods:
            values = stored[method, sample]
            at = int(np.flatnonzero((rows.method == method) & (rows.sample_id == sample))[0])
            count = min(outlined(held, at, truth, values.size), int((values > values.min()).sum()))
            title = f"{method}: what speaks for {explained} in sample {sample}"
            maps.append((method, overlay(x, values, count, truth, domain, sampling, title), figures_of(held, at)))
        found.append(
            {
                "sample": sample,
                "label": label,
                "prediction": told,
                "explained": explained,
                "wrong": bool(rows.prediction[row] != rows.label[row]),
                "input": plain(x, truth, domain, sampling, f"sample {sample}, {label}, taken for {told}"),
                "maps": maps,
            }
        )
    return found


def outlined(held: Folder[Rows], row: int, truth: Array | None, places: int) -> int:
    """How many places are outlined: as many as the object has, or as lead to the class alone, or `AREA` of all."""
    if truth is not None:
        return int((truth == 1).sum())
    carries = held.rows.carries[row]
    share = AREA if np.ma.is_masked(carries) else float(carries)
    return max(1, round(share * places))


def figures_of(held: Folder[Rows], row: int) -> str:
    """What a map is worth, in a few words."""
    if held.rows.blank[row]:
        return "the same everywhere: nothing to see"
    parts = []
    for name in ("dice", "insertion", "deletion"):
        value = getattr(held.rows, name)[row]
        if not np.ma.is_masked(value):
            parts.append(f"{NAMES[name]} {float(value):.2f}")
    return ", ".join(parts)
