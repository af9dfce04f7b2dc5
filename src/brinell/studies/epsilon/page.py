"""Page of `brinell epsilon`: recommended eps, reasons and evidence."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.core.record import Array
from brinell.pages import format as words
from brinell.pages.figures import Frame, axis_label, baseline, fitting, key, mark, percent_axis, style_of, svg, tick
from brinell.pages.html import fill, save_page
from brinell.reports.pictures import picture
from brinell.studies.epsilon.analysis import EpsilonResult, Heat, NormRecommendation, format_eps, summarise
from brinell.studies.epsilon.conditions import INTERPOLATION, LABEL, PERCEPTION
from brinell.studies.epsilon.records import load_folder, sample_limits

REASONS = {LABEL: "label constancy", INTERPOLATION: "no interpolation", PERCEPTION: "perceptibility", "": "nothing"}
GRAVE = {
    "conflict": "stop",
    "leak": "warn",
    "constant": "warn",
    "single": "warn",
    "one-class": "warn",
    "duplicates": "note",
    "fixed": "note",
    "no-perception": "note",
}
"""Levels of the notes on the data that stand below the result."""
MOST_CLASSES = 20
"""Largest number of classes in tables and heat maps."""


def write(folder: Path) -> Path:
    """Write report.html into a folder of `brinell epsilon`.

    Raises:
        RequestError: the folder does not exist or is damaged.
        StoppedError: the page cannot be written.
    """
    return save_page(folder, render(folder))


def render(folder: Path) -> str:
    """Render the page as one self-contained HTML document."""
    result = summarise(folder)
    facts, arrays = load_folder(folder)
    return fill(
        __package__,
        "page.html",
        {
            "share": format_share,
            "alarming": alarm_class,
            "eps": format_eps,
            "quartiles": describe_budgets,
            "span_of": format_range,
        },
        result=result,
        facts=facts,
        names=result.classes,
        sentences=describe_range(result),
        warnings=[(GRAVE[note.code], note.text) for note in result.notes if note.code in GRAVE],
        remarks=[note.text for note in result.notes if note.code not in GRAVE],
        few=len(result.norms[0].per_class) <= MOST_CLASSES,
        shown=[c.class_ for c in result.norms[0].per_class][:MOST_CLASSES],
        heats=[(heat, shade_classes(heat)) for heat in sorted(result.heat, key=lambda heat: heat.norm != "l2")],
        marked={(s.norm, s.class_, s.nearer_to) for s in result.surprises},
        surprises=describe_surprises(result),
        sheets=render_sheets(facts, arrays["crafted"]),
        reasons=REASONS,
        best=result.norms[0],
        charts=[
            (recommendation, draw_chart(sample_limits(facts, arrays["samples"], recommendation.norm), recommendation))
            for recommendation in result.norms
        ],
        budget=audit_budget(result.norms[0]),
        stored=render_examples(facts, arrays["crafted"]),
    )


def shade_classes(heat: Heat) -> list[list[str]]:
    """CSS class of each cell of a heat map: darker for smaller distances."""
    table = np.array([[np.nan if v is None else v for v in row] for row in heat.means])
    finite = table[np.isfinite(table)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    shade = 10 * (high - table) / ((high - low) or 1.0)
    return [["none" if not np.isfinite(v) else f"h{round(v)}" for v in row] for row in shade.tolist()]


def describe_surprises(result: EpsilonResult) -> list[str]:
    """Describe by norm the classes that are nearer to other classes than to themselves."""
    lines = []
    for heat in result.heat:
        surprises = [s for s in result.surprises if s.norm == heat.norm]
        if surprises:
            pairs = "; ".join(
                f"{result.classes[s.class_]} to {result.classes[s.nearer_to]} ({s.mean_between:.3g} against {s.mean_within:.3g})"
                for s in surprises[:6]
            )
            remainder = f"; and {len(surprises) - 6} more" if len(surprises) > 6 else ""
            lines.append(f"{words.norm(heat.norm)}: {pairs}{remainder}.")
    return lines


CHART = Frame(width=480, height=262, left_edge=60, bottom=46)
CURVES = {LABEL: (0, "label may change"), INTERPOLATION: (1, "meets its class"), PERCEPTION: (2, "noticed")}
"""Series and name of each condition."""
POINTS = 120


def draw_chart(limits: dict[str, Array], recommendation: NormRecommendation) -> Markup:
    """Draw the share of the samples on which each condition breaks, over eps on a logarithmic axis, with a legend.

    Usual budgets are lines with a mark on each curve. The shaded range is the recommended range.
    """
    usual = [(f.eps, f.text) for f in recommendation.usual if "(" not in f.text]
    finite = np.concatenate([limit[np.isfinite(limit) & (limit > 0)] for limit in limits.values()] or [np.zeros(0)])
    ends = [*np.quantile(finite, [0.005, 0.995]).tolist(), *[eps for eps, _ in usual]] if len(finite) else [e for e, _ in usual]
    if not ends:
        return Markup("")
    low, high = math.log(min(ends) / 1.4), math.log(max(ends) * 1.2)
    frame, parts = CHART, [percent_axis(CHART)]

    def x(eps: float) -> float:
        """Horizontal position of a budget."""
        return frame.x(min(max((math.log(eps) - low) / (high - low), 0.0), 1.0))

    unnoticed, sound = recommendation.unnoticed, recommendation.sound
    if sound:
        start = x(unnoticed) if unnoticed and unnoticed < sound else frame.x(0)
        size = f'width="{max(x(sound) - start, 1):.1f}" height="{frame.y(0) - frame.y(1):.1f}"'
        parts.append(f'<rect class="range" x="{start:.1f}" y="{frame.y(1):.1f}" {size}/>')
    ticks = usual or [
        (10.0**n, f"{10.0**n:g}") for n in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1)
    ]
    for eps, _ in ticks:
        parts.append(f'<line class="grid" x1="{x(eps):.1f}" x2="{x(eps):.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(1):.1f}"/>')
    parts += [tick(frame, *place) for place in fitting(frame, [(x(eps), text) for eps, text in reversed(ticks)])]
    grid, marks, keys = np.exp(np.linspace(low, high, POINTS)), [], []
    for name, limit in limits.items():
        style, caption = CURVES[name]
        ordered = np.sort(limit)
        shares = np.searchsorted(ordered, grid, "left") / len(limit)
        points = " ".join(f"{x(float(e)):.1f},{frame.y(float(v)):.1f}" for e, v in zip(grid, shares, strict=True))
        parts.append(f'<polyline class="line {style_of(style)}" points="{points}"/>')
        keys.append(f"<li>{key(style)}{caption}</li>")
        for eps, text in usual:
            value = float((limit < eps).mean())
            marks.append(mark(style, x(eps), frame.y(value), 4.4 - 0.6 * style, f"{text}: {caption} on {words.percent(value)}"))
    parts.append(baseline(frame))
    label = f"eps ({words.norm(recommendation.norm)}), {'usual budgets marked' if usual else 'logarithmic'}"
    parts.append(axis_label(frame, label))
    title = f"Share of the samples on which each condition breaks, over eps in {words.norm(recommendation.norm)}"
    shaded = '<li><span class="key range"></span>sound by distance</li>' if sound else ""
    return Markup(f'<ul class="legend">{"".join(keys)}{shaded}</ul>') + svg(frame, title, [*parts, *marks], "large")


def describe_range(result: EpsilonResult) -> list[str]:
    """Describe the recommended range of the first norm, and what a distance cannot tell."""
    best = result.norms[0]
    name, sound, unnoticed = words.norm(best.norm), best.sound, best.unnoticed
    if sound == 0 or (sound is None and not unnoticed):
        return [best.advice]
    limit, outline = best.audit, best.outline
    bound = "without a limit by distance" if limit is None else f"up to {format_eps(limit)}"
    clause = f"; changes up to {format_eps(unnoticed)} go unnoticed" if unnoticed and (not limit or unnoticed < limit) else ""
    sentences = [f"{name}: audit {bound}{clause}."]
    if sound is not None:
        sentences.append(
            f"By distance alone, {format_eps(sound)} is sound: except on at most {percent_text(result.allow)} of the samples, no "
            "change within it leads to another sample of the data."
        )
    if outline is not None:
        sentences.append(
            f"Above {format_eps(outline.eps)} the norms disagree: the outline of another class, added to a sample, is then "
            f"farther than {format_eps(outline.l2)} in L2, the budget that is sound there. The "
            "pictures below show which class one sees."
        )
    return sentences


def percent_text(share: float) -> str:
    """A share in percent without needless digits."""
    return f"{100 * share:.3g} %"


def format_range(recommendation: NormRecommendation) -> str:
    """Format the recommended range."""
    if recommendation.sound is None:
        return "no limit"
    if recommendation.sound == 0:
        return "none"
    unnoticed, limit = recommendation.unnoticed, recommendation.audit
    between = unnoticed is not None and limit is not None and 0 < unnoticed < limit
    return f"{format_eps(unnoticed)} to {format_eps(limit)}" if between else f"up to {format_eps(limit)}"


def audit_budget(recommendation: NormRecommendation) -> str:
    """Largest eps of an audit: the largest usual budget within the recommended range, else its end, or nothing."""
    usual, limit = recommendation.sound_budgets, recommendation.audit
    return usual[-1] if usual else format_eps(limit) if limit else ""


def render_examples(facts: dict[str, Any], crafted: dict[str, Array]) -> list[dict[str, Any]]:
    """Render stored adversarial examples and their clean pictures, by ascending size."""
    domain, names = facts["data"]["domain"], facts["data"]["classes"]
    low, high = float(np.min(domain["low"])), float(np.max(domain["high"]))
    entries = []
    for i, example in enumerate(facts.get("stored", [])):
        label = str(names[example["label"]]) if example["label"] < len(names) else str(example["label"])
        pair = [
            picture(crafted[name][i], domain["kind"], low, high, title=f"sample {example['sample']}, {label}, {description}")
            for name, description in (("stored_clean", "clean"), ("stored", f"adversarial, size {example['size']:.3g}"))
        ]
        entries.append(example | {"label": label, "clean": pair[0], "changed": pair[1]})
    return entries


def render_sheets(facts: dict[str, Any], crafted: dict[str, Array]) -> list[dict[str, Any]]:
    """Render the contact sheets of counter-examples: a row for each class, a column for each budget."""
    domain, records = facts["data"]["domain"], facts["crafted"]["pictures"]
    names = facts["data"]["classes"]
    low, high = float(np.min(domain["low"])), float(np.max(domain["high"]))
    clean = dict(zip(crafted["ids"].tolist(), crafted["clean"], strict=True))

    def name(label: int) -> str:
        """Name of a class."""
        return str(names[label]) if label < len(names) else str(label)

    def show(array: Array, title: str) -> Any:
        """A picture of an input."""
        return picture(array, domain["kind"], low, high, title=title)

    contact_sheets = []
    for kind in ("between", "within"):
        rows: dict[int, dict[str, Any]] = {}
        for record, array in zip(records, crafted["pictures"], strict=True):
            if record["kind"] != kind:
                continue
            row = rows.setdefault(
                record["label"],
                {
                    "name": name(record["label"]),
                    "first": show(clean[record["sample"]], f"sample {record['sample']}, {name(record['label'])}"),
                    "second": show(clean[record["second"]], f"sample {record['second']}, {name(record['second_label'])}"),
                    "second_name": name(record["second_label"]),
                    "prediction": name(record["clean_pred"]) if "clean_pred" in record else None,
                    "gap": record.get("gap"),
                    "cells": [],
                },
            )
            row["cells"].append(
                {
                    "eps": record["eps"],
                    "r": record.get("r"),
                    "picture": show(array, f"{name(record['label'])} at eps {record['eps']:.3g}"),
                    "prediction": name(record["pred"]) if "pred" in record else None,
                    "fooled": "pred" in record and record["pred"] != record["label"],
                }
            )
        if rows:
            eps = sorted({cell["eps"] for row in rows.values() for cell in row["cells"]})
            contact_sheets.append({"kind": kind, "rows": list(rows.values()), "eps": eps})
    return contact_sheets


def format_share(value: float | None) -> str:
    """Format a share in percent; a dash for None."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{100 * value:.1f}" if value >= 0.0005 else "< 0.1"


def alarm_class(value: float | None, allow: float) -> str:
    """CSS class of a share: `over` above the allowed share, else `fine`; empty for None."""
    return "" if value is None else "over" if value > allow + 1e-9 else "fine"


def describe_budgets(recommendation: NormRecommendation) -> str:
    """Describe the distribution of the budgets of single samples."""
    lowest, first, middle, third, highest = (format_eps(value) for value in recommendation.per_sample)
    return f"from {lowest} to {highest}; half of them lie between {first} and {third}, the median is {middle}"
