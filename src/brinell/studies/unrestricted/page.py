"""The page of an unrestricted attack, and the tables behind it: records in, one HTML file that opens anywhere out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.results import Share
from brinell.core.record import Array
from brinell.pages.gallery import picture
from brinell.pages.html import fill
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.unrestricted.analysis import Tally, UnrestrictedResult, VariantResult, summarise
from brinell.studies.unrestricted.records import Outcome, UnrestrictedRun

ROW = 8
"""Examples of a class on its contact sheet at most."""
SHEETS = 80
"""Contact sheets on the page at most: where classes, models and variants make more, the first classes of each."""
FAILURES = (
    "clear",
    "plain_accuracy",
    "searched_accuracy",
    "generalisation",
    "adversarial",
    "contested",
    "success",
    "success_by_auxiliary",
)
CONDITIONS = ("nearer_to_own", "label_constant", "no_interpolation", "both")


def write(run: Path) -> Path:
    """Write `tables/*.csv` and `report.html` into the folder; the path of the page.

    Raises:
        RequestError: no unrestricted attack there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    opened = UnrestrictedRun.open(run)
    manifest, rows = opened.manifest, opened.rows()
    result = summarise(manifest, rows, str(run))
    for name, text in tables(result).items():
        write_text(run / "tables" / name, text)
    per_result = max(1, SHEETS // max(1, len(result.results)))
    sheets = [_sheets(opened, rows, one) for one in result.results]
    page = fill(
        __package__,
        "page.html",
        {},
        title=f"Examples from scratch against {', '.join(dict.fromkeys(one.model for one in result.results))}",
        result=result,
        manifest=manifest,
        sheets=[(one, held[:per_result], len(held)) for one, held in zip(result.results, sheets, strict=True)],
        most=ROW,
    )
    write_text(run / "report.html", page)
    return run / "report.html"


def _sheets(run: UnrestrictedRun, rows: list[dict[str, Any]], one: VariantResult) -> list[dict[str, Any]]:
    """For each class in which a search ended with an error of the model: adversarial examples first, then contested ones."""
    own = [row for row in rows if (row["model"], row["variant"]) == (one.model, one.variant)]
    sheets, classes = [], run.manifest["data"]["classes"]
    for number, name in enumerate(classes):
        ended = [row for row in own if row["intended"] == number and row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)]
        ended.sort(key=lambda row: row["outcome"] == Outcome.CONTESTED)
        if ended:
            titles = [_titles(row, one, classes) for row in ended[:ROW]]
            arrays = run.arrays([array for named in titles for array in named])
            examples = [_example(row, named, arrays, run.manifest) for row, named in zip(ended, titles, strict=False)]
            sheets.append({"class_name": name, "total": len(ended), "examples": examples})
    return sheets


def _titles(row: dict[str, Any], one: VariantResult, classes: list[str]) -> dict[str, str]:
    """The arrays of an example by name, each with what it shows: plain sample, found input, neighbours of both kinds."""
    intended, pred = classes[row["intended"]], classes[row["pred"]]
    return {
        f"{row['attempt']}/plain": f"attempt {row['attempt']}, plain sample of {intended}",
        f"{row['attempt']}/{one.model}/{one.variant}": f"attempt {row['attempt']}, intended {intended}, taken for {pred}",
        f"reference/{row['l2_same_at']}": f"nearest training sample of {intended}",
        f"reference/{row['l2_other_at']}": f"nearest training sample of another class than {intended}",
    }


def _example(row: dict[str, Any], titles: dict[str, str], arrays: dict[str, Array], manifest: dict[str, Any]) -> dict[str, Any]:
    domain, classes = manifest["data"]["domain"], manifest["data"]["classes"]
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    views = [picture(arrays[name], domain["kind"], low, high, title=title) for name, title in titles.items()]
    against = [classes[seen] for seen in row["judges"] if seen != row["intended"]]
    return dict(zip(("plain", "found", "own", "other"), views, strict=True)) | {
        "pred": classes[row["pred"]],
        "confidence": row["confidence"],
        "own_at": row["l2_same"],
        "other_at": row["l2_other"],
        "contested": ", ".join(dict.fromkeys(against)) if row["outcome"] == Outcome.CONTESTED else "",
    }


def tables(result: UnrestrictedResult) -> dict[str, str]:
    """The page's tables as CSV, by file name."""
    failures, witnesses, distances = [], [], []
    for one in result.results:
        head = [one.model, one.variant]
        failures += [[*head, "all", *_counts(one.total)]] + [[*head, each.class_name, *_counts(each)] for each in one.classes]
        for witness in one.witnesses:
            witnesses.append([*head, witness.name, *_share(witness.plain), *_share(witness.found)])
        for what, conditions in (("plain", one.plain), ("found", one.found)):
            for held in conditions:
                medians = [held.same, held.other, held.training_same, held.training_other]
                shares = [value for name in CONDITIONS for value in _share(getattr(held, name))]
                distances.append([*head, what, held.norm, held.n, *medians, *shares])
    return {
        "failures.csv": csv_text(["model", "variant", "class", "attempts", *_heads(FAILURES)], failures),
        "witnesses.csv": csv_text(["model", "variant", "witness", *_heads(("plain", "found"))], witnesses),
        "distances.csv": csv_text(
            ["model", "variant", "inputs", "norm", "n", "same", "other", "training_same", "training_other", *_heads(CONDITIONS)],
            distances,
        ),
    }


def _heads(names: Sequence[str]) -> list[str]:
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high", "_k", "_n")]


def _share(share: Share) -> list[object]:
    return [share.value, share.low, share.high, share.k, share.n]


def _counts(tally: Tally) -> list[object]:
    return [tally.attempts, *(value for name in FAILURES for value in _share(getattr(tally, name)))]
