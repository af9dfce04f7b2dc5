"""Rates of an unrestricted attack from rows that were written by hand."""

import itertools
import json

import numpy as np

from approval import approve, page_text, terminal_of
from brinell.core.intervals import wilson
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.store import parquet, rows
from brinell.store.files import write_arrays
from brinell.store.table import Folder
from brinell.studies.unrestricted import UnrestrictedRequest
from brinell.studies.unrestricted.result import (
    PLAIN,
    AttemptOutcome,
    AttemptRows,
    UnrestrictedFacts,
    example_file,
    example_name,
    sentences,
    summarise,
)

DISTANCES = (1.0, 3.0)
"""Of an input to the nearest training sample of the intended class, and of another."""


def attempt_rows(
    attempt,
    outcome,
    *,
    intended=0,
    judges=(0,),
    plain_judges=None,
    distances=DISTANCES,
    variant="latent",
    **columns,
):
    """The row of a plain sample and that of its search, where there is one, with the same
    distances."""
    values = {
        "attempt": attempt,
        "model": "m",
        "intended": intended,
        "pred": 0,
        "confidence": 0.5,
        "aux": intended,
    }
    values |= {"aux_probability": 0.9, "l2_same_at": 0, "l2_other_at": 0}
    values |= {"l2_same": distances[0], "l2_other": distances[1]}
    searched = outcome in (AttemptOutcome.FOOLED, AttemptOutcome.CONTESTED, AttemptOutcome.SURVIVED)
    values |= {
        "judges": " ".join(map(str, (intended,) if plain_judges is None else plain_judges)),
        "variant": PLAIN,
    }
    values |= {name: 0 for name in ("forwards", "backwards")}
    models = {name: columns.pop(name) for name in ("model",) if name in columns}
    yield values | models | {"outcome": str(AttemptOutcome.CLEAR if searched else outcome)}
    if searched:
        yield (
            values
            | models
            | {"variant": variant, "judges": " ".join(map(str, judges)), "outcome": str(outcome)}
            | columns
        )


def folder_of(
    *attempts,
    path="run",
    models=("m",),
    judges=("j",),
    same_data=True,
    noise=0.0,
    classes=("zero", "one"),
):
    """A folder with these rows."""
    dicts = [row for group in attempts for row in group]
    table = rows.build(
        AttemptRows, len(dicts), **{name: [row[name] for row in dicts] for name in dicts[0]}
    )
    data = {
        "name": "d",
        "classes": list(classes),
        "domain": {"kind": "image", "low": 0.0, "high": 1.0},
    }
    facts = UnrestrictedFacts(judges=list(judges), generator="-", same_data=same_data)
    manifest = {"data": data, "models": [{"name": name} for name in models], "seconds": 8.0}
    return Folder(
        path=path,
        manifest=manifest,
        request=UnrestrictedRequest(noise=noise),
        facts=facts,
        rows=table,
    )


ROWS = [
    attempt_rows(0, AttemptOutcome.UNCLEAR, plain_judges=[1]),
    attempt_rows(1, AttemptOutcome.GENERALISATION, intended=1),
    attempt_rows(2, AttemptOutcome.FOOLED, forwards=5),
    attempt_rows(3, AttemptOutcome.FOOLED, intended=1, judges=(1,), forwards=9),
    attempt_rows(4, AttemptOutcome.CONTESTED, judges=(1,), distances=(5.0, 3.0), forwards=7),
    attempt_rows(5, AttemptOutcome.SURVIVED, forwards=200),
]
ROWS = [list(group) for group in ROWS]


def test_the_sentence_says_what_the_tables_say(subtests):
    """Property: its numbers are those of the tables, which add up to the clear attempts."""
    for seed in range(20):
        with subtests.test(str(seed)):
            outcomes = np.random.default_rng(seed).choice(
                list(AttemptOutcome)[:2] + list(AttemptOutcome)[3:], 30
            )
            judges = ["j"] if seed % 2 else []
            group = [
                attempt_rows(i, outcome, judges=[0] * len(judges), plain_judges=[0] * len(judges))
                for i, outcome in enumerate(outcomes)
            ]
            summary = summarise(folder_of(*group, judges=judges))
            total = summary.results[0].total
            assert (
                total.searched_accuracy.k
                + total.adversarial.k
                + total.contested.k
                + total.plain_errors.k
                == total.clear.k
            )
            text = " ".join(sentences(summary))
            assert (
                f"it errs on {total.adversarial.k} of {total.clear.k} clear plain samples" in text
            )
            assert ("every judge" in text) == bool(judges) and (
                f"on {total.contested.k} while" in text
            ) == bool(total.contested.k)
            assert (f"on {total.plain_errors.k} it errs without a search" in text) == bool(
                total.plain_errors.k
            )


