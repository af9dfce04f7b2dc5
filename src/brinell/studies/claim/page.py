"""The page of a claim, and the files that accompany it: one JSON, a model card and a badge."""

import json
from pathlib import Path

from markupsafe import Markup

from brinell.analysis.results import Rate
from brinell.pages.figures import Series, curve
from brinell.pages.format import norm
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.store.folder import PAGE
from brinell.studies.claim.analysis import VERIFIED, ClaimResult, summarise
from brinell.studies.claim.badge import badge
from brinell.studies.claim.ranking import EFFECTS, sentence
from brinell.studies.claim.records import BADGE, CARD, JSON, TABLE

TASKS = {"image": "image-classification", "video": "video-classification", "signal": "other", "vector": "tabular-classification"}
"""Names of tasks on the Hugging Face hub, by the kind of the inputs."""


def write(path: Path | str) -> Path:
    """Write the page of a claim and its other files, from its records."""
    folder = TABLE.read(path)
    result = summarise(folder)
    place = "" if result.rank is None else sentence(result.rank, result.robust)
    content = result.payload()
    del content["folder"]  # the file says the same wherever it lies
    texts = {
        JSON: json.dumps(content, indent=1, ensure_ascii=False) + "\n",
        BADGE: badge(result),
        CARD: fill(
            __package__,
            "card.md",
            {"quoted": quoted},
            result=result,
            place=place,
            task=TASKS[folder.manifest["data"]["domain"]["kind"]],
        ),
        PAGE: fill(
            __package__,
            "page.html",
            {},
            result=result,
            curve=draw(result),
            place=place,
            warnings=warnings(result),
            verified=VERIFIED[result.verified],
            effects=EFFECTS,
        ),
    }
    for name, text in texts.items():
        write_text(folder.path / name, text)
    return folder.path / PAGE


def quoted(text: str) -> Markup:
    """A text as a string of JSON, which YAML reads too."""
    return Markup(json.dumps(text, ensure_ascii=True).replace("<", "\\u003c"))


def draw(result: ClaimResult) -> Markup:
    """Robust accuracy over the budgets: attacked, and proven if there are proofs."""
    lines = [Series(name="attacked", rates=[result.clean, *(level.robust for level in result.levels)], style=0)]
    proven: list[Rate] = [level.certified for level in result.levels if level.certified is not None]
    if proven:
        lines.append(Series(name="proven", rates=proven, style=1))
    ticks = [(0.0, "0"), *((level.eps, level.text) for level in result.levels)]
    return curve(lines, ticks, title=f"robust accuracy of {result.model} over eps", distance=norm(result.distance))


def warnings(result: ClaimResult) -> list[tuple[str, str]]:
    """The notes that a reader needs before the figures, each with its level."""
    alerts = []
    if result.checks.failed:
        alerts.append(("warn", f"Checks of the attacks: {result.checks.verdict}. The robust accuracy may be lower."))
    elif result.checks.not_made and result.checks.verdict == "no checks were made":
        alerts.append(("warn", "No checks were made: whether the attacks fail for another reason than robustness is not known."))
    if result.verified != "proved":
        alerts.append(("note", VERIFIED[result.verified]))
    return alerts
