"""What an agent is worth: mean queries that can be computed by hand, and the words for them."""

import pytest
import torch

from _helpers import Recorder, batch_of, threat_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.agent import Agent, verdict
from brinell.rlab.distort import variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.prior import Prior
from brinell.rlab.train import held_out, validate

DOMAIN = Domain(kind="signal", shape=(1, 16))


class Knows(Prior):
    """Energy on patch `at` alone."""

    def __init__(self, patch):
        super().__init__(1)
        self.at = patch

    def energies(self, content):
        energies = torch.full(content.shape[:2], 1e-6)
        energies[:, self.at] = 1.0
        return energies


def validated(agent, n=36, eps=1.0, bias=-0.5, steps=20):
    """A model that patch 5 of 16 decides alone; each step changes one patch."""

    def logits(x):
        z = 8 * (x.flatten(1)[:, 5] - 0.5) + bias
        return torch.stack([-z, z], 1)

    batch = batch_of(torch.full((n, 1, 16), 0.5), torch.zeros(n, dtype=torch.int64))
    model, threat = Recorder(logits, DOMAIN), threat_of(eps, "l2", DOMAIN, n=n)
    ledger = Ledger(model, batch, threat, access=Access.SCORES, minimal=True)
    variant_list = variants([SignedPatch()], DOMAIN, (5,), 1)
    rules = Rules(steps=steps, p_init=1 / 16, candidates=1, offers=2)
    placement = Placement(
        grid=PatchGrid((1, 16), (1,)), variants=variant_list, rules=rules, slots=8
    )
    return validate(
        agent, ledger.oracle(), batch, threat, placement, Streams.of(0, batch.ids)
    ), model


def test_an_agent_that_knows_the_patch_is_told_apart_from_greedy():
    """It asks about the clean input, and then about the patch in one sign or the other: two or
    three queries.
    """
    report, model = validated(Agent(prior=Knows(5)))
    assert (
        report["inputs"] == 36
        and report["budget"] == 21
        and set(report["queries"]) == {"policy", "greedy"}
    )
    assert 2 <= report["queries"]["policy"] <= 3 < report["queries"]["greedy"] <= 21
    value, low, high = report["ratios"]["greedy"]
    assert (
        value == pytest.approx(report["queries"]["policy"] / report["queries"]["greedy"])
        and low <= value <= high < 1
    )
    queries = 36 * (report["queries"]["policy"] + report["queries"]["greedy"])
    assert model.queries == pytest.approx(queries), "every query is counted"
    facts = {"validation": report}
    assert verdict(facts).startswith(
        "on 36 inputs that it did not learn from, the policy needs fewer queries than greedy: "
    )


def test_an_agent_that_is_wrong_about_the_patch_is_warned_of():
    report, _ = validated(Agent(prior=Knows(11)))
    assert (
        report["queries"]["policy"] > report["queries"]["greedy"]
        and report["ratios"]["greedy"][1] > 1
    )
    assert "needs more queries than greedy" in verdict({"validation": report | {"cause": ""}})


def test_an_agent_that_fails_says_why(subtests):
    """A budget that no distortion fills, one that is always full, and a patch that nobody finds
    within the queries."""
    for cause, settings in (
        ("strength", {"eps": 3.5, "bias": -90.0}),
        ("eps", {"eps": 0.02}),
        ("queries", {"eps": 0.5, "steps": 1, "at": 11}),
    ):
        with subtests.test(cause):
            index = settings.pop("at", 5)
            report, _ = validated(Agent(prior=Knows(index)), **settings)
            assert report["cause"] == cause and report["fooled"] <= 18
            assert verdict({"validation": report}).startswith(
                f"on 36 inputs that it did not learn from, {36 - report['fooled']} were not"
            )


def test_without_inputs_nothing_is_said():
    report, model = validated(Agent(prior=Prior(1)), n=1)
    assert report is not None and model.queries
    assert verdict({}) == verdict(None) == ""
    assert [held_out(n) for n in (4, 8, 100, 1000)] == [0, 1, 20, 200]
