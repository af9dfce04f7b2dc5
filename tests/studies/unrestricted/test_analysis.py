"""Rates of an unrestricted attack from rows that were written by hand."""

import itertools
import zlib
from types import SimpleNamespace

import numpy as np

from approval import approve, page_text
from brinell.core.intervals import wilson
from brinell.studies.unrestricted import page
from brinell.studies.unrestricted.analysis import FRACTION, summarise
from brinell.studies.unrestricted.records import COLUMNS, Outcome, UnrestrictedRun
from brinell.studies.unrestricted.terminal import lines
from brinell.studies.unrestricted.words import reading


def row(attempt, outcome, *, intended=0, judges=(0,), distances=(1.0, 3.0, 2.0, 4.0), **columns):
    """A row whose distances are the same in both norms, at the plain sample and at the end."""
    values = dict.fromkeys(COLUMNS)
    values |= {"attempt": attempt, "model": "m", "variant": "latent", "intended": intended, "outcome": str(outcome)}
    values |= {"forwards": 0, "backwards": 0, "judge_forwards": 1, "plain_aux": intended, "plain_judges": [intended]}
    for norm in ("l2", "linf"):
        for name, value in zip(("same", "other", "anchor_same", "anchor_other"), distances, strict=True):
            values |= {f"plain_{norm}_{name}": value, f"{norm}_{name}": value}
    return values | {"aux": intended, "judges": list(judges)} | columns


def manifest(**columns):
    return {
        "data": {"name": "d", "classes": ["zero", "one"]},
        "models": [{"name": "m"}],
        "judges": [{"name": "j"}],
        "variants": {"latent": {"noise": 0.0}},
        "generator": {"same_data": True},
        "target": None,
        "attempts": 0,
        "state": "finished",
    } | columns


ROWS = [
    row(0, Outcome.UNCLEAR, plain_judges=[1]),
    row(1, Outcome.GENERALISATION, intended=1),
    row(2, Outcome.FOOLED, forwards=5, latent_l2=1.0, moved_l2=2.0, moved_linf=0.5),
    row(3, Outcome.FOOLED, intended=1, judges=(1,), forwards=9, latent_l2=3.0, moved_l2=4.0, moved_linf=0.7),
    row(
        4, Outcome.CONTESTED, judges=(1,), distances=(5.0, 3.0, 2.0, 4.0), forwards=7, latent_l2=2.0, moved_l2=3.0, moved_linf=0.6
    ),
    row(5, Outcome.SURVIVED, forwards=200),
]


def test_the_sentence_says_what_the_tables_say(subtests):
    """Property: its numbers add up to the clear attempts, and it speaks of no witness that decides no outcome."""
    for seed in range(20):
        with subtests.test(str(seed)):
            rng = np.random.default_rng(seed)
            rows = []
            for attempt, outcome in enumerate(rng.choice(list(Outcome), 30)):
                distances = (1.0, 3.0, 2.0, 4.0) if rng.random() < 0.5 else (5.0, 3.0, 2.0, 4.0)
                rows.append(row(attempt, outcome, distances=distances, latent_l2=1.0, moved_l2=2.0, moved_linf=0.5))
            judges = [{"name": "j"}] if seed % 2 else []
            result = summarise(manifest(attempts=30, judges=judges), rows, "run")
            ((_, text),) = reading(result)
            total = result.results[0].total
            assert total.searched_accuracy.k + total.adversarial.k + total.contested.k + total.generalisation.k == total.clear.k
            assert text.startswith(
                f"{total.clear.k} of 30 plain samples are clear. Of these the model classifies {total.plain_accuracy.k}"
            )
            assert f"and {total.searched_accuracy.k} after it: on {total.adversarial.k} it errs" in text
            assert "every witness" not in text and ("every judge" in text) == bool(judges)
            nearest = result.results[0].witnesses[-2]
            assert f"is of the intended class for {100 * nearest.found.value:.1f}" in text


def test_two_kinds_of_failure_and_their_denominators():
    (result,) = summarise(manifest(attempts=6), ROWS, "run").results
    counts = {
        name: (getattr(result.total, name).k, getattr(result.total, name).n)
        for name in type(result.total).model_fields
        if name != "attempts"
    }
    assert counts == {
        "clear": (5, 6),
        "plain_accuracy": (4, 5),
        "generalisation": (1, 5),
        "adversarial": (2, 5),
        "contested": (1, 5),
        "searched_accuracy": (1, 5),
        "success": (2, 4),
        "success_by_auxiliary": (3, 4),
    }
    assert (result.total.success.low, result.total.success.high) == wilson(2, 4)
    assert [(c.class_name, c.attempts, c.success.k, c.success.n) for c in result.classes] == [("zero", 4, 1, 3), ("one", 2, 1, 1)]
    assert (result.cost.forwards, result.cost.median_queries, result.cost.median_latent_l2) == (221, 7.0, 2.0)


