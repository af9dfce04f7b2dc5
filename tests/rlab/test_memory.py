"""Content that follows gradients of surrogates, and the memory of a run: what it may ask, what it
learns, and that it helps or is off.
"""

import random
import re
from dataclasses import replace

import pytest
import torch

import brinell
from _helpers import batch_of, run_attack, threat_of
from _placing import Minus, Plus, linear
from _workers import Workers
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access, ModelInfo
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab import memory as module
from brinell.rlab.distort import DistortedInputs, variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.memory import Memory, pays, waves
from brinell.rlab.policy import Greedy
from brinell.rlab.refine import CleanUp
from brinell.rlab.search import run_episodes
from brinell.studies.kit import Call
from brinell.studies.serving import command_of
from brinell.testing.studies import rows_match, rows_of

PLACES = 64
SIGNAL = Domain(kind="signal", shape=(1, PLACES))
GRID = PatchGrid((1, PLACES), (2,))
WIDTH = 48
VECTOR = Domain(kind="vector", shape=(WIDTH,))


def direction(seed):
    weight = torch.randn(PLACES, generator=torch.Generator().manual_seed(seed))
    return 20 * weight / weight.norm()


def victim(weight, lead=4.0):
    """A linear model by which inputs of 0.5 are of class 0, at a distance of `lead` / 20."""
    return linear(weight, -float(weight.sum()) / 2 - lead, SIGNAL)


def episodes(model, surrogates, *, eps=0.3, queries=120, n=6, seed=0, learned=True, clean=None):
    """Outcomes of episodes on equal samples, their ledger, and what they were placed with."""
    batch = batch_of(torch.full((n, 1, PLACES), 0.5), torch.zeros(n, dtype=torch.int64))
    threat = threat_of(eps, "l2", SIGNAL, n=n)
    settings = {"access": Access.SCORES, "queries": queries, "surrogates": surrogates}
    ledger = Ledger(model, batch, threat, **settings)
    placement = Placement(
        grid=GRID,
        variants=variants((Plus(), Minus()), SIGNAL, (1, 3), 1),
        rules=Rules(steps=queries),
        learned=learned,
    )
    rng = Streams.of(seed, batch.ids)
    policy = Greedy(choices=placement.choices)
    outcomes = run_episodes(ledger.oracle(), batch, threat, placement, rng, policy, clean=clean)
    return outcomes, ledger, placement, rng


def queries_of(ledger, queries=120):
    return torch.where(ledger.fooled, ledger.best.first_success, queries).float()


# Content that follows gradients


def test_the_first_query_along_the_right_gradient_fools_just_beyond_the_exact_margin():
    for seed in range(3):
        weight = direction(seed)
        for eps, is_fooled in ((0.21, True), (0.19, False)):
            _, ledger, *_ = episodes(victim(weight), (victim(weight),), eps=eps, seed=seed)
            assert ledger.fooled.all() == is_fooled, "the exact margin is 0.2"
            assert not is_fooled or (ledger.best.first_success == 2).all(), "clean, then one"


def test_content_of_a_misleading_surrogate_costs_next_to_nothing():
    baseline, misguided_queries = [], []
    for seed in range(4):
        weight = direction(seed)
        for surrogate, costs in ((direction(90 + seed), misguided_queries), (None, baseline)):
            models = () if surrogate is None else (victim(surrogate),)
            _, ledger, *_ = episodes(victim(weight), models, eps=0.6, seed=seed)
            costs.append(queries_of(ledger).mean())
    assert torch.stack(misguided_queries).mean() < 1.15 * torch.stack(baseline).mean(), (
        misguided_queries,
        baseline,
    )


def test_an_assignment_with_its_content_is_the_input_that_was_asked_about():
    for seed, clean in ((0, None), (1, CleanUp())):
        weight = direction(seed)
        guide = weight + 1.5 * direction(50 + seed)
        outcomes, ledger, placement, rng = episodes(
            victim(weight), (victim(guide),), eps=0.35, seed=seed, clean=clean
        )
        batch = ledger.batch
        assert ledger.fooled.all() and (outcomes.variant == len(placement.variants)).any()
        rows = torch.arange(len(batch))
        inputs = DistortedInputs(
            len(batch), SIGNAL, placement.variants, batch.x.device, learned=True
        )
        inputs.put(rows, batch.x, rng.fold("filters"), ledger.threat)
        inputs.recall(rows, outcomes.content)
        full = inputs.render(rows, outcomes.variant.long(), GRID)
        x = replace(ledger.threat, eps=outcomes.eps).project(full, batch.x)
        x = batch.x + outcomes.strength[:, None, None] * (x - batch.x)
        assert (
            ledger.threat.criterion.margin(victim(weight).function(x), batch.y, x) > -1e-4
        ).all()
        if clean is None:
            assert torch.allclose(x, ledger.best.closest, atol=1e-6)


