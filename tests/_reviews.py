"""Reviews whose pairs somebody has judged, as the page of a review saves the answers."""

import json
import tempfile
from pathlib import Path

import brinell
from brinell.studies.review import STUDY
from brinell.studies.review.result import PAIRS


def trials_of(folder):
    """The trials of a review as rows: sample_id, label, eps, changed_left."""
    return STUDY.table().read(folder).rows


def answers_to(folder, differs, named=lambda eps, label: None, reviewer=""):
    """Answers to all pairs, as JSON values: `differs(eps)`, and `named(eps, label)`."""
    trials = trials_of(folder)
    return [
        {
            "trial": number,
            "reviewer": reviewer,
            "differs": bool(differs(eps)),
            "named": named(eps, label),
        }
        for number, (eps, label) in enumerate(
            zip(trials.eps.tolist(), trials.label.tolist(), strict=True)
        )
    ]


def save_answers(file, folder, answers):
    """Write the file of answers that the page of a review would save; returns its path."""
    digest = brinell.open(folder).manifest["files"][PAIRS]
    file.write_text(json.dumps({"review": digest, "answers": answers}))
    return str(file)


def add_answers(folder, answers):
    """Add answers to a review; returns the result with them."""
    with tempfile.TemporaryDirectory() as directory:
        return brinell.open(folder).add(
            Path(save_answers(Path(directory) / "answers.json", folder, answers))
        )


def make_review(folder, differs, named=lambda eps, label: None, data="digits", **settings):
    """A review whose pairs one person has judged."""
    brinell.review(data, out=folder, **settings)
    return add_answers(folder, answers_to(folder, differs, named))
