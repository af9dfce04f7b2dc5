"""Groups that several processes attack at once are those that one process attacks in turns."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.engine.stage_run import Answers, GroupQueue


def whole(left, under_way):
    return 0 if under_way else left


def in_turns(samples, broken, size, answer, last=whole):
    """What one process does: a group from the front, what is left of it to the end; smaller groups of the last samples."""
    queue, broken, groups, cuts = deque(samples), list(broken), [], deque()

    def cut(count):
        at = [queue.popleft() for _ in range(min(count, len(queue)))]
        cuts.append((at, [broken[one] - 1 for one in at]))

    while queue or cuts:
        while len(queue) >= size:
            cut(size)
        some = last(len(queue), len(cuts)) if queue else 0
        while some and queue:
            cut(some)
        at, level = cuts.popleft()
        groups.append((tuple(at), tuple(level)))
        for one, tried in zip(at, level, strict=True):
            reached, closed = answer(one, tried)
            broken[one] = min(broken[one], reached)
            if not closed:
                queue.append(one)
    return groups, broken


def known_of(samples, levels, answers=()):
    """What is known where some answers are there: (sample, level) to (smallest level broken, whether that is all)."""
    known = Answers(samples, levels)
    for (sample, level), (reached, closed) in dict(answers).items():
        known.note(np.array([sample]), np.array([level]), np.array([reached]), np.array([closed]))
    return known


def answers_of(seed, levels):
    """An answer for each sample and level, the same whenever it is asked for: (smallest level broken, whether that is all)."""

    def answer(sample, level):
        reached = int(np.random.default_rng([seed, sample, level]).integers(0, level + 2))
        return (levels, True) if reached > level else (reached, reached == 0)

    return answer


@given(
    n=st.integers(0, 30),
    size=st.integers(1, 9),
    levels=st.integers(1, 5),
    seed=st.integers(0, 99),
    shards=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_the_groups_are_those_of_one_process_whoever_ends_first(n, size, levels, seed, shards, order):
    def last(left, under_way):
        return -(-left // (shards - under_way)) if under_way < shards else 0

    answer, start = answers_of(seed, levels), [levels] * n
    expected, broken = in_turns(range(n), start, size, answer, last)
    descent, known, seen = GroupQueue(np.arange(n), np.array(start, dtype=int), size, last), known_of(n, levels), []
    cut_so_far = set()
    while True:
        ended = descent.advance(known)
        seen += [(tuple(one.index.tolist()), tuple(one.level.tolist())) for one in ended]
        under_way = [one for one in descent.groups if len(one.missing(known).index)]
        if not under_way:
            break
        cut_so_far |= {tuple(one.index.tolist()) for one in under_way}
        one = order.choice(under_way)
        answers = np.array([answer(*key) for key in zip(one.index.tolist(), one.level.tolist(), strict=True)])
        known.note(one.index, one.level, *answers.T)
        assert descent.left == len(descent._queue) + sum(len(group.index) for group in descent.groups)
    assert seen == expected and descent.broken.tolist() == broken and descent.left == 0
    assert cut_so_far == {at for at, _ in expected}


def test_groups_are_there_to_be_shared():
    """Twelve samples in fours: three groups at once, and a fourth when the first has ended, before the others have."""
    descent = GroupQueue(np.arange(12), np.full(12, 3), 4, whole)
    descent.advance(known_of(12, 3))
    assert [one.index.tolist() for one in descent.groups] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    descent.advance(known_of(12, 3, {(sample, 2): (2, False) for sample in range(4)}))
    assert [one.index.tolist() for one in descent.groups] == [[4, 5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert descent.groups[-1].level.tolist() == [1, 1, 1, 1]


def test_the_last_samples_are_cut_for_all_who_wait():
    """Ten samples in fours for two processes: when one group is known, what waits is cut though it fills no group."""

    def last(left, under_way):
        return 0 if under_way >= 2 else -(-left // (2 - under_way))

    descent, known = GroupQueue(np.arange(10), np.full(10, 2), 4, last), known_of(10, 2)
    descent.advance(known)
    assert [one.index.tolist() for one in descent.groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for sample in range(4):
        known.note(np.array([sample]), np.array([1]), np.array([1]), np.array([sample != 3]))
    descent.advance(known)
    assert [one.index.tolist() for one in descent.groups] == [[4, 5, 6, 7], [8, 9, 3]]
    assert [one.level.tolist() for one in descent.groups] == [[1, 1, 1, 1], [1, 1, 0]]


def test_what_the_second_group_says_waits_for_the_first():
    descent = GroupQueue(np.arange(4), np.full(4, 2), 2, whole)
    descent.advance(known_of(4, 2, {(2, 1): (1, False), (3, 1): (1, False)}))
    assert [one.index.tolist() for one in descent.groups] == [[0, 1], [2, 3]], "or the third group would depend on who is faster"


@pytest.mark.parametrize("known", [{}, {(0, 1): (2, True)}])
def test_the_missing_ones_of_a_group(known):
    descent = GroupQueue(np.arange(2), np.full(2, 2), 2, whole)
    descent.advance(known_of(2, 2))
    assert descent.groups[0].missing(known_of(2, 2, known)).index.tolist() == ([1] if known else [0, 1])
