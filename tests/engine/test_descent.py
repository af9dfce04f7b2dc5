"""Groups that several processes attack at once are those that one process attacks in turns."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.engine.stage_run import Answers, GroupQueue


def full_groups(waiting, under_way):
    return 0 if under_way else waiting


def in_turns(samples, broken, size, answer, last=full_groups):
    """Reference of a single process: a group from the front of the queue, its open samples to the end; smaller last groups."""
    queue, broken, groups, groups_ = deque(samples), list(broken), [], deque()

    def append_group(count):
        members = [queue.popleft() for _ in range(min(count, len(queue)))]
        groups_.append((members, [broken[sample] - 1 for sample in members]))

    while queue or groups_:
        while len(queue) >= size:
            append_group(size)
        size_ = last(len(queue), len(groups_)) if queue else 0
        while size_ and queue:
            append_group(size_)
        members, level = groups_.popleft()
        groups.append((tuple(members), tuple(level)))
        for sample, attacked in zip(members, level, strict=True):
            smallest, closed = answer(sample, attacked)
            broken[sample] = min(broken[sample], smallest)
            if not closed:
                queue.append(sample)
    return groups, broken


def known_of(samples, levels, answers=()):
    """What is known where some answers are there: (sample, level) to (smallest level broken, whether that is all)."""
    results = Answers(samples, levels)
    for (sample, level), (smallest, closed) in dict(answers).items():
        results.add(np.array([sample]), np.array([level]), np.array([smallest]), np.array([closed]))
    return results


def answers_of(seed, levels):
    """An answer for each sample and level, the same whenever it is asked for: (smallest level broken, whether that is all)."""

    def answer(sample, level):
        smallest = int(np.random.default_rng([seed, sample, level]).integers(0, level + 2))
        return (levels, True) if smallest > level else (smallest, smallest == 0)

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
    def last(waiting, under_way):
        return -(-waiting // (shards - under_way)) if under_way < shards else 0

    answer, start = answers_of(seed, levels), [levels] * n
    expected, broken = in_turns(range(n), start, size, answer, last)
    descent, results, finished_groups = GroupQueue(np.arange(n), np.array(start, dtype=int), size, last), known_of(n, levels), []
    cut_so_far = set()
    while True:
        finished = descent.advance(results)
        finished_groups += [(tuple(open_group.index.tolist()), tuple(open_group.level.tolist())) for open_group in finished]
        under_way = [open_group for open_group in descent.groups if len(open_group.missing(results).index)]
        if not under_way:
            break
        cut_so_far |= {tuple(open_group.index.tolist()) for open_group in under_way}
        open_group = order.choice(under_way)
        answers = np.array([answer(*key) for key in zip(open_group.index.tolist(), open_group.level.tolist(), strict=True)])
        results.add(open_group.index, open_group.level, *answers.T)
        assert descent.open_samples == len(descent._queue) + sum(len(group.index) for group in descent.groups)
    assert finished_groups == expected and descent.broken.tolist() == broken and descent.open_samples == 0
    assert cut_so_far == {members for members, _ in expected}


def test_groups_are_there_to_be_shared():
    """Twelve samples in fours: three groups at once, and a fourth when the first has ended, before the others have."""
    descent = GroupQueue(np.arange(12), np.full(12, 3), 4, full_groups)
    descent.advance(known_of(12, 3))
    assert [group.index.tolist() for group in descent.groups] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    descent.advance(known_of(12, 3, {(sample, 2): (2, False) for sample in range(4)}))
    assert [group.index.tolist() for group in descent.groups] == [[4, 5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert descent.groups[-1].level.tolist() == [1, 1, 1, 1]


def test_the_last_samples_are_cut_for_all_who_wait():
    """Ten samples in fours for two processes: when one group is known, what waits is cut though it fills no group."""

    def last(waiting, under_way):
        return 0 if under_way >= 2 else -(-waiting // (2 - under_way))

    descent, results = GroupQueue(np.arange(10), np.full(10, 2), 4, last), known_of(10, 2)
    descent.advance(results)
    assert [group.index.tolist() for group in descent.groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for sample in range(4):
        results.add(np.array([sample]), np.array([1]), np.array([1]), np.array([sample != 3]))
    descent.advance(results)
    assert [group.index.tolist() for group in descent.groups] == [[4, 5, 6, 7], [8, 9, 3]]
    assert [group.level.tolist() for group in descent.groups] == [[1, 1, 1, 1], [1, 1, 0]]


def test_what_the_second_group_says_waits_for_the_first():
    descent = GroupQueue(np.arange(4), np.full(4, 2), 2, full_groups)
    descent.advance(known_of(4, 2, {(2, 1): (1, False), (3, 1): (1, False)}))
    assert [group.index.tolist() for group in descent.groups] == [[0, 1], [2, 3]], (
        "or the third group would depend on who is faster"
    )


@pytest.mark.parametrize("recorded", [{}, {(0, 1): (2, True)}])
def test_the_missing_ones_of_a_group(recorded):
    descent = GroupQueue(np.arange(2), np.full(2, 2), 2, full_groups)
    descent.advance(known_of(2, 2))
    assert descent.groups[0].missing(known_of(2, 2, recorded)).index.tolist() == ([1] if recorded else [0, 1])