def test_two_kinds_of_failure_and_their_denominators():
    (result,) = summarise(folder_of(*ROWS)).results
    counts = {
        name: (getattr(result.total, name).k, getattr(result.total, name).n)
        for name in type(result.total).model_fields
        if name != "attempts"
    }
    assert counts == {
        "clear": (5, 6),
        "plain_errors": (1, 5),
        "adversarial": (2, 5),
        "contested": (1, 5),
        "searched_accuracy": (1, 5),
    }
    assert (result.total.adversarial.low, result.total.adversarial.high) == wilson(2, 5)
    assert [(c.name, c.attempts, c.adversarial.k, c.adversarial.n) for c in result.per_class] == [
        ("zero", 4, 1, 3),
        ("one", 2, 1, 2),
    ]


def test_who_sees_the_intended_class():
    (result,) = summarise(folder_of(*ROWS)).results
    witnesses = {
        witness.name: (witness.plain.k, witness.plain.n, witness.found.k, witness.found.n)
        for witness in result.witnesses
    }
    assert witnesses == {
        "auxiliary classifier": (6, 6, 3, 3),
        "j": (5, 6, 2, 3),
        "nearest training sample": (5, 6, 2, 3),
    }


def test_no_data_is_not_zero():
    (result,) = summarise(folder_of(attempt_rows(0, AttemptOutcome.UNCLEAR))).results
    assert (
        result.total.adversarial.value is None
        and result.total.adversarial.n == 0
        and result.total.clear.value == 0.0
    )


def test_warnings():
    warnings = summarise(
        folder_of(
            attempt_rows(0, AttemptOutcome.UNCLEAR, plain_judges=()), judges=(), same_data=False
        )
    ).warnings
    assert [text.split()[0] for text in warnings] == ["There", "The", "No"]
    assert not summarise(folder_of(attempt_rows(0, AttemptOutcome.FOOLED))).warnings


def test_what_is_shown(unrestricted_run, tmp_path):
    """Two models under two variants on attempts that differ in everything, with pictures of noise."""
    rng, groups, arrays = np.random.default_rng(0), [], {}
    for model, variant in itertools.product(("m", "net"), ("latent", "noise")):
        for attempt in range(16):
            numbers = {"confidence": rng.random()}
            counts = {name: int(rng.integers(1, 99)) for name in ("forwards", "backwards")}
            answers = {name: int(rng.integers(2)) for name in ("pred", "aux")}
            judges = {name: rng.integers(0, 2, 2).tolist() for name in ("judges", "plain_judges")}
            places = {f"l2_{name}_at": int(rng.integers(100)) for name in ("same", "other")}
            more = (
                numbers | counts | answers | places | judges | {"model": model, "variant": variant}
            )
            outcome, distances = (
                rng.choice(list(AttemptOutcome)[:2] + list(AttemptOutcome)[3:]),
                tuple(rng.random(2)),
            )
            both = list(
                attempt_rows(attempt, outcome, intended=attempt % 2, distances=distances, **more)
            )
            groups.append(both if variant == "latent" else both[1:])
            for name in (
                example_name(attempt),
                example_name(attempt, model, variant),
                *(f"reference/{k}" for k in places.values()),
            ):
                arrays[name] = rng.random((1, 8, 8)).astype(np.float32)
    folder = folder_of(
        *groups, path=tmp_path, models=("m", "net"), judges=("ann", "bob"), noise=0.25
    )
    write_arrays(tmp_path / example_file(0), arrays)
    (tmp_path / "manifest.json").write_text(json.dumps(folder.manifest))
    parquet.write_table(tmp_path / "rows.parquet", parquet.to_table(folder.rows))
    summary = summarise(folder)
    report = summary.report()
    texts = [
        terminal_of(summary, unrestricted_run),
        page_text(page(report)),
        *csv_files(report).values(),
    ]
    approve("unrestricted", "\n\n".join([*texts, summary.model_dump_json(indent=0)]))
