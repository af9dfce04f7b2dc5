"""The page of `brinell epsilon`: which eps, why, and what speaks for it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from brinell.core.record import Array
from brinell.pages import format as words
from brinell.pages.figures import Frame, fitting, key, mark, percent_axis, style_of, svg
from brinell.pages.gallery import picture
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.studies.epsilon.analysis import EpsilonResult, Heat, NormRecommendation, summarise
from brinell.studies.epsilon.conditions import INTERPOLATION, LABEL, PERCEPTION
from brinell.studies.epsilon.records import limits_of, load_folder

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
        {"share": share, "alarming": alarming, "eps": eps_text, "quartiles": quartiles, "span_of": span},
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
        charts=[(one, chart(limits_of(facts, arrays["samples"], one.norm), one)) for one in result.norms],
        budget=budget(result.norms[0]),
        stored=examples(facts, arrays["crafted"]),
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


CHART = Frame(width=480, height=262, left=46, bottom=46)
CURVES = {LABEL: (0, "label may change"), INTERPOLATION: (1, "meets its class"), PERCEPTION: (2, "noticed")}
"""Series and name of each condition."""
POINTS = 120


def chart(found: dict[str, Array], one: NormRecommendation) -> Markup:
    """The share of the samples on which each condition breaks, over eps on a logarithmic axis, with its legend.

    Usual budgets are lines with a mark on each curve; what is shaded is the range that is recommended.
    """
    usual = [(f.eps, f.text) for f in one.usual if "(" not in f.text]
    known = np.concatenate([limit[np.isfinite(limit) & (limit > 0)] for limit in found.values()] or [np.zeros(0)])
    ends = [*np.quantile(known, [0.005, 0.995]).tolist(), *[eps for eps, _ in usual]] if len(known) else [e for e, _ in usual]
    if not ends:
        return Markup("")
    low, high = math.log(min(ends) / 1.4), math.log(max(ends) * 1.2)
    frame, parts = CHART, [percent_axis(CHART)]

    def x(eps: float) -> float:
        return frame.x(min(max((math.log(eps) - low) / (high - low), 0.0), 1.0))

    if one.sound:
        left = x(one.unnoticed) if one.unnoticed and one.unnoticed < one.sound else frame.x(0)
        size = f'width="{max(x(one.sound) - left, 1):.1f}" height="{frame.y(0) - frame.y(1):.1f}"'
        parts.append(f'<rect class="range" x="{left:.1f}" y="{frame.y(1):.1f}" {size}/>')
    ticks = usual or [
        (10.0**n, f"{10.0**n:g}") for n in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1)
    ]
    for eps, _ in ticks:
        parts.append(f'<line class="grid" x1="{x(eps):.1f}" x2="{x(eps):.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(1):.1f}"/>')
    for at, text in fitting([(x(eps), text) for eps, text in reversed(ticks)], 7.0):
        parts.append(f'<text class="mid" x="{at:.1f}" y="{frame.y(0) + 17:.1f}">{escape(text)}</text>')
    grid, marks, keys = np.exp(np.linspace(low, high, POINTS)), [], []
    for name, limit in found.items():
        style, told = CURVES[name]
        ordered = np.sort(limit)
        shares = np.searchsorted(ordered, grid, "left") / len(limit)
        points = " ".join(f"{x(float(e)):.1f},{frame.y(float(v)):.1f}" for e, v in zip(grid, shares, strict=True))
        parts.append(f'<polyline class="line {style_of(style)}" points="{points}"/>')
        keys.append(f"<li>{key(style)}{told}</li>")
        for eps, text in usual:
            value = float((limit < eps).mean())
            marks.append(mark(style, x(eps), frame.y(value), 4.4 - 0.6 * style, f"{text}: {told} on {words.percent(value)}"))
    parts.append(f'<line class="axis" x1="{frame.left}" x2="{frame.x(1):.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(0):.1f}"/>')
    label = f"eps ({words.norm(one.norm)}), {'usual budgets marked' if usual else 'logarithmic'}"
    parts.append(f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">{escape(label)}</text>')
    title = f"Share of the samples on which each condition breaks, over eps in {words.norm(one.norm)}"
    shaded = '<li><span class="key range"></span>recommended</li>' if one.sound else ""
    return Markup(f'<ul class="legend">{"".join(keys)}{shaded}</ul>') + svg(frame, title, [*parts, *marks], "large")


def span(one: NormRecommendation) -> str:
    """The recommended range in a few characters."""
    if one.sound is None:
        return "no limit"
    if one.sound == 0:
        return "none"
    between = one.unnoticed is not None and 0 < one.unnoticed < one.sound
    return f"{eps_text(one.unnoticed)} to {eps_text(one.sound)}" if between else f"up to {eps_text(one.sound)}"


def budget(one: NormRecommendation) -> str:
    """What an audit over the range is told: up to the largest usual budget that is sound, or to where soundness ends."""
    return one.within[-1] if one.within else eps_text(one.sound) if one.sound else ""


def examples(facts: dict[str, Any], crafted: dict[str, Array]) -> list[dict[str, Any]]:
    """Stored adversarial examples beside their clean pictures, from the smallest to the largest."""
    domain, names = facts["data"]["domain"], facts["data"]["classes"]
    low, high = float(np.min(domain["low"])), float(np.max(domain["high"]))
    found = []
    for i, told in enumerate(facts.get("stored", [])):
        label = str(names[told["label"]]) if told["label"] < len(names) else str(told["label"])
        pair = [
            picture(crafted[name][i], domain["kind"], low, high, title=f"sample {told['sample']}, {label}, {what}")
            for name, what in (("stored_clean", "clean"), ("stored", f"adversarial, size {told['size']:.3g}"))
        ]
        found.append(told | {"label": label, "clean": pair[0], "changed": pair[1]})
    return found


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