def test_who_sees_the_intended_class():
    (result,) = summarise(manifest(), ROWS, "run").results
    witnesses = {
        witness.name: (witness.plain.k, witness.plain.n, witness.found.k, witness.found.n) for witness in result.witnesses
    }
    assert witnesses == {
        "auxiliary classifier": (6, 6, 3, 3),
        "j": (5, 6, 2, 3),
        "nearest training sample, L2": (5, 6, 2, 3),
        "nearest training sample, Linf": (5, 6, 2, 3),
    }


THE_CONDITIONS_BY_HAND = [
    ((1.0, 3.0, 2.0, 4.0), True, True),
    ((1.9, 3.0, 1.5, 4.0), True, False),  # another sample of the class is nearer than the change is long
    ((2.0, 3.0, 2.5, 4.0), False, True),  # as near to the other class as may be
    ((3.0, 2.0, 2.0, 4.0), False, False),
]


def test_the_conditions_by_hand(subtests):
    for distances, constant, own_only in THE_CONDITIONS_BY_HAND:
        with subtests.test(str(distances)):
            assert FRACTION == 0.5
            (result,) = summarise(manifest(), [row(0, Outcome.FOOLED, distances=distances)], "run").results
            for conditions in (*result.found, *result.plain):
                assert (conditions.label_constant.k, conditions.no_interpolation.k, conditions.both.k) == (
                    constant,
                    own_only,
                    constant and own_only,
                )
                assert (
                    conditions.nearer_to_own.k == (distances[0] < distances[1])
                    and conditions.same == distances[0]
                    and conditions.training_other == distances[3]
                )


def test_no_data_is_not_zero():
    (result,) = summarise(manifest(), [row(0, Outcome.UNCLEAR)], "run").results
    assert result.total.success.value is None and result.total.success.n == 0 and result.total.clear.value == 0.0
    assert result.found[0].same is None and result.cost.median_queries is None


def test_warnings():
    warnings = summarise(manifest(judges=[], generator={"same_data": False}), [row(0, Outcome.UNCLEAR)], "run").warnings
    assert [text.split()[0] for text in warnings] == ["No", "There", "The", "Only"]
    assert len(summarise(manifest(), [row(0, Outcome.FOOLED)], "run").warnings) == 1


def test_what_is_shown(unrestricted_run, monkeypatch):
    """Two models under two variants on attempts that differ in everything, with pictures of noise."""
    rng, rows = np.random.default_rng(0), []
    for attempt in range(40):
        for model, variant in itertools.product(("m", "net"), ("latent", "noise")):
            outcome, intended = rng.choice(list(Outcome)), int(rng.integers(2))
            numbers = {
                name: rng.random() for name in ("latent_l2", "latent_linf", "moved_l2", "moved_linf", "confidence", "seconds")
            }
            counts = {name: int(rng.integers(1, 99)) for name in ("forwards", "backwards", "queries_to_success")}
            answers = {name: int(rng.integers(2)) for name in ("plain_pred", "pred", "aux", "plain_aux")}
            judges = {name: rng.integers(0, 2, 2).tolist() for name in ("judges", "plain_judges")}
            places = {f"l2_{name}_at": int(rng.integers(100)) for name in ("same", "other")}
            columns = numbers | counts | answers | places | {"model": model, "variant": variant}
            rows.append(row(attempt, outcome, intended=intended, distances=tuple(rng.random(4)), **columns) | judges)
    names = [[{"name": name, "digest": "-"} for name in pair] for pair in (("m", "net"), ("ann", "bob"))]
    facts = {"models": names[0], "judges": names[1]}
    run = UnrestrictedRun.open(unrestricted_run)
    data = run.manifest["data"] | {"classes": ["zero", "one"]}
    run.manifest = (
        run.manifest | facts | {"attempts": 40, "data": data, "variants": {"latent": {"noise": 0.0}, "noise": {"noise": 0.25}}}
    )
    run.rows = lambda: rows
    run.arrays = lambda names: {name: np.random.default_rng(zlib.crc32(name.encode())).random((1, 8, 8)) for name in names}
    pages = []
    monkeypatch.setattr(page, "UnrestrictedRun", SimpleNamespace(open=lambda path: run))
    monkeypatch.setattr(page, "save_page", lambda path, text, tables: pages.append(text))
    page.write(unrestricted_run)
    result = summarise(run.manifest, rows, str(unrestricted_run))
    texts = ["\n".join(lines(result)), page_text(pages[0]), *page.tables(result).values(), result.model_dump_json(indent=0)]
    approve("unrestricted", "\n\n".join(texts))
