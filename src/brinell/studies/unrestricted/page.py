"""The page of an unrestricted attack, and the tables behind it: records in, one HTML file that opens anywhere out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.report.gallery import picture
from brinell.report.html import fill
from brinell.report.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.unrestricted.analysis import Share, Tally, UnrestrictedResult, VariantResult, summarise
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


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One example of a contact sheet."""

    attempt: int
    plain: Markup
    plain_pred: str
    found: Markup
    pred: str
    confidence: float
    own: Markup
    """Nearest training sample of the intended class."""
    own_at: float
    """L2 distance to it."""
    other: Markup
    """Nearest training sample of another class."""
    other_at: float
    contested: str
    """What the judges say where they do not see the intended class; nothing where they do."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The examples of a class."""

    class_name: str
    total: int
    """How many there are."""
    examples: list[Shown]


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
    write_text(run / "report.html", fill(__package__, "page.html", {}, **_context(opened, manifest, rows, result)))
    return run / "report.html"


def _context(
    run: UnrestrictedRun, manifest: dict[str, Any], rows: list[dict[str, Any]], result: UnrestrictedResult
) -> dict[str, Any]:
    per_result = max(1, SHEETS // max(1, len(result.results)))
    sheets = [sheets_of(run, manifest, rows, one) for one in result.results]
    return {
        "title": f"Examples from scratch against {', '.join(dict.fromkeys(one.model for one in result.results))}",
        "result": result,
        "manifest": manifest,
        "sheets": [(one, held[:per_result], len(held)) for one, held in zip(result.results, sheets, strict=True)],
        "most": ROW,
    }


def sheets_of(run: UnrestrictedRun, manifest: dict[str, Any], rows: list[dict[str, Any]], one: VariantResult) -> list[Sheet]:
    """A contact sheet for each class in which a search ended with an error of the model: adversarial examples first, then contested ones."""
    classes = list(manifest["data"]["classes"])
    own = [row for row in rows if (row["model"], row["variant"]) == (one.model, one.variant)]
    sheets = []
    for number, name in enumerate(classes):
        ended = [row for row in own if row["intended"] == number and row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)]
        ended.sort(key=lambda row: row["outcome"] == Outcome.CONTESTED)
        if ended:
            sheets.append(Sheet(class_name=name, total=len(ended), examples=_examples(run, manifest, ended[:ROW], one)))
    return sheets


def _examples(run: UnrestrictedRun, manifest: dict[str, Any], rows: list[dict[str, Any]], one: VariantResult) -> list[Shown]:
    names = [_names(row, one) for row in rows]
    arrays = run.arrays([name for group in names for name in group])
    domain, classes = manifest["data"]["domain"], list(manifest["data"]["classes"])
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    shown = []
    for row, (plain, found, own, other) in zip(rows, names, strict=True):
        intended, pred = classes[row["intended"]], classes[row["pred"]]

        def view(name: str, title: str) -> Markup:
            return picture(arrays[name], domain["kind"], low, high, title=title)

        against = [classes[seen] for seen in row["judges"] if seen != row["intended"]]
        shown.append(
            Shown(
                attempt=row["attempt"],
                plain=view(plain, f"attempt {row['attempt']}, plain sample of {intended}"),
                plain_pred=classes[row["plain_pred"]],
                found=view(found, f"attempt {row['attempt']}, intended {intended}, taken for {pred}"),
                pred=pred,
                confidence=row["confidence"],
                own=view(own, f"nearest training sample of {intended}"),
                own_at=row["l2_same"],
                other=view(other, f"nearest training sample of another class than {intended}"),
                other_at=row["l2_other"],
                contested=", ".join(dict.fromkeys(against)) if row["outcome"] == Outcome.CONTESTED else "",
            )
        )
    return shown


def _names(row: dict[str, Any], one: VariantResult) -> tuple[str, str, str, str]:
    attempt = row["attempt"]
    return (
        f"{attempt}/plain",
        f"{attempt}/{one.model}/{one.variant}",
        f"reference/{row['l2_same_at']}",
        f"reference/{row['l2_other_at']}",
    )


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
