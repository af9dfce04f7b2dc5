"""Stages by name, and stages that are kept to the samples near the boundary."""

import re

import numpy as np
import pytest
import torch

from _helpers import Recorder, cells_of, plan_of, run_audit, run_plan, states_of, threshold
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.engine.adaptive import MASKING
from brinell.engine.attack_names import CASCADES, PRESETS
from brinell.engine.cascade import Turn, build_stages
from brinell.engine.progress import SilentProgress

R, B = "robust", "broken"

LEVELS = [0.05, 0.1, 0.15, 0.2]
STATES = [[R, R, B, B], [B, B, B, B], [R, R, R, R], [B, B, B, B], [R, R, R, B]]
# Margins 0.12, 0.02, 0.30, wrong from the start, 0.19.
X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)


def outcomes(folder, *attacks):
    """By sample what became of the last attack on it, and the state at each budget."""
    run = run_audit(folder, Recorder(threshold(0.5)), X, Y, eps="0.05,0.1,0.15,0.2", attack=attacks)
    rows, states = cells_of(run.rows), states_of(run)
    last = {
        sample: outcome for (_, attack, sample), outcome in rows.items() if attack == attacks[-1]
    }
    assert [
        [states["recorder", attacks[-1], sample, level] for level in LEVELS]
        for sample in range(len(X))
    ] == STATES
    return last


def test_every_name_builds(subtests):
    for name in [*CASCADES, *PRESETS]:
        with subtests.test(str((name,))):
            stages = build_stages((name,))
            assert [stage.name for stage in stages] == list(CASCADES.get(name, (name,)))


def test_the_standard_cascade_is_the_published_one():
    ce, targeted, fab, square = (stage.settings() for stage in build_stages(("standard",)))
    assert (ce["loss"], ce["steps"], ce["restarts"], ce["targets"]) == ("ce", 100, 1, 0)
    assert (targeted["loss"], targeted["steps"], targeted["restarts"], targeted["targets"]) == (
        "dlr",
        100,
        1,
        9,
    )
    assert (fab["steps"], fab["restarts"], fab["targets"]) == (100, 1, 9)
    assert (square["steps"], square["p_init"], square["rescale_schedule"]) == (5000, 0.8, False)


def test_a_stage_is_spared_what_is_far_from_the_boundary(tmp_path):
    """FGSM leaves a part of each clean margin: 0.02 of 0.12, 0.1 of 0.3, 0.04 of 0.19, at the
    largest budget it failed at.
    """
    nearby = outcomes(tmp_path / "near", "fgsm", "bim?steps=3&within=0.2")
    assert nearby == {0: "survived", 2: "spared", 4: "spared"}
    wide = outcomes(tmp_path / "wide", "fgsm", "bim?steps=3&within=0.34")
    assert wide == dict.fromkeys((0, 2, 4), "survived")


CLEAN = np.array([2.0, 1.0, 4.0, 1.0])
NEAREST = np.array([-0.2, -0.2, -1.0, 0.5])
LAST = np.array([-1.0, -np.inf, -0.4, -0.1])
DRAW = np.array([0.05, 0.2, 0.6, 0.95])


def test_who_gets_a_turn_by_hand(subtests):
    for turn, waits, attacked in [
        (Turn(), False, [True, True, True, True]),
        (Turn(within=0.1), False, [True, False, False, True]),
        (Turn(within=0.25), False, [True, True, True, True]),
        (Turn(last=0.1), False, [False, False, True, True]),
        (Turn(last=0.5), False, [True, False, True, True]),
        (Turn(share=0.5), False, [True, True, False, False]),
        (Turn(within=0.1, share=0.5), False, [True, False, False, False]),
        (Turn(when="masked"), True, [False] * 4),
        (Turn(when="masked"), False, [True] * 4),
    ]:
        with subtests.test(str((turn, waits, attacked))):
            assert (
                ~turn.spared_samples(CLEAN, NEAREST, LAST, draw=DRAW, waits=waits)
            ).tolist() == attacked


def test_a_stage_follows_the_one_just_before_it(tmp_path):
    """FGSM leaves 0.02 of 0.12, 0.1 of 0.3, 0.04 of 0.19; a look that goes to nobody leaves nobody
    for the stage after it.
    """
    attacks = ("fgsm", "bim?steps=3&last=0.2")
    assert outcomes(tmp_path / "one", *attacks) == {0: "survived", 2: "spared", 4: "spared"}
    attacks = ("fgsm", "bim?steps=2&share=0", "bim?steps=3&last=0.2")
    assert outcomes(tmp_path / "two", *attacks) == {}, "it has nothing to do, and no rows"


def rippled(ripple):
    """A linear rule, 20 times the mean, behind a ripple whose slope drowns that of the rule:
    amplitude 0.002, slope 10.
    """

    def logits(x):
        x = x + ripple * torch.sin(5000 * x)
        lead = 20 * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-lead, lead], 1)

    return logits


@pytest.mark.slow
@pytest.mark.parametrize("ripple", [0.0, 0.002])
@pytest.mark.nightly
def test_the_fast_cascade_spends_the_full_budget_where_gradients_mislead(tmp_path, ripple):
    """Means of about 0.445: a change of 0.05 crosses the plane at most samples, and without
    gradients it is not seen how.
    """
    x = 0.42 + 0.05 * torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = Recorder(rippled(ripple), Domain(kind="image", shape=(1, 8, 8)))
    run = run_audit(
        tmp_path / "run", model, x.numpy(), np.zeros(24, dtype=int), eps="0.05", attack=("fast",)
    )
    records = run.rows
    full = [stage["name"] for stage in run.manifest["stages"] if stage["turn"]["when"] == "masked"]
    assert len(full) == 4
    assert bool((records.forwards[np.isin(records.attack, full)] > 0).any()) == (ripple > 0)
    warnings = {warning["code"] for warning in run.manifest["warnings"]}
    assert bool(warnings & (MASKING | {Code.PROBE_AHEAD})) == (ripple > 0)


