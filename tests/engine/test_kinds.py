"""Whatever kind of answers a network gives, it is recognised, told, and has one headline."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _defences import OneHot, Scaled, Softmax, Wrapper
from _helpers import (
    Recorder,
    asked_elsewhere,
    batch_of,
    distance,
    mlp,
    plan_of,
    rows_of,
    run_audit,
    verify,
)
from _refusals import refused
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import ModelError, RequestError
from brinell.core.model import Access, ModelInfo
from brinell.core.streams import Streams
from brinell.engine.answers import SAMPLES, check_answer_kind, grid
from brinell.engine.checks import kind_of_answers as kind_check
from brinell.engine.context import CheckContext
from brinell.models._answers import (
    KINDS,
    LogitModel,
    SquashingInputs,
    kind_of_answers,
    logits_of_difference,
    logits_of_sigmoids,
    recognise_answers,
)
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))
DRAW = torch.Generator().manual_seed(5)
X = torch.rand(30, 6, generator=DRAW)
LOGITS = 5 * torch.randn(64, 10, generator=DRAW)
BINARY = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
with torch.no_grad():
    for parameter in BINARY.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=DRAW))
    BINARY[3].bias -= BINARY(X).median()


class Behind(Wrapper):
    """A network whose answers a function changes."""

    def __init__(self, net, function):
        super().__init__(net)
        self.function = function

    def forward(self, x):
        return self.function(self.net(x))


def behind(function):
    return lambda net: Behind(net, function)


def rounded(z):
    p = z.softmax(1)
    return p + (p.round(decimals=2) - p).detach()


LogSoftmax, Sigmoids = behind(lambda z: z.log_softmax(1)), behind(torch.sigmoid)
Opaque = behind(lambda z: z.exp() / z.exp().sum(1, keepdim=True))
"""Probabilities that no function of torch made, so that nothing can be read before them."""


# Known answers


def test_each_kind_is_recognised():
    for answers, kind in [
        (LOGITS, "logits"),
        (LOGITS.softmax(1), "probabilities"),
        (LOGITS.softmax(1).half(), "probabilities"),
        (LOGITS.log_softmax(1), "log-probabilities"),
        (LOGITS.sigmoid(), "sigmoids"),
        (LOGITS[:, :1], "logit"),
        (LOGITS[:, :1].sigmoid(), "probability"),
        (nn.functional.one_hot(LOGITS.argmax(1), 10).float(), "one-hot"),
        (nn.functional.one_hot(LOGITS.argmax(1), 10) * 10.0 - 3, "one-hot"),
        (torch.tensor([[0.3, 0.7]]), "probabilities"),
        (torch.tensor([[3.0, -1.0, -1.0]]), "logits"),
        (0.3 + 0.4 * LOGITS.sigmoid(), "logits"),
    ]:
        assert kind_of_answers(answers) == kind and kind in KINDS


def test_conversions_by_hand():
    assert logits_of_difference(torch.tensor([[2.0], [-4.0]])).tolist() == [
        [-1.0, 1.0],
        [2.0, -2.0],
    ]
    values = torch.tensor([[0.0, 0.5, 0.75, 1.0]])
    low, middle, right, high = logits_of_sigmoids(values)[0].tolist()
    assert (
        middle == 0
        and abs(right - np.log(3)) < 1e-6
        and low == pytest.approx(-87.3365, abs=1e-3)
        and high == pytest.approx(16.6355, abs=1e-3)
    )


def test_a_grid_is_seen_and_its_step():
    for step in (0.5, 0.01, 1 / 255):
        values = LOGITS if step == 0.5 else LOGITS.softmax(1)
        assert grid((values / step).round() * step) == pytest.approx(step, rel=1e-3)
        assert grid((values / step).round() * step + 1e-4 * LOGITS.roll(1, 0)) is None
    for values in (
        LOGITS,
        LOGITS.bfloat16().float(),
        LOGITS.half().float(),
        LOGITS.softmax(1),
        torch.zeros(64, 10),
    ):
        assert grid(values) is None


def test_what_went_into_a_softmax_is_read_exactly():
    z = LOGITS[:4].clone()
    with SquashingInputs() as recorder:
        through = nn.functional.softmax(z, dim=1).float().reshape(4, 10)
        probabilities, classes = torch.softmax(z, 0), torch.sigmoid(z)[:, :3]
    logits, explained, kind = recorder.before(through)
    assert torch.equal(logits, z) and bool(explained.all()) and kind == "probabilities"
    assert recorder.before(probabilities) is None and recorder.before(classes) is None


# Models


def network(module):
    return recognise_answers(TorchModel(module.eval(), SIX), X)


@pytest.mark.parametrize("wrap", [Softmax, Sigmoids])
def test_no_digit_is_lost_to_saturation(wrap):
    """Logits a hundred times too large: every probability is 0 or 1, and gradients are there all
    the same.

    Where the answer ties, the class that it names first leads.
    """
    plain, squashed = Scaled(mlp(6, 3), 100.0), network(wrap(Scaled(mlp(6, 3), 100.0)))
    leader = wrap(plain)(X).argmax(1)
    same = leader == plain(X).argmax(1)
    assert torch.equal(squashed.predict(X)[same], plain(X)[same]) and int(same.sum()) > len(X) / 2
    assert torch.equal(squashed.predict(X).argmax(1), leader)
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad((squashed.predict(x)[:, 0] - squashed.predict(x)[:, 1]).sum(), x)
    assert bool((grad != 0).any(1).all())


def test_what_goes_into_a_function_that_flattens_logits_stands_in_for_them():
    plain = Scaled(mlp(6, 3), 30.0)
    for function in (
        lambda z: torch.tanh(z) / 2 - 1.0,
        nn.functional.softsign,
        lambda z: 3 * z.softmax(1),
    ):
        answers = network(Behind(plain, function))
        assert answers.info.answers == "squashed" and torch.equal(answers.predict(X), plain(X))
        assert torch.equal(LogitModel(answers.model, "squashed").predict(X), plain(X)), (
            "as a run that goes on has it"
        )
    for function in (
        lambda z: -torch.tanh(z),
        lambda z: torch.tanh(z) * z,
        lambda z: torch.tanh(z).flip(1),
    ):
        assert network(Behind(mlp(6, 3), function)).info.answers is None, "another order of classes"


def test_the_kind_belongs_to_the_digest_and_the_rest_stays():
    inner = TorchModel(Softmax(mlp(6, 3)), SIX)
    model = LogitModel(inner, "probabilities")
    assert (
        model.digest() != inner.digest()
        and model.classes == 3
        and model.info.answers == "probabilities"
    )
    assert model.info.training is not None and network(mlp(6, 3)).info.answers is None


def test_what_cannot_be_so_is_told():
    class Later(Wrapper):
        def forward(self, x):
            p = self.net(x).exp()
            return p / p.sum(1, keepdim=True) * (1 if x[0, 0] < 1 else 3)

    model = network(Later(mlp(6, 3)))
    with pytest.raises(ModelError, match="now one is outside 0 to 1: say what it answers"):
        model.predict(torch.ones(1, 6))


def test_a_model_that_fails_on_some_inputs_is_recognised_by_the_others():
    class Fragile(Softmax):
        def forward(self, x):
            if bool((x == X[7]).all(1).any()):
                raise ValueError("not this one")
            return super().forward(x)

    assert network(Fragile(mlp(6, 3))).info.answers == "probabilities"


def test_the_check_says_what_the_answers_are():
    for wrap, words, passed in [
        (Wrapper, "answers are logits", True),
        (Softmax, "answers are probabilities", True),
        (Opaque, "answers are probabilities", True),
        (LogSoftmax, "logarithms of probabilities", True),
        (Sigmoids, "scores between 0 and 1", True),
        (OneHot, "one class alone", True),
        (behind(rounded), "rounded to multiples of 0.01", False),
    ]:
        model = network(wrap(mlp(6, 3)))
        with torch.no_grad():
            finding = check_answer_kind(model.predict(X), model)
        assert finding.code == Code.ANSWERS and finding.passed is passed and words in finding.text


# In a run


SHORT = ("apgd-ce?steps=20", "square?steps=60")


def headline(module, y, out, **options):
    settings = {"eps": "0.02,0.06", "attack": "apgd-ce?steps=20"}
    result = brinell.audit(module.eval(), (X, y), out=out, **(settings | options)).models[0]
    return [rate.k for rate in (result.clean_accuracy, *result.robust_accuracy)], result


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    y = mlp(6, 3)(X).argmax(1)
    return y, headline(mlp(6, 3), y, tmp_path_factory.mktemp("plain") / "run")[0]


def test_one_network_has_one_headline(tmp_path_factory, plain):
    y, expected = plain
    for wrap in (Opaque, LogSoftmax):
        tmp_path = tmp_path_factory.mktemp("row")
        figures, result = headline(wrap(mlp(6, 3)), y, tmp_path / "run")
        assert figures == expected and expected[0] == 30 and 0 < expected[1] < 30
        assert not [
            check
            for check in result.checks
            if check.passed is False and check.code != Code.UNCONSTRAINED
        ]


def test_a_single_number_is_two_classes(tmp_path):
    y = (BINARY(X)[:, 0] > 0).long()
    assert 5 < int(y.sum()) < 25
    one, two = (
        behind(lambda z: torch.sigmoid(z).squeeze(1)),
        behind(lambda z: torch.cat([0 * z, z], 1)),
    )
    expected, _ = headline(two(BINARY), y, tmp_path / "two", attack="fgsm")
    figures, result = headline(one(BINARY), y, tmp_path / "one", attack="fgsm")
    assert figures == expected and expected[0] == 30 and expected[-1] < 30
    assert brinell.verify(result.folder, one(BINARY).eval(), (X, y)).passed


def softmax(x):
    return mlp(6, 3)(x).softmax(1)


def test_what_the_kind_is_recognised_by_is_counted_and_asked_once(tmp_path):
    """A model that counts by itself: its kind costs sixteen forwards; a run that goes on, and a
    verification, ask for none.
    """
    model, y = Recorder(softmax, SIX, 3), mlp(6, 3)(X).argmax(1)
    run = run_audit(tmp_path / "run", model, X, y, eps="0.02", attack=("fgsm",))
    records, costs = run.rows, run.manifest["probes"]["recorder"]
    assert run.manifest["answers"] == {"recorder": "probabilities"} and [
        len(x) for x in model.calls[:2]
    ] == [SAMPLES, len(X)]
    asked = records.forwards.sum() + records.judge_forwards.sum() + costs["forwards"]
    assert model.queries + asked_elsewhere(run) == asked
    declared = Recorder(softmax, SIX, 3)
    declared.info = ModelInfo(answers="logits")
    without = run_audit(tmp_path / "said", declared, X, y, eps="0", attack=("fgsm",))
    assert "recorder" not in without.manifest["answers"] and len(declared.calls[0]) == len(X)
    resumed = Recorder(softmax, SIX, 3)
    resumed_run = run_audit(
        tmp_path / "run", resumed, X, y, resume=True, eps="0.02", attack=("fgsm",)
    )
    assert resumed_run.manifest["probes"]["recorder"] == costs and not resumed.queries
    assert rows_of(resumed_run.rows) == rows_of(records)
    proof = Recorder(softmax, SIX, 3)
    assert verify(run, plan_of(proof, X, y, eps="0.02", attack=("fgsm",))).passed


def test_no_bad_input_costs_a_query(tmp_path):
    """A plan and a dry run refuse invalid requests before they query the model."""
    model, y = Recorder(softmax, SIX, 3), mlp(6, 3)(X).argmax(1)
    with pytest.raises(RequestError, check=refused("engine.plan.check_names")):
        plan_of((model, model), X, y)
    with pytest.raises(RequestError):
        brinell.audit(model, (X, y), eps="0.1", targeted="7", out=tmp_path / "run")
    plan_of(model, X, y)
    assert not model.queries and not (tmp_path / "run").exists()


def test_the_user_knows_better(tmp_path):
    """A single logit that lies between 0 and 1 on all data."""
    unsure, y = behind(lambda z: z.sigmoid() * 0.5 + 0.25)(BINARY), torch.ones(30, dtype=torch.long)
    assert headline(unsure, y, tmp_path / "a", answers="logit", attack=SHORT)[0][0] == 30
    assert 0 < headline(unsure, y, tmp_path / "b", attack=SHORT)[0][0] < 30
    with pytest.raises(
        RequestError, match="answers is 'odds'; it is one of labels, logits, probabilities"
    ):
        headline(unsure, y, tmp_path / "c", answers="odds")
    with pytest.raises(RequestError, match="a spec says it itself"):
        brinell.audit("digits-cnn", "digits", answers="logits")


def test_whole_weights_on_a_grid_of_inputs_round_nothing():
    """Three sound models whose answers to stored digits lie on a grid, and one that rounds."""
    rng = torch.Generator().manual_seed(2)
    x = torch.randint(0, 17, (40, 6), generator=rng) / 16
    ternary = nn.Linear(6, 3, bias=False)
    ternary.weight.data = torch.randint(-1, 2, (3, 6), generator=rng).float()
    whole = nn.Linear(6, 3)
    whole.weight.data = torch.randint(-8, 9, (3, 6), generator=rng).float()
    whole.bias.data = torch.randint(-8, 9, (3,), generator=rng).float()
    stored = torch.randint(0, 17, (3, 20, 6), generator=rng) / 16

    def nearest(x):
        return -torch.cdist(x[None], stored, p=1).amin(2).T

    for change, passed in (
        (ternary, True),
        (whole, True),
        (nearest, True),
        (lambda x: (16 * ternary(x)).round() / 16, False),
        (lambda x: (4 * whole(x)).round() / 4, False),
    ):
        model = Recorder(lambda x, change=change: change(x).detach(), SIX, 3)
        model.access = Access.SCORES
        assert grid(change(x).detach()) is not None, "on stored inputs all five look rounded"
        batch = batch_of(x, change(x).argmax(1))
        context = CheckContext(model, batch, distance("linf"), 0.1, Streams.of(0, batch.ids))
        finding = kind_check(context)
        assert finding.passed is passed, finding.text


def test_voters_that_agree_on_all_inputs_are_told_from_labels_alone():
    rng = torch.Generator().manual_seed(6)
    for voters in torch.randint(3, 9, (6,), generator=rng).tolist():
        cuts = torch.rand(voters, generator=rng) / 10 + 0.45
        x = (torch.arange(10) % 2)[:, None].repeat(1, 6) + torch.rand(10, 6, generator=rng) / 20
        x[:, 1:] /= 2

        def share(x, cuts=cuts):
            labels = (x[:, :1] > cuts).long()
            return nn.functional.one_hot(labels, 3).float().mean(1)

        def labels(x, share=share):
            return nn.functional.one_hot(share(x).argmax(1), 3).float()

        for answers, is_refused in ((share, False), (labels, True)):
            model = Recorder(lambda x, answers=answers: answers(x).clamp_min(1e-30).log(), SIX, 3)
            model.access, model.info = Access.SCORES, replace(model.info, answers="probabilities")
            batch = batch_of(x.clamp(0, 1), answers(x).argmax(1))
            assert (answers(batch.x).amax(1) == 1).all(), "all voters agree on what is stored"
            context = CheckContext(model, batch, distance("linf"), 0.1, Streams.of(0, batch.ids))
            assert (kind_check(context).passed is False) is is_refused, voters


def test_votes_are_no_rounding():
    """Shares of few votes lie on a grid by nature; the same shares, rounded, do not add up."""
    rng = torch.Generator().manual_seed(5)
    for votes in torch.randint(10, 60, (6,), generator=rng).tolist():
        members = torch.randn(votes, 6, 5, generator=rng)

        def share(x, members=members):
            first = torch.einsum("nf,vfc->nvc", x - 0.5, members).argmax(2)
            return nn.functional.one_hot(first, 5).float().mean(1)

        def rounded(x, votes=votes, weight=members[0]):
            return (votes * ((x - 0.5) @ weight).softmax(1)).round() / votes

        for answers, passed in ((share, None), (rounded, False)):
            model = Recorder(lambda x, answers=answers: answers(x).clamp_min(1e-30).log(), SIX, 5)
            model.access, model.info = Access.SCORES, replace(model.info, answers="probabilities")
            batch = batch_of(X, answers(X).argmax(1))
            context = CheckContext(model, batch, distance("linf"), 0.1, Streams.of(0, batch.ids))
            finding = kind_check(context)
            assert finding.passed is passed, (votes, finding.text)
            assert passed is False or f"shares of {votes} votes" in finding.text