def test_a_new_proposal_changes_no_patch_that_stands():
    draw = torch.Generator().manual_seed(3)
    variant_list = variants((Plus(), Minus()), SIGNAL, (1, 3), 1)
    grid = PatchGrid((1, PLACES), (4,), (2,))
    for seed in range(5):
        n = 4
        rows, x = torch.arange(n), torch.rand(n, 1, PLACES, generator=draw)
        inputs = DistortedInputs(n, SIGNAL, variant_list, x.device, learned=True)
        inputs.put(rows, x, Streams.of(seed, rows))
        variant = torch.randint(-1, len(variant_list), (n, len(grid)), generator=draw)
        for _ in range(3):
            inputs.propose(rows, torch.rand(n, 1, PLACES, generator=draw))
            choice = torch.rand(n, len(grid), generator=draw) < 0.3
            variant = torch.where(choice, inputs.proposed, variant)
            full = inputs.render(rows, variant, grid)
            variant = inputs.settle(rows, variant, full)
            inputs.propose(rows, torch.zeros_like(x))
            assert (variant != inputs.proposed).all()
            assert torch.equal(inputs.render(rows, variant, grid), full)


# The memory


class Bent:
    """Two classes divided by a bent surface, a black box that counts its inputs."""

    name, info, access, domain, classes = "bent", ModelInfo(), Access.SCORES, VECTOR, 2

    def __init__(self, seed=0, noise=None):
        draw = torch.Generator().manual_seed(seed)
        self.first = torch.randn(WIDTH, 16, generator=draw) * 0.7
        self.second = torch.randn(16, generator=draw)
        self.noise, self.queries = noise, 0

    def predict(self, x):
        self.queries += len(x)
        lead = ((x.flatten(1) - 0.5) @ self.first).tanh() @ self.second
        if self.noise is not None:
            lead = 10 * torch.randn(len(x), generator=self.noise)
        return torch.stack([-lead, lead], 1)

    def digest(self):
        return "bent"


def samples(model, n, seed=0):
    x = torch.rand(n, WIDTH, generator=torch.Generator().manual_seed(seed))
    return x, model.predict(x).argmax(1)


def attacked(n, *, memory, eps=0.8, steps=100, seed=0, model=None, **settings):
    """The ledger of RLAB on n samples of the bent model, without its clean-up."""
    model = model or Bent(seed)
    x, y = samples(model, n, seed)
    names = {"memory": memory, "steps": str(steps), "refine": "0", "clean_up": "false"}
    attack = plugins.build("attack", "rlab", names | {"patch": "1"})
    return run_attack(attack, model, x, y, eps, "l2", seed=seed, **settings)


def test_waves_hold_every_sample_once_in_order_and_double():
    for n in (1, 63, 64, 65, 200, 1000, 1025):
        parts = waves(n)
        assert [row for part in parts for row in range(n)[part]] == list(range(n))
        assert all(part.stop <= 2 * max(part.start, module.FIRST_WAVE // 2) for part in parts)


def test_below_the_number_of_samples_where_it_pays_it_is_off():
    assert not pays(1, VECTOR, 2) and pays(module.FEWEST, VECTOR, 2)
    for n in (1, 20):
        with_memory, without = (attacked(n, memory=memory) for memory in ("true", "false"))
        assert torch.equal(with_memory.costs.forwards, without.costs.forwards)
        assert torch.equal(with_memory.best.closest, without.best.closest)


def test_a_run_says_what_its_memory_cost_and_when_there_is_none(monkeypatch):
    for fewest, text in ((60, "fitted to [0-9,]+ answers, by [0-9,]+ passes"), (65, "no memory")):
        monkeypatch.setattr(module, "FEWEST", fewest)
        model = Bent()
        x, y = samples(model, 64)
        attack = plugins.build("attack", "rlab", {"memory": "0.1", "steps": "5"})
        batch, threat = batch_of(x, y), threat_of(0.8, "l2", VECTOR, n=64)
        ledger = Ledger(model, batch, threat, access=Access.SCORES)
        extras = attack(ledger.oracle(), batch, threat, Streams.of(0, batch.ids))
        (remark,) = [remark for remark in extras.remarks if remark.code == "memory"]
        assert re.search(text, remark.text)
        names = [name for name, *_ in extras.legend["variants"]]
        assert names[-1] == "learned" and extras.arrays["patches"].max() < len(names)


def test_a_memory_saves_queries_and_every_one_counts(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 100)
    means = []
    for memory in ("true", "false"):
        model = Bent(1)
        ledger = attacked(160, memory=memory, seed=1, model=model, queries=101)
        assert int((ledger.costs.forwards + ledger.confirmations).sum()) == model.queries - 160
        assert (ledger.costs.forwards <= 101).all() and not ledger.costs.backwards.any()
        means.append(float(queries_of(ledger, 101).mean()))
    assert means[0] < 0.4 * means[1], means


def test_work_of_the_fits_is_a_share_of_the_queries():
    x, y = samples(Bent(), 128)
    for share in (0.1, 0.5):
        model = Bent()
        memory = Memory(x, model.predict(x), VECTOR, share, Streams.of(0, torch.arange(128)))
        before = [value.clone() for value in memory.network.module.state_dict().values()]
        memory.fit()
        most = share * module.PASSES * 128
        assert most - module.BATCH < memory.cost.passes <= most and memory.cost.answers == 128
        after = memory.network.module.state_dict().values()
        assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))

        oracle = memory.attend(Ledger(model, batch_of(x, y), threat_of(1.0, n=128)).oracle())
        for rounds, answers in ((5, 128), (26, 32 * 128)):
            for _ in range(rounds):
                oracle.scores(torch.arange(128), x)
            memory.fit()
            assert memory.cost.answers == answers, "a quarter of the first fit, or none"
        assert memory.cost.passes <= most + share * 31 * 128