def test_the_full_budget_is_spent_where_gradient_attacks_cannot_run(tmp_path_factory, subtests):
    for access, norm, runs in [(3, "linf", False), (2, "linf", True), (3, "l1", True)]:
        with subtests.test(str((access, norm, runs))):
            tmp_path = tmp_path_factory.mktemp("row")
            model = Recorder(threshold(0.5))
            model.access = Access(access)
            attacks = ("pgd?steps=2", "square?steps=2", "square?steps=5&when=masked")
            run = run_audit(tmp_path / "run", model, X, Y, eps="0.001", norm=norm, attack=attacks)
            records = run.rows
            assert bool(records.forwards[records.attack == attacks[-1]].sum() > 0) == runs


def test_stages_have_names_for_people():
    titles = [
        stage.title
        for stage in build_stages(
            ("apgd-t?steps=30", "square?last=0.6", "apgd-ce?eot=20&when=masked")
        )
    ]
    assert titles == [
        "APGD-T, 9 targets, 30 steps",
        "Square, 5000 steps, if the stage before left ≤ 60 %",
        "APGD-CE, 100 steps, EOT over 20 answers, if gradients are masked",
    ]
    shorts = [
        stage.short
        for stage in build_stages(
            ("apgd-t?steps=30", "square?last=0.6", "apgd-ce?eot=20&when=masked")
        )
    ]
    assert shorts == [
        "APGD-T, 9 targets, 30 steps",
        "Square, 5000 steps",
        "APGD-CE, 100 steps, EOT over 20 answers",
    ]
    repeated_titles = [stage.title for stage in build_stages(("apgd-ce", "apgd-ce?steps=100"))]
    assert repeated_titles == [
        "APGD-CE, 100 steps (apgd-ce)",
        "APGD-CE, 100 steps (apgd-ce?steps=100)",
    ], "never two alike"
    (fab,) = build_stages(("fab-t?targets=1&steps=50&stop_at_eps=true&share=0.125",))
    assert (fab.label, fab.kept_to) == (
        "FAB-T, 1 target, 50 steps",
        "stop at eps, on 12.5 % of the samples",
    )
    assert fab.title == "FAB-T, 1 target, 50 steps, stop at eps, on 12.5 % of the samples"
    (repaired,) = build_stages(("apgd-ce?gradient=repaired",))
    assert (repaired.label, repaired.kept_to) == (
        "APGD-CE, 100 steps",
        "around what breaks the gradient (BPDA)",
    )
    for name in CASCADES:
        assert len({stage.title for stage in build_stages((name,))}) == len(CASCADES[name])


def test_turns_that_make_no_sense_are_refused():
    for spec in (
        "within=2",
        "last=-0.1",
        "share=x",
        "alone=maybe",
        "when=never",
        "gradient=none",
        "eot=0",
        "eot=1.5",
    ):
        with pytest.raises(RequestError, match=spec.partition("=")[0]):
            build_stages((f"pgd?{spec}",))


class Lines(SilentProgress):
    """Keeps the notes of a run."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def linear_model(rng):
    """A linear network of some classes on five values."""
    classes = int(rng.integers(2, 5))
    weights = torch.from_numpy(rng.normal(size=(classes, 5))).float()
    domain = Domain(kind="vector", shape=(5,))
    return Recorder(lambda x: (x - 0.5) @ weights.T, domain, classes)


def test_who_stops_at_eps_breaks_as_small_budgets_as_who_does_not(tmp_path, subtests):
    rng = np.random.default_rng(5)
    for number, attack in enumerate(("ray-s?steps=400", "fab?steps=30", "boundary-walk?steps=6")):
        with subtests.test(attack):
            model = linear_model(rng)
            x = rng.uniform(size=(12, 5)).astype(np.float32)
            labels = model.predict(torch.from_numpy(x)).argmax(1).numpy()
            broken = []
            for stops in ("false", "true"):
                run = run_audit(
                    tmp_path / f"{number}{stops}",
                    model,
                    x,
                    labels,
                    eps="0.05,0.1,0.2,0.4,0.8",
                    attack=(f"{attack}&stop_at_eps={stops}",),
                )
                rows = run.rows.attack != "clean"
                broken.append(np.ma.filled(run.rows.broken[rows], np.inf))
            assert (broken[0] == broken[1]).all() and len(np.unique(broken[0])) > 2


def test_a_run_says_at_its_start_what_it_costs_at_most(tmp_path, subtests):
    rng = np.random.default_rng(6)
    for number in range(4):
        attacks = ("fgsm", "apgd-ce?steps=5", "square?steps=20&when=masked", "ray-s?steps=50")
        chosen = tuple(rng.permutation(attacks)[: rng.integers(1, 5)])
        with subtests.test(str(chosen)):
            model, progress = linear_model(rng), Lines()
            x = rng.uniform(size=(9, 5)).astype(np.float32)
            labels = model.predict(torch.from_numpy(x)).argmax(1).numpy()
            labels[0] = (labels[0] + 1) % model.classes
            plan = plan_of(model, x, labels, eps="0.1,0.3", attack=chosen)
            run = run_plan(plan, tmp_path / str(number), progress=progress)
            (line,) = [note for note in progress.notes if "the attacks cost" in note]
            said = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) passes", line)]
            attacked = run.rows.attack != "clean"
            spent = run.rows.forwards[attacked].sum() + run.rows.backwards[attacked].sum()
            assert spent <= said[-1] and said == sorted(said)
            assert len(said) == 1 + any("when" in attack for attack in chosen)
