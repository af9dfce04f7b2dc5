"""The HTML page of an unrestricted attack and its CSV tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.results import Share
from brinell.core.record import Array
from brinell.pages.html import fill, save_page
from brinell.pages.tables import csv_text
from brinell.reports.pictures import picture
from brinell.studies.unrestricted import words
from brinell.studies.unrestricted.analysis import Tally, UnrestrictedResult, VariantResult, summarise
from brinell.studies.unrestricted.records import Outcome, UnrestrictedRun

ROW = 8
"""Most examples on the contact sheet of a class."""
NAMED = 3
"""Most models that the title names."""
EXAMPLES = 3
"""Examples that the page shows before anything is unfolded."""
NONE_CLEAR = "No plain sample is clear: no other classifier sees its intended class, so nothing can be said about the models."
"""What the page says without a clear attempt."""
SHEETS = 80
"""Most contact sheets on the page. With more, the page shows the first classes of each model and variant."""
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


def write(path: Path) -> Path:
    """Write `tables/*.csv` and `report.html` into the folder. Returns the path of the page.

    Raises:
        RequestError: the folder holds no unrestricted attack, or one of its files is damaged.
        StoppedError: the folder cannot be written.
    """
    run = UnrestrictedRun.open(path)
    manifest, rows = run.manifest, run.rows()
    result = summarise(manifest, rows, str(path))
    per_result = max(1, SHEETS // max(1, len(result.results)))
    sheets = [_sheets(run, rows, variant) for variant in result.results]
    page = fill(
        __package__,
        "page.html",
        {"variant_name": words.variant_name},
        title=f"Examples from scratch against {_subject(result)}",
        result=result,
        sentences=[f"{name}: {text}" for name, text in words.reading(result)] or [NONE_CLEAR],
        warnings=[("warn" if number else "note", text) for number, text in enumerate(result.warnings)],
        shown=[
            example | {"intended": sheet["class_name"], "variant": words.variant_name(variant)}
            for variant, class_sheets in zip(result.results, sheets, strict=True)
            for sheet in class_sheets
            for example in sheet["examples"]
        ][:EXAMPLES],
        manifest=manifest,
        sheets=[
            (variant, class_sheets[:per_result], len(class_sheets))
            for variant, class_sheets in zip(result.results, sheets, strict=True)
        ],
        most=ROW,
    )
    return save_page(path, page, tables(result))


def _subject(result: UnrestrictedResult) -> str:
    """The models by name, or their number if there are many."""
    names = list(dict.fromkeys(variant.model for variant in result.results))
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} models"


def _sheets(run: UnrestrictedRun, rows: list[dict[str, Any]], variant: VariantResult) -> list[dict[str, Any]]:
    """Contact sheets of the classes with errors of the model: adversarial examples first, then contested ones."""
    variant_rows = [row for row in rows if (row["model"], row["variant"]) == (variant.model, variant.variant)]
    sheets, classes = [], run.manifest["data"]["classes"]
    for number, name in enumerate(classes):
        errors = [
            row for row in variant_rows if row["intended"] == number and row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)
        ]
        errors.sort(key=lambda row: row["outcome"] == Outcome.CONTESTED)
        if errors:
            titles = [_titles(row, variant, classes) for row in errors[:ROW]]
            arrays = run.arrays([array for names in titles for array in names])
            examples = [_example(row, names, arrays, run.manifest) for row, names in zip(errors, titles, strict=False)]
            sheets.append({"class_name": name, "total": len(errors), "examples": examples})
    return sheets


def _titles(row: dict[str, Any], variant: VariantResult, classes: list[str]) -> dict[str, str]:
    """Names of the arrays of an example, each with its title: plain sample, final input, and the nearest training samples."""
    intended, pred = classes[row["intended"]], classes[row["pred"]]
    return {
        f"{row['attempt']}/plain": f"attempt {row['attempt']}, plain sample of {intended}",
        f"{row['attempt']}/{variant.model}/{variant.variant}": f"attempt {row['attempt']}, intended {intended}, taken for {pred}",
        f"reference/{row['l2_same_at']}": f"nearest training sample of {intended}",
        f"reference/{row['l2_other_at']}": f"nearest training sample of another class than {intended}",
    }


def _example(row: dict[str, Any], titles: dict[str, str], arrays: dict[str, Array], manifest: dict[str, Any]) -> dict[str, Any]:
    domain, classes = manifest["data"]["domain"], manifest["data"]["classes"]
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    views = [picture(arrays[name], domain["kind"], low, high, title=title) for name, title in titles.items()]
    dissenting = [classes[answer] for answer in row["judges"] if answer != row["intended"]]
    return dict(zip(("plain", "found", "own", "other"), views, strict=True)) | {
        "pred": classes[row["pred"]],
        "confidence": row["confidence"],
        "own_at": row["l2_same"],
        "other_at": row["l2_other"],
        "contested": ", ".join(dict.fromkeys(dissenting)) if row["outcome"] == Outcome.CONTESTED else "",
    }


def tables(result: UnrestrictedResult) -> dict[str, str]:
    """The page's tables as CSV, by file name."""
    failures, witnesses, distances = [], [], []
    for variant in result.results:
        head = [variant.model, variant.variant]
        failures += [[*head, "all", *_counts(variant.total)]] + [
            [*head, tally.class_name, *_counts(tally)] for tally in variant.classes
        ]
        for witness in variant.witnesses:
            witnesses.append([*head, witness.name, *_share(witness.plain), *_share(witness.found)])
        for inputs, conditions in (("plain", variant.plain), ("found", variant.found)):
            for condition in conditions:
                medians = [condition.same, condition.other, condition.training_same, condition.training_other]
                shares = [value for name in CONDITIONS for value in _share(getattr(condition, name))]
                distances.append([*head, inputs, condition.norm, condition.n, *medians, *shares])
    return {
        "failures.csv": csv_text(["model", "variant", "class", "attempts", *_heads(FAILURES)], failures),
        "witnesses.csv": csv_text(["model", "variant", "witness", *_heads(("plain", "found"))], witnesses),
        "distances.csv": csv_text(
            ["model", "variant", "inputs", "norm", "n", "same", "other", "training_same", "training_other", *_heads(CONDITIONS)],
            distances,
        ),
    }


def _heads(names: Sequence[str]) -> list[str]:
    """Column heads of shares."""
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high", "_k", "_n")]


def _share(share: Share) -> list[object]:
    return [share.value, share.low, share.high, share.k, share.n]


def _counts(tally: Tally) -> list[object]:
    """Attempts and shares of the outcomes."""
    return [tally.attempts, *(value for name in FAILURES for value in _share(getattr(tally, name)))]