def test_only_so_many_inputs_are_held(monkeypatch):
    monkeypatch.setattr(module, "HELD", 100 * 4 * WIDTH)
    model = Bent()
    x, y = samples(model, 40)
    memory = Memory(x, model.predict(x), VECTOR, 0.5, Streams.of(0, torch.arange(40)))
    oracle = memory.attend(Ledger(model, batch_of(x, y), threat_of(1.0, n=40)).oracle())
    for _ in range(30):
        oracle.scores(torch.arange(40), x)
        assert sum(len(inputs) for inputs, _ in memory._asked) <= 200
    memory.fit()
    assert 40 + 50 <= memory.cost.answers <= 40 + 100


def test_a_model_that_answers_at_random_teaches_nothing_and_breaks_nothing(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 60)
    model = Bent(noise=torch.Generator().manual_seed(5))
    ledger = attacked(64, memory="0.2", steps=30, model=model)
    assert (ledger.costs.forwards >= 1).all() and (ledger.costs.forwards <= 31).all()
    assert ledger.best.closest.isfinite().all()


def test_ten_queries_are_enough_to_begin_and_never_exceeded(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 60)
    for queries in (1, 2, 10):
        ledger = attacked(64, memory="0.2", queries=queries)
        assert (ledger.costs.forwards <= queries).all() and (ledger.costs.forwards >= 1).all()


def test_a_wave_that_misleads_loses_its_weight(monkeypatch):
    """A memory that learned the opposite of every answer is told so by the next queries."""
    monkeypatch.setattr(module, "FEWEST", 60)
    plain = queries_of(attacked(64, memory="false"), 101)
    monkeypatch.setattr(module, "centred", lambda logits: logits.mean(1, keepdim=True) - logits)
    original = Memory._train

    def mislead(self, x, answers, steps):
        original(self, x, answers, steps)
        self.network.module[-1].weight.neg_()
        self.network.module[-1].bias.neg_()

    monkeypatch.setattr(Memory, "_train", mislead)
    misguided_queries = queries_of(attacked(64, memory="true"), 101)
    assert misguided_queries.mean() < 1.3 * plain.mean(), (misguided_queries.mean(), plain.mean())


@pytest.mark.parametrize("memory", ["2", "-0.1"])
def test_a_share_beyond_the_queries_is_refused(memory):
    with pytest.raises(Exception, match="a share of the queries, at most 1, or true"):
        plugins.build("attack", "rlab", {"memory": memory})


@pytest.mark.slow
def test_rows_are_those_of_one_process_for_one_and_two_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 20)
    settings = {
        "attack": "rlab?memory=0.05&steps=20&clean_up=false&refine=0",
        "norm": "l2",
        "eps": "1",
        "samples": "first:40",
    }
    folders = []
    pools = []

    def pool_of(call, count):
        if call.channel is None:
            pools.append(Workers(command_of(call), count, random.Random(count)))
            return pools[-1]
        return call.channel

    for count in (0, 1, 2):
        folders.append(tmp_path / str(count))
        with monkeypatch.context() as patch:
            if count:
                patch.setattr(Call, "pool", lambda call, count=count: pool_of(call, count))
            brinell.audit("digits-cnn", "digits", out=folders[-1], **settings)
    first, *others = (rows_of(folder) for folder in folders)
    assert len(pools) == 2 and all(rows_match(first, rows) for rows in others)
    passes = [table["surrogate_passes"].to_pylist() for table in first.values()]
    assert any(count for column in passes for count in column), "there was a memory"
