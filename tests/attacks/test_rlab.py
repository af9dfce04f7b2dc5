"""RLAB as an attack: what is asked for in words, and what is refused before the model sees
anything.
"""

import numpy as np
import pytest
import torch

from _helpers import (
    Recorder,
    batch_of,
    distance,
    plan_of,
    run_attack,
    run_audit,
    threat_of,
    threshold,
    workspace,
)
from brinell import plugins
from brinell.attacks.rlab import RLAB
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.distortions.dead_pixel import DeadPixel
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.rlab.agent import Agent
from brinell.rlab.policy import PatchNetwork
from brinell.rlab.prior import Prior

FILTERS = '''
from dataclasses import dataclass
from typing import ClassVar

import torch

from brinell.core.domain import KINDS
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Darker:
    """Takes away a fifth for each severity."""

    share: float = 0.2

    domains: ClassVar = frozenset(KINDS)
    access: ClassVar = Access.LABELS

    def draws(self, shape):
        return 1

    def __call__(self, x, severity, rng, draw):
        return x * (1 - self.share * severity.view(-1, *[1] * (x.ndim - 1)))


class Cut(Darker):
    def __call__(self, x, severity, rng, draw):
        return x[..., :-1]


class Dice(Darker):
    def __call__(self, x, severity, rng, draw):
        noise = torch.rand(x.shape, generator=self.dice)
        return (x + 0.1 * noise).clamp(0, 1)

    dice = torch.Generator()


class Films(Darker):
    domains = frozenset({"video"})


class Nothing:
    pass


@dataclass(frozen=True, kw_only=True)
class Bare:
    pass
'''
REFUSALS = [
    (
        "patch=9",
        r"patch \(9,\) does not fit an input of shape \(2,\): a side must be between 1 and 2",
    ),
    ("patch=1&stride=2", "stride is 2: between 1 and `patch`"),
    (
        "patch=2x2",
        r"patch \(2, 2\) with stride|patch \(2, 2\) .* does not fit an input of shape \(2,\)",
    ),
    ("patch=2x", "'2x' are no sides: write one for all axes"),
    ("patch=1&stride=1x1", "patch .1,. with stride .1, 1. does not fit"),
    ("stride=1x1", "stride is 1x1: between 1 and `patch`"),
    (
        "distortions=gaussian-nois",
        "there is no distortion 'gaussian-nois', did you mean 'gaussian-noise'?",
    ),
    ("distortions=", "'' names no distortions: write NAME\\+NAME"),
    ("distortions=fog++fog", "names no distortions: write NAME\\+NAME"),
    (
        "distortions=dead-pixel(value=0.5",
        "names no distortions: write NAME\\+NAME, and options as NAME",
    ),
    ("distortions=dead-pixel(value)", "names no distortions: .* options as NAME"),
    (
        "distortions=dead-pixel(wert=0.5)",
        "distortion dead-pixel has no option .wert.; it has: value",
    ),
    ("severities=6", r"severities are \(6,\)"),
    ("severities=1+x", "option severities of attack rlab is 'x'"),
    (
        "policy=nowhere.safetensors",
        "there is no policy 'nowhere.safetensors': name default, prior, dqn, greedy or a file",
    ),
    ("policy={file}", "is no policy: name a file that `brinell train agent` wrote"),
    (
        "policy={folder}/mixed.safetensors",
        "chooses among 10 pairs of distortion and severity, and there are 5: name the distortions",
    ),
]
REFUSALS_OF_FILES = [
    (
        "distortions={file}:Dice",
        "distortion .*Dice gave two answers to the same input and streams",
    ),
    (
        "distortions={file}:Films",
        "distortion Films distorts video, and the data is of kind vector: leave it out",
    ),
    ("distortions=gaussian-noise+{file}:Cut", "distortion Cut made"),
    ("distortions={file}:Nothing", "Nothing in .* is no dataclass: write @dataclass"),
    ("distortions={file}:Bare", "Bare is no distortion: it must have domains and draws"),
    ("distortions={file}:Darkr", "has no class 'Darkr', did you mean 'Darker'?"),
]
"""Distortions of a user, each of which is loaded in a process of its own."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data and a model as a user has them, distortions of the user's own, and policies."""
    folder = workspace(tmp_path_factory.mktemp("rlab"), n=8)
    (folder / "distortions.py").write_text(FILTERS)
    for name, families in (("mixed", 11), ("single", 6), ("any", 1)):
        Agent(prior=Prior(1), network=PatchNetwork(families, width=8)).save(
            folder / f"{name}.safetensors"
        )
    return folder


