"""What a person reads says one word for one idea: no word that has been replaced is left in it.

The patterns match a word where it is the term that was replaced. Where it is plain English too, they say in which company it is
the term: inputs may be held in memory and a rule may look at the background.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from _helpers import Recorder, audited, threshold
from brinell.core.domain import Domain
from brinell.pages import html

RETIRED = {
    r"\bvictims?\b|--target(?!ed)\b": "model",
    r"\bdesk\b": "oracle",
    r"\bgoals?\b": "criterion, or target class",
    r"--filters\b|\bfilters=|\bfilter (on|is|at) a patch": "distortion",  # a median filter is one
    r"\b(a|an|the|every|each|closest|first|last) finds?\b(?! [a-z]+ing)|\bfinds\b(?= (of|are|in|that))": "adversarial example",
    r"\bflips?\b|\bflipped\b": "adversarial example, success",
    r"\bsurvivors?\b|\bleft standing\b|\bstill stands?\b|\bsamples? (that )?held\b|\bheld (there|under)\b": "robust, active",
    r"\b(many|several|each|of|\d+) looks\b|\blooks=|`looks`": "EOT, or probes",
    r"\bvouch": "checks passed, failed, not made",
    r"\badvis(e|es|ed)\b": "recommended",
    r"\bunaware\b|\baware attack|\battack aware\b": "adaptive, static",
    r"\bschool(ing)?\b|\blessons?\b|\bcoach\b": "train",
    r"\bplays? (an? )?episodes?\b|\bepisodes? (is|are|was|were) played\b": "rollout, episode",
    r"\bbeliefs?\b": "posterior",
    r"\b(filter|distortion) bank\b": "distortion cache",
    r"\bescapes?\b": "restart",
    r"\bwork units?\b|\bunit-\d": "shard",
    r"\blead of (a|the) (wrong|true) class\b": "margin",
    r"(?<!`)\bas stored\b": "quantised",  # a study of 2026 calls rows of its table so
    r"\bstored_(pred|within)\b|\bas_stored\b": "quantised_pred, quantised_within, quantised_robust_accuracy",
}

ROOT = Path(__file__).parents[1]
SOURCES = [
    ROOT / "README.md",  # docs/cli.md is what --help prints, docs/records.md the columns of records
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("docs/schema/*.json")),
    *sorted(ROOT.glob("src/brinell/**/*.html")),
]


def said(text: str) -> Iterator[str]:
    for pattern, new in RETIRED.items():
        for match in re.finditer(pattern, text, flags=re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"line {line}: {match.group()!r}, which is now {new}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_word_that_was_replaced(source: Path) -> None:
    assert not list(said(source.read_text(encoding="utf-8")))


def test_no_word_that_was_replaced_in_a_report(tmp_path: Path) -> None:
    x = [[0.1, 0.5], [0.3, 0.5], [0.8, 0.5], [0.9, 0.2]]
    attacks = ("fgsm", "pgd?steps=5", "square?steps=20")
    run = audited(tmp_path / "run", Recorder(threshold(0.35), Domain(kind="vector", shape=(2,))), x, [0, 0, 1, 1], attack=attacks)
    html.write(run.path)
    for file in [run.path / "report.html", *(run.path / "tables").iterdir(), run.path / "manifest.json"]:
        assert not list(said(file.read_text(encoding="utf-8"))), file.name


@pytest.mark.parametrize(
    "text",
    [
        "the desk",
        "a goal",
        "--filters blur",
        "the closest find",
        "3 finds of it",
        "a flip",
        "survivors",
        "20 looks",
        "vouched for",
    ]
    + [
        "advised eps",
        "an aware attack",
        "lessons",
        "its belief",
        "an escape",
        "work units",
        "the lead of a wrong class",
        "as stored",
    ],
)
def test_each_is_noticed(text: str) -> None:
    assert list(said(text))


@pytest.mark.parametrize(
    "text", ["inputs are held in memory", "it looks for one", "plays no part", "how to find them", "--targeted 3"]
)
def test_plain_english_is_not(text: str) -> None:
    assert not list(said(text))
