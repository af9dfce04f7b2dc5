"""Page of `brinell explain`: samples with their maps side by side, and the table of measures."""

from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.pages.html import fill, save_page
from brinell.store.table import Folder
from brinell.studies.explain.analysis import LOWER_IS_BETTER, ExplainResult, Measure, base_method, describe, summarise
from brinell.studies.explain.pictures import draw_input, draw_overlay
from brinell.studies.explain.records import MEASURES, TABLE, Rows, load_inputs, load_maps, load_truths

MOST_SAMPLES = 12
"""Largest number of samples on the page."""
MAIN_MEASURES = 5
"""Number of measures beside the verdict on each method; the others are folded."""
OPEN_MAPS = {"signal": 4, "video": 4}
"""Number of maps of a sample that are shown before unfolding, for the kinds whose maps are wide."""
AREA = 0.2
"""Share of the places to outline if neither ground truth nor `carries` gives a number."""
TITLES = {
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
        RequestError: the folder contains no explanations, or a damaged file.
        StoppedError: the folder cannot be written.
    """
    folder = TABLE.read(path)
    return save_page(folder.path, render(folder))


def render(folder: Folder[Rows]) -> str:
    """Render the page as one self-contained HTML document."""
    result = summarise(folder)
    measures = [name for name in MEASURES if any(getattr(method, name) is not None for method in result.methods)]
    return fill(
        __package__,
        "page.html",
        {"mean_of": format_mean},
        result=result,
        facts=folder.manifest,
        request=folder.manifest["request"],
        sentences=describe(result),
        methods=[method for method in result.methods if base_method(method.name) == method.name],
        controls=[method for method in result.methods if base_method(method.name) != method.name],
        plain_names=[method.name for method in result.methods if base_method(method.name) == method.name],
        measures=[(name, TITLES[name], name in LOWER_IS_BETTER) for name in measures],
        main=MAIN_MEASURES,
        open_maps=OPEN_MAPS.get(str(folder.manifest["data"]["domain"]["kind"]), 11),
        samples=render_samples(folder, result),
        truth=result.region is not None or folder.manifest["request"]["truth"] is not None,
        randomised=any(method.forgets is not None for method in result.methods),
    )


def format_mean(measure: Measure | None) -> Markup:
    """Format a mean and its interval as the content of a table cell."""
    if measure is None:
        return Markup("–")
    if measure.low is None or measure.high is None:
        return Markup(f"<b>{measure.value:.3f}</b><small>of {measure.n}, no interval</small>")
    return Markup(f"<b>{measure.value:.3f}</b><small>{measure.low:.3f} to {measure.high:.3f}</small>")


def render_samples(folder: Folder[Rows], result: ExplainResult) -> list[dict[str, Any]]:
    """Render the first samples with a map of each method; misclassified samples come first."""
    rows, facts = folder.rows, folder.manifest
    methods = [record["name"] for record in facts["methods"]]
    first = np.flatnonzero(rows.method == methods[0])
    order = first[np.lexsort((rows.sample_id[first], rows.prediction[first] == rows.label[first]))][:MOST_SAMPLES]
    domain, sampling = facts["data"]["domain"], facts["data"].get("sampling")
    names = [str(name) for name in facts["data"]["classes"]]
    sample_ids = [int(rows.sample_id[row]) for row in order]
    inputs, truths = load_inputs(folder.path, sample_ids), load_truths(folder.path, sample_ids)
    arrays = load_maps(folder.path, sample_ids)
    entries = []
    for row in order:
        sample = int(rows.sample_id[row])
        truth, x = truths.get(sample), inputs[sample]
        label, prediction, explained = (
            class_name(names, int(column[row])) for column in (rows.label, rows.prediction, rows.explained)
        )
        maps = []
        for method in methods:
            values = arrays[method, sample]
            map_row = int(np.flatnonzero((rows.method == method) & (rows.sample_id == sample))[0])
            count = min(outline_count(folder, map_row, truth, values.size), int((values > values.min()).sum()))
            title = f"{method}: evidence for {explained} in sample {sample}"
            maps.append((method, draw_overlay(x, values, count, truth, domain, sampling, title), describe_map(folder, map_row)))
        entries.append(
            {
                "sample": sample,
                "label": label,
                "prediction": prediction,
                "explained": explained,
                "wrong": bool(rows.prediction[row] != rows.label[row]),
                "input": draw_input(x, truth, domain, sampling, f"sample {sample}, {label}, predicted {prediction}"),
                "maps": maps,
            }
        )
    return entries


def outline_count(folder: Folder[Rows], row: int, truth: Array | None, places: int) -> int:
    """Number of places to outline: the size of the object, else the share `carries` of the places, else the share `AREA`."""
    if truth is not None:
        return int((truth == 1).sum())
    carries = folder.rows.carries[row]
    share = AREA if np.ma.is_masked(carries) else float(carries)
    return max(1, round(share * places))


def describe_map(folder: Folder[Rows], row: int) -> str:
    """Caption of a map with its main measures."""
    if folder.rows.blank[row]:
        return "constant map"
    parts = []
    for name in ("dice", "insertion", "deletion"):
        value = getattr(folder.rows, name)[row]
        if not np.ma.is_masked(value):
            parts.append(f"{TITLES[name]} {float(value):.2f}")
    return ", ".join(parts)