def model(access=Access.SCORES):
    recorder = Recorder(threshold(0.5), Domain(kind="vector", shape=(2,)))
    recorder.access = access
    return recorder


X, Y = np.full((4, 2), 0.4, dtype=np.float32), np.zeros(4, dtype=np.int64)


def check_refusals(rows, folder, subtests):
    """Each is refused in one line before the model is asked."""
    for options, line in rows:
        with subtests.test(options=options):
            victim = model()
            options = options.format(file=folder / "distortions.py", folder=folder)
            with pytest.raises(BrinellError, match=line) as error:
                plan_of(victim, X, Y, attack=(f"rlab?{options}",), norm="l2")
            assert not victim.calls and "\n" not in str(error.value) and error.value.exit_code == 2


def test_refused_before_the_model_sees_anything(folder, subtests):
    check_refusals(REFUSALS, folder, subtests)


@pytest.mark.slow
def test_distortions_of_files_are_refused_before_the_model_sees_anything(folder, subtests):
    check_refusals(REFUSALS_OF_FILES, folder, subtests)


def test_patches_in_space_and_time():
    """One side for all axes, or one for each; where nothing is said, eight pieces along each axis
    of a video.
    """
    video = Domain(kind="video", shape=(3, 16, 64, 64))
    forms = {"4x16x16": (4, 16, 16), "8": (8, 8, 8), "0": (2, 8, 8), "32x64": (32, 64)}
    for text, patch in forms.items():
        assert plugins.build("attack", "rlab", {"patch": text}).grid(video).patch == patch
    overlapping = plugins.build("attack", "rlab", {"patch": "4x16x16", "stride": "2x8x16"}).grid(
        video
    )
    assert (overlapping.steps, overlapping.lattice) == ((2, 8, 16), (7, 7, 4))
    assert plugins.build("attack", "rlab", {"patch": "4x16x16", "stride": "4"}).grid(
        video
    ).steps == (4, 4, 4)
    assert plugins.settings_of(plugins.build("attack", "rlab", {"patch": "2"}))["patch"] == 2, (
        "the same setting however it was given"
    )


def test_a_model_that_answers_labels_only_is_refused():
    victim = model(Access.LABELS)
    with pytest.raises(
        RequestError, match="rlab: it needs scores, and the model gives labels only"
    ):
        plan_of(victim, X, Y, attack=("rlab",), norm="l2")
    assert not victim.calls


@pytest.mark.parametrize("policy", ["single", "any"])
def test_a_policy_for_as_many_choices_or_none_serves(folder, policy):
    plan_of(model(), X, Y, attack=(f"rlab?policy={folder}/{policy}.safetensors",), norm="l2")


def test_filters_in_words():
    attack = plugins.build(
        "attack",
        "rlab",
        {"distortions": "gaussian-noise+dead-pixel(value=0.5)", "severities": "1+2"},
    )
    assert attack.distortions == (GaussianNoise(), DeadPixel(value=0.5)) and attack.severities == (
        1,
        2,
    )
    assert plugins.build(
        "attack", "rlab", {"distortions": "dead-pixel(value=0.25)"}
    ).distortions == (DeadPixel(value=0.25),)
    assert plugins.build("attack", "rlab", {"severities": "3"}).severities == (3,)


@pytest.mark.slow
def test_a_filter_of_ones_own_is_used(folder, tmp_path):
    """Class 1 below 0.5: only what darkens can do it, which noise of severity 1 cannot.

    The attack's name is part of its seed, and the name of the file part of that: steps enough for
    any of them.
    """
    model = Recorder(lambda x: threshold(0.5)(1 - x), Domain(kind="vector", shape=(2,)))
    x = np.full((4, 2), 0.8, dtype=np.float32)
    for distortions, fooled in ((f"{folder / 'distortions.py'}:Darker", 4), ("gaussian-noise", 0)):
        severity = 5 if fooled else 1
        attack = f"rlab?distortions={distortions}&severities={severity}&steps=40&patch=1&draws=1"
        run = run_audit(tmp_path / str(fooled), model, x, Y, attack=(attack,), norm="l2", eps="1")
        records = run.rows
        assert int((records.outcome == "broken").sum()) == fooled


