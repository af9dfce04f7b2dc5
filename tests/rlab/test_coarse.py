"""Coarse to fine: one sensitive patch among many is found by halving, and every question is one that the model counts."""

import math

import pytest
import torch

from _placing import Minus, Plus, act, linear, world
from brinell.core.domain import Domain
from brinell.core.patches import PatchGrid
from brinell.rlab.cache import CLEAN
from brinell.rlab.coarse import Blocks, lay
from brinell.rlab.rules import Rules

LINE, IMAGE = PatchGrid((1, 16), (2,)), PatchGrid((1, 16, 16), (1, 1))


def one_hot(count, at):
    return torch.eye(count)[at]


def asked(blocks, effects):
    """What a lone slot asks about, question by question, where blocks raise the height by the sum of `effects`."""
    questions = []
    while True:
        laid = blocks.ask(torch.tensor([0]), torch.tensor([True]))
        if (laid == CLEAN).all():
            return questions
        block = (laid[0] != CLEAN).nonzero()[:, 0].tolist()
        questions.append((block, int(laid.max())))
        blocks.learn(torch.tensor([0]), torch.tensor([sum(effects[patch] for patch in block)]))


def fresh(queries, grid=LINE, variants=1):
    blocks = Blocks(1, queries, grid, variants, torch.device("cpu"))
    blocks.forget(torch.tensor([0]), torch.arange(variants)[None].float())
    return blocks


def test_halves_by_hand():
    """Patch 5 of 8 helps: the line, its halves, those of 4 to 7, those of 4 and 5; then whatever is left."""
    questions = asked(fresh(7), [0.0, 0, 0, 0, 0, 1, 0, 0])
    assert questions == [(block, 0) for block in (list(range(8)), [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7], [4], [5])]


def test_the_block_that_helped_most_is_split_first():
    """The left half brings 3, the right one 4: right first, whose halves bring 2 each, so the left half comes next."""
    questions = [block for block, _ in asked(fresh(7), [3.0, 0, 0, 0, 1, 1, 1, 1])]
    assert questions[1:] == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7], [0, 1], [2, 3]]


def test_another_variant_is_tried_where_nothing_helps():
    questions = asked(fresh(4, variants=3), [-1.0] * 8)
    assert [(len(block), variant) for block, variant in questions] == [(8, 0), (8, 1), (8, 2), (4, 0)]


def test_all_blocks_are_asked_about_once_and_no_more():
    questions = [tuple(block) for block, _ in asked(fresh(99), [1.0] * 8)]
    assert len(questions) == len(set(questions)) == 15


def test_the_longest_axis_is_halved_and_odd_lengths_too():
    grid = PatchGrid((1, 3, 5), (1, 1))
    second = asked(fresh(3, grid), [1.0] * 15)[1][0]
    assert second == [0, 1, 5, 6, 10, 11]
    assert len(asked(fresh(99, grid), [1.0] * 15)) == 29, "a tree with 15 leaves"


def test_a_slot_that_is_not_ready_keeps_its_questions():
    blocks = fresh(1)
    row = torch.tensor([0])
    assert (blocks.ask(row, torch.tensor([False])) == CLEAN).all()
    assert (blocks.ask(row, torch.tensor([True])) == 0).all()


def test_laid_patches_take_the_place_of_an_action():
    chosen, variants = lay(
        torch.tensor([[1, -1], [2, 0]]),
        torch.tensor([[3, CLEAN], [3, 3]]),
        torch.tensor([[CLEAN] * 3, [CLEAN, 7, 7]]),
    )
    assert chosen.tolist() == [[1, -1, -1], [-1, 1, 2]]
    assert variants.tolist() == [[3, CLEAN, CLEAN], [CLEAN, 7, 7]]


@pytest.mark.parametrize("patch", [0, 77, 255])
def test_one_sensitive_patch_of_256_is_found_in_1_plus_2_log_queries(patch):
    """In one go with its posterior: the answer about a block is shared among its patches until one alone is left."""
    weight, queries = 8 * one_hot(256, patch), 1 + 2 * int(math.log2(256))
    image = torch.full((1, 1, 16, 16), 0.5)
    model = linear(weight, -34.0, Domain(kind="image", shape=(1, 16, 16)))
    made = world(model, image, grid=IMAGE, rules=Rules(coarse=queries, steps=1000))
    made.env.reset(torch.ones(1, dtype=torch.bool))
    for _ in range(1 + queries):  # the clean input first
        made.env.step(act(made.env))
    last = made.env.posterior.mean[0].flatten()
    assert last.argmax() == patch and last[patch] == pytest.approx(8, abs=1e-3)
    assert made.model.seen == 1 + queries, "each question is one input"
    assert int(made.ledger.forwards.sum()) == made.model.seen
    assert (made.env.assignment.variant == CLEAN).all(), "blocks are compared with one and the same input"


def test_one_by_one_needs_up_to_as_many_queries_as_patches():
    """The same world where each patch is asked about alone, in order: the last one is found by the last of 256 queries."""
    model = linear(8 * one_hot(256, 255), -34.0, Domain(kind="image", shape=(1, 16, 16)))
    made = world(model, torch.full((1, 1, 16, 16), 0.5), grid=IMAGE, rules=Rules(steps=1000, patience=0))
    made.env.reset(torch.ones(1, dtype=torch.bool))
    made.env.step(act(made.env))
    for patch in range(256):
        assert not made.env.posterior.mean.any()
        made.env.step(act(made.env, add=[patch]))
    assert made.env.posterior.mean[0].flatten().argmax() == 255 and made.model.seen == 257


def test_a_block_that_reaches_the_goal_ends_the_episode():
    made = world(linear(torch.ones(16), -8.5), torch.full((1, 1, 16), 0.5), rules=Rules(coarse=5))
    made.env.reset(torch.ones(1, dtype=torch.bool))
    made.env.step(act(made.env))
    step = made.env.step(act(made.env))
    assert step.terminated.tolist() == [True] and made.model.seen == 2
    assert made.env.found.variant.tolist() == [[0] * 8] and made.env.found.steps.tolist() == [1]


def test_after_the_questions_actions_count_again():
    made = world(linear(torch.ones(16), -30.0), torch.full((1, 1, 16), 0.5), rules=Rules(coarse=2), distortions=(Plus(), Minus()))
    made.env.reset(torch.ones(1, dtype=torch.bool))
    made.env.step(act(made.env))
    for _ in range(2):
        action = act(made.env, add=[3])
        made.env.step(action)
        assert (action[0] == -1).all(), "what was not carried out is not learned from"
    action = act(made.env, add=[3], family=1)
    made.env.step(action)
    assert action[0][0, 0] == 3
    assert made.env.assignment.variant[0].tolist() == [CLEAN] * 3 + [0] + [CLEAN] * 4


def test_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="coarse -1"):
        Rules(coarse=-1)
