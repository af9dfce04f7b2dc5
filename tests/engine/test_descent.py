"""The groups of a stage are those of one process that takes one after another, whoever answers
first."""

from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.engine.stage_run import GroupQueue


def in_turns(samples, broken, size, answer):
    """The groups of one process, with the level of each sample, and the smallest level broken in
    the end."""
    queue, groups, broken = deque(samples), [], list(broken)
    while queue:
        members = [queue.popleft() for _ in range(min(size, len(queue)))]
        levels = [broken[sample] - 1 for sample in members]
        groups.append((tuple(members), tuple(levels)))
        for sample, attacked in zip(members, levels, strict=True):
            smallest, closed = answer(sample, attacked)
            broken[sample] = min(broken[sample], smallest)
            if not closed:
                queue.append(sample)
    return groups, broken


def answers_of(seed, levels):
    """An answer for each sample and level, the same whenever it is asked for: (smallest level
    broken, whether that is all).
    """

    def answer(sample, level):
        smallest = int(np.random.default_rng([seed, sample, level]).integers(0, level + 2))
        return (levels, True) if smallest > level else (smallest, smallest == 0)

    return answer


@given(
    n=st.integers(0, 30),
    size=st.integers(1, 9),
    levels=st.integers(1, 5),
    seed=st.integers(0, 99),
    order=st.randoms(use_true_random=False),
)
def test_the_groups_are_those_of_one_process_whoever_ends_first(n, size, levels, seed, order):
    answer, start = answers_of(seed, levels), [levels] * n
    expected, broken = in_turns(range(n), start, size, answer)
    descent = GroupQueue(np.arange(n), np.array(start, dtype=int), size)
    cut = set()
    while True:
        descent.advance()
        under_way = [group for group in descent.groups if group.answer is None]
        if not under_way:
            break
        cut |= {(tuple(group.index.tolist()), tuple(group.level.tolist())) for group in under_way}
        group = order.choice(under_way)
        answers = np.array(
            [answer(*key) for key in zip(group.index.tolist(), group.level.tolist(), strict=True)]
        )
        group.answer = answers[:, 0], answers[:, 1].astype(bool)
        assert descent.open_samples == len(descent._queue) + sum(
            len(group.index) for group in descent.groups
        )
    assert cut == set(expected) and descent.broken.tolist() == broken and descent.open_samples == 0


def test_groups_are_there_to_be_shared():
    """Twelve samples in fours: three groups at once, and a fourth when the first has ended, before
    the others have.
    """
    descent = GroupQueue(np.arange(12), np.full(12, 3), 4)
    descent.advance()
    assert [group.index.tolist() for group in descent.groups] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    descent.groups[0].answer = np.full(4, 2), np.zeros(4, bool)
    descent.advance()
    assert [group.index.tolist() for group in descent.groups] == [
        [4, 5, 6, 7],
        [8, 9, 10, 11],
        [0, 1, 2, 3],
    ]
    assert descent.groups[-1].level.tolist() == [1, 1, 1, 1]


def test_what_the_second_group_says_waits_for_the_first():
    descent = GroupQueue(np.arange(4), np.full(4, 2), 2)
    descent.advance()
    descent.groups[1].answer = np.ones(2, int), np.zeros(2, bool)
    descent.advance()
    assert [group.index.tolist() for group in descent.groups] == [[0, 1], [2, 3]], (
        "or the third group would depend on who is faster"
    )
