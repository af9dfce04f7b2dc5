"""The page of `brinell epsilon`: which eps, why, and what speaks for it."""

from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.record import Array
from brinell.report import format as words
from brinell.report.gallery import picture
from brinell.report.html import fill
from brinell.store.files import write_text
from brinell.studies.epsilon.analysis import EpsilonResult, Heat, NormRecommendation, summarise
from brinell.studies.epsilon.conditions import INTERPOLATION, LABEL, PERCEPTION
from brinell.studies.epsilon.records import load_folder

REASONS = {LABEL: "label constancy", INTERPOLATION: "no interpolation", PERCEPTION: "perceptibility", "": "nothing"}
SHOWN = 20
"""Up to this many classes have a heat map and rows of their own."""


def write(folder: Path) -> Path:
    """Write report.html into a folder of `brinell epsilon`.

    Raises:
        RequestError: no such folder, or a damaged one.
        StoppedError: it cannot be written.
    """
    write_text(folder / "report.html", render(folder))
    return folder / "report.html"


def render(folder: Path) -> str:
    """The page as one self-contained HTML document."""
    result = summarise(folder)
    facts, arrays = load_folder(folder)
    return fill(
        __package__,
        "page.html",
        {"share": share, "alarming": alarming, "eps": eps_text, "quartiles": quartiles},
        result=result,
        facts=facts,
        names=result.classes,
        few=len(result.norms[0].per_class) <= SHOWN,
        shown=[c.class_ for c in result.norms[0].per_class][:SHOWN],
        heats=[(one, levels(one)) for one in sorted(result.heat, key=lambda heat: heat.norm != "l2")],
        marked={(s.norm, s.class_, s.nearer_to) for s in result.surprises},
        told=surprises_in_words(result),
        sheets=sheets(facts, arrays["crafted"]),
        reasons=REASONS,
        best=result.norms[0],
        decision=decision(result),
    )


def levels(heat: Heat) -> list[list[str]]:
    """CSS class of each cell: the nearer, the darker, on the scale of the map."""
    table = np.array([[np.nan if v is None else v for v in row] for row in heat.means])
    known = table[np.isfinite(table)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    shade = 10 * (high - table) / ((high - low) or 1.0)
    return [["none" if not np.isfinite(v) else f"h{round(v)}" for v in row] for row in shade.tolist()]


def surprises_in_words(result: EpsilonResult) -> list[str]:
    """For each norm, the classes that are nearer to others than to themselves."""
    told = []
    for heat in result.heat:
        mine = [s for s in result.surprises if s.norm == heat.norm]
        if mine:
            listed = "; ".join(
                f"{result.classes[s.class_]} to {result.classes[s.nearer_to]} ({s.between:.3g} against {s.within:.3g})"
                for s in mine[:6]
            )
            more = f"; and {len(mine) - 6} more" if len(mine) > 6 else ""
            told.append(f"{words.norm(heat.norm)}: {listed}{more}.")
    return told


def decision(result: EpsilonResult) -> list[str]:
    """What to do, in sentences: the budget, the one where changes may be seen, and the command."""
    sentences = []
    for one in result.norms[:2]:
        sentences.append(one.why)
        if one.why_seen:
            sentences.append(f"Where changes may be seen, {one.why_seen}")
    return sentences


def sheets(facts: dict[str, Any], crafted: dict[str, Array]) -> list[dict[str, Any]]:
    """The contact sheets: a row for each class, a column for each budget."""
    domain, told = facts["data"]["domain"], facts["crafted"]["pictures"]
    names = facts["data"]["classes"]
    low, high = float(np.min(domain["low"])), float(np.max(domain["high"]))
    clean = dict(zip(crafted["ids"].tolist(), crafted["clean"], strict=True))

    def name(label: int) -> str:
        return str(names[label]) if label < len(names) else str(label)

    def show(array: Array, title: str) -> Any:
        return picture(array, domain["kind"], low, high, title=title)

    found = []
    for kind in ("between", "within"):
        rows: dict[int, dict[str, Any]] = {}
        for one, array in zip(told, crafted["pictures"], strict=True):
            if one["kind"] != kind:
                continue
            row = rows.setdefault(
                one["label"],
                {
                    "name": name(one["label"]),
                    "first": show(clean[one["sample"]], f"sample {one['sample']}, {name(one['label'])}"),
                    "second": show(clean[one["other"]], f"sample {one['other']}, {name(one['other_label'])}"),
                    "other": name(one["other_label"]),
                    "says": name(one["clean_pred"]) if "clean_pred" in one else None,
                    "gap": one.get("gap"),
                    "cells": [],
                },
            )
            row["cells"].append(
                {
                    "eps": one["eps"],
                    "r": one.get("r"),
                    "picture": show(array, f"{name(one['label'])} at eps {one['eps']:.3g}"),
                    "says": name(one["pred"]) if "pred" in one else None,
                    "fooled": "pred" in one and one["pred"] != one["label"],
                }
            )
        if rows:
            eps = sorted({cell["eps"] for row in rows.values() for cell in row["cells"]})
            found.append({"kind": kind, "rows": list(rows.values()), "eps": eps})
    return found


def share(value: float | None) -> str:
    """A share in percent with as many digits as it needs; a dash for none."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{100 * value:.1f}" if value >= 0.0005 else "< 0.1"


def alarming(value: float | None, allow: float) -> str:
    """CSS class of a share: whether it is more than what is allowed."""
    return "" if value is None else "over" if value > allow + 1e-9 else "fine"


def eps_text(value: float | None) -> str:
    """A budget; what is limited by nothing is said so."""
    return "no limit" if value is None else f"{value:.3g}"


def quartiles(one: NormRecommendation) -> str:
    """The samples' own budgets in a sentence."""
    least, first, middle, third, most = (eps_text(value) for value in one.per_sample)
    return f"from {least} to {most}; half of them between {first} and {third}, median {middle}"
