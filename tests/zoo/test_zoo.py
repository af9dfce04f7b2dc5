"""Each kind of broken defence around a small network: an audit ends at the truth, or a check says
why not.
"""

import datetime
import random

import pytest

from benchmarks.defences import audit
from benchmarks.zoo import ZOO, load, marks, quick, truth
from benchmarks.zoo.base import SMALL_WEIGHTS
from brinell.core.checks import Code

PARTS = 12
SECONDS = 3.0
"""Processor seconds of a quick member, on an idle machine."""
NOISE = 5
"""How many times longer a run may take on a busy one (tests/ceilings.py)."""
FULL_SIZE = 3
"""Kinds that are drawn each night for an audit at full size."""
MEMBERS = quick.read_members()


def test_every_kind_has_a_quick_member_with_its_truth():
    assert list(MEMBERS) == list(ZOO), "python -m benchmarks.zoo.quick adds what is missing"
    assert len(ZOO) > 110
    for member in MEMBERS.values():
        assert 20 <= member.samples <= 60 and 0 <= member.truth <= member.samples, member


def test_every_check_has_a_kind_that_has_to_fail_it():
    assert set(Code) <= {member.check for member in MEMBERS.values()}


def test_the_networks_of_quick_members_are_kept_and_small():
    assert SMALL_WEIGHTS.stat().st_size < 200_000
    for name in ("quick", "colour"):
        base = load(name, 60)
        assert float((base.net(base.x).argmax(1) == base.y).float().mean()) > 0.9


def test_the_page_shows_every_kind_with_its_truth(root):
    page = (root / "docs" / "results" / "checks.md").read_text(encoding="utf-8")
    for member in MEMBERS.values():
        assert f"| {member.kind} | {member.samples} | {member.truth} |" in page, (
            "python -m benchmarks.validity --broken --quick --table"
        )


def row_of(**changes):
    row = {"kind": "none", "samples": 60, "clean": 57, "headline": 30, "truth": 27, "allowed": 28}
    row |= {"failed": (), "missing": (), "unsure": False, "forwards": 0, "seconds": 0.0}
    return marks.Mark(**row | changes)


def test_a_kind_goes_unnoticed_if_every_check_passes_above_the_truth():
    assert row_of().is_unnoticed()
    assert not row_of(headline=28).is_unnoticed()
    assert not row_of(headline=None).is_unnoticed()
    assert not row_of(failed=("zero-gradients",), unsure=True).is_unnoticed()
    assert not row_of(unsure=True, missing=("plateau",)).is_unnoticed()
    marked = row_of(failed=("zero-gradients",), unsure=True)
    assert marked.is_unnoticed(without="zero-gradients")
    assert not marked.is_unnoticed(without="fresh-copy")
    second = row_of(kind="all-numpy", failed=("zero-gradients", "unconstrained-failure"))
    codes = ("zero-gradients", "fresh-copy")
    assert marks.catches([marked, second], codes) == {
        "zero-gradients": (["none", "all-numpy"], ["none"]),
        "fresh-copy": ([], []),
    }


def test_marks_are_kept(tmp_path):
    rows = [row_of(), row_of(kind="jpeg", failed=("zero-gradients",))]
    for row in rows:
        marks.keep_mark(row, tmp_path / "marks.jsonl")
    assert list(marks.read_marks(tmp_path / "marks.jsonl").values()) == rows


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_no_kind_passes_every_check_above_the_truth(number, subtests):
    for kind in list(MEMBERS)[number::PARTS]:
        with subtests.test(kind):
            member = MEMBERS[kind]
            row = marks.mark(member)
            assert not row.is_unnoticed(), row
            assert member.check not in list(Code) or member.check in row.failed, row
            assert row.seconds < NOISE * SECONDS, row


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(PARTS))
def test_a_check_that_always_passes_is_noticed(number, subtests):
    """The test above fails if any one check is broken: all of them are tried."""
    for code in list(Code)[number::PARTS]:
        with subtests.test(code):
            member = next(member for member in MEMBERS.values() if member.check == code)
            with marks.passing(code):
                assert code not in marks.mark(member).failed


@pytest.mark.nightly
def test_kinds_drawn_tonight_are_noticed_at_full_size(subtests):
    """Around the network that ships with the package, on 60 samples by `fast`."""
    night = datetime.date.today().toordinal()
    base = load("digits", 60)
    for kind in random.Random(night).sample(sorted(ZOO), FULL_SIZE):
        with subtests.test(kind, night=night):
            entry = ZOO[kind]
            answer = audit(
                entry.build(base).defended, base.x, base.y, base.eps, "fast", 0, **entry.audit
            )
            pair, eps = entry.build(base), truth.budget(base.eps)
            robust = truth.robust(pair, base, eps, flaw=entry.flaw, steps=quick.STEPS)
            high = answer.headline is not None and answer.headline > int(robust.sum()) + 1
            assert not high or answer.failed or answer.caveat, (kind, answer)