@pytest.mark.parametrize("settings", [{}, {"refine": "5"}])
def test_queries_are_counted_and_bounded(settings):
    """Two samples of which one can be fooled: as many inputs were seen as the ledger says, and no
    more than `cost` foretells.
    """
    model = Recorder(
        lambda x: threshold(0.7)(x.mean((1, 2))[:, None]), Domain(kind="signal", shape=(1, 8))
    )
    attack = plugins.build(
        "attack", "rlab", {"patch": "1", "steps": "60", "policy": "greedy", **settings}
    )
    x = np.stack([np.full((1, 8), start, dtype=np.float32) for start in (0.69, 0.0)])
    ledger = run_attack(attack, model, x, np.zeros(2, dtype=np.int64), 0.5, "l2")
    assert ledger.fooled.tolist() == [True, False]
    assert (
        model.queries == int(ledger.costs.forwards.sum())
        and int(ledger.costs.forwards.max()) <= attack.cost(2)[0]
    )


def test_a_run_says_which_policy_placed_and_why():
    """The prior where it saves queries, on images, and greedy elsewhere."""
    for kind, shape, name in (("image", (1, 4, 4), "prior"), ("signal", (1, 16), "greedy")):
        target = Recorder(
            lambda x: threshold(0.7)(x.flatten(1).mean(1)[:, None]), Domain(kind=kind, shape=shape)
        )
        batch, threat = (
            batch_of(torch.full((1, *shape), 0.65), [0]),
            threat_of(0.5, "l2", target.domain),
        )
        attack = plugins.build("attack", "rlab", {"steps": "2", "severities": "1", "draws": "1"})
        ledger = Ledger(target, batch, threat, access=attack.access)
        remarks = attack(ledger.oracle(), batch, threat, Streams.of(0, batch.ids)).remarks
        assert [remark.code for remark in remarks] == ["policy"]
        assert (
            remarks[0].text.startswith(f"placed by the policy {name}: ")
            and "docs/results/rlab.md" in remarks[0].text
        )


def test_without_a_named_distortion_photographs_get_signed_patches_and_the_rest_noise():
    attack = plugins.build("attack", "rlab", {})
    for kind, shape, word in [
        ("image", (3, 224, 224), "SignedPatch"),
        ("image", (1, 32, 65), "SignedPatch"),
        ("image", (3, 64, 64), "GaussianNoise"),
        ("signal", (1, 187), "GaussianNoise"),
        ("video", (3, 8, 112, 112), "GaussianNoise"),
        ("vector", (300,), "GaussianNoise"),
    ]:
        domain = Domain(kind=kind, shape=shape)
        placed = {type(variant.distortion).__name__ for variant in attack.variants(domain)}
        assert placed == {word}
        named = plugins.build("attack", "rlab", {"distortions": "dead-pixel"})
        assert {type(part) for part in named.placed(domain)} == {DeadPixel}


def test_works_within_a_square():
    """All weight lies in one square of 4 x 4, and 3 x 3 of it are too few: the patches are placed
    there, every input differs in one square alone, and too small a one is never enough.
    """
    domain = Domain(kind="image", shape=(1, 12, 12))
    weight = torch.zeros(1, 12, 12)
    weight[:, 5:9, 2:6] = 1.0

    def function(z):
        total = (z * weight).flatten(1).sum(1)
        return torch.stack([torch.full_like(total, 12.51), total], 1)

    x = torch.full((6, 1, 12, 12), 0.5)
    eps = torch.tensor([5.0, 6.0, 7.9, 3.0, 2.0, 0.0])
    model = Recorder(function, domain)
    ledger = run_attack(RLAB(steps=300, draws=4), model, x, [0] * 6, eps, "patch")
    assert ledger.fooled.tolist() == [True, True, True, False, False, False]
    changed = (torch.cat(model.calls) - 0.5).ne(0)
    assert distance("patch").size(changed.float()).max() <= 7
    assert ledger.costs.forwards[5] == 0 and ledger.costs.forwards.max() <= 301
