"""One attack in one line: exact margins on linear models, and nothing left behind in what it was
handed.
"""

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.core.errors import BrinellError
from brinell.testing import linear_problem

RNG = torch.Generator().manual_seed(0)
X = torch.rand(12, 3, 4, 4, generator=RNG)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(48, 3)
        self.head.weight.data = torch.randn(3, 48, generator=torch.Generator().manual_seed(1))

    def forward(self, x):
        return self.head(self.norm(x).flatten(1))


@pytest.fixture
def net():
    return Net()


def clean(net):
    with torch.no_grad():
        return net.eval()(X).argmax(1)


def test_success_is_what_the_exact_margin_says(subtests):
    for norm, attack in [
        ("linf", "apgd-ce?steps=10"),
        (2, "apgd?steps=10"),
        (np.inf, "pgd?steps=10"),
        ("l2", "fab"),
    ]:
        with subtests.test(norm=norm):
            problem = linear_problem("image", "l2" if norm in (2, "l2") else "linf")
            x, y, margin = problem.batch.x, problem.batch.y, problem.margin
            domain = problem.model.domain
            for share in (0.9, 1.1):
                settings = {
                    "norm": norm,
                    "bounds": (domain.low, domain.high),
                    "layout": "first",
                    "answers": "logits",
                }
                result = brinell.attack(
                    problem.model.predict, x, y, attack, eps=margin * share, **settings
                )
                assert result.success.all() == (share > 1) and bool(result.success.any()) == (
                    share > 1
                )
                assert (result.distance <= margin * share * 1.0001).all()
                assert result.x_adv.min() >= domain.low and result.x_adv.max() <= domain.high
                assert ((result.margin > 0) == result.success).all() and (result.queries > 0).all()
                wrong = problem.model.predict(result.x_adv).argmax(1) != y
                assert torch.equal(wrong, result.success)


def test_arguments_in_any_form_are_the_same_attack(net, subtests):
    """Inputs, labels, targets, budgets, bounds, mean and std: the plain call first."""
    y = clean(net)
    eps = torch.linspace(0.02, 0.2, 12)
    plain = {
        "x": X,
        "y": y,
        "eps": eps,
        "bounds": (0.0, 1.0),
        "mean": [0.25, 0.5, 0.5],
        "std": [0.5, 0.5, 1.0],
    }
    expected = brinell.attack(net, attack="pgd?steps=3", **plain)
    assert 0 < expected.success.sum()
    rows = [
        {"y": make(y)}
        for make in (
            list,
            tuple,
            np.asarray,
            *(lambda y, t=t: y.to(t) for t in (torch.uint8, torch.int32)),
        )
    ]
    rows += [{"y": y.numpy().astype(name)} for name in ("uint8", "int8", "int32", "uint16")]
    rows += [
        {"x": X.numpy()},
        {"x": X.numpy().astype(np.float64)},
        {"x": X.double()},
        {"x": X.tolist()},
    ]
    rows += [{"x": np.asfortranarray(X.numpy())}, {"x": X.numpy()[::-1][::-1]}]
    rows += [
        {"eps": make(eps)}
        for make in (
            np.asarray,
            lambda e: e.tolist(),
            lambda e: tuple(e.tolist()),
            lambda e: e.double(),
        )
    ]
    rows += [
        {"bounds": bounds}
        for bounds in ([0, 1], np.array([0, 1]), torch.tensor([0.0, 1.0]), (False, np.float32(1)))
    ]
    rows += [
        {key: make(plain[key])}
        for key in ("mean", "std")
        for make in (tuple, np.array, torch.tensor)
    ]
    for change in rows:
        with subtests.test(
            change=f"{[*change]} {[type(value).__name__ for value in change.values()]}"
        ):
            result = brinell.attack(net, attack="pgd?steps=3", **plain | change)
            for field in ("x_adv", "success", "distance", "margin", "queries", "backwards"):
                actual_value, expected_value = (
                    torch.as_tensor(getattr(source, field)).double()
                    for source in (result, expected)
                )
                torch.testing.assert_close(actual_value, expected_value, rtol=1e-5, atol=1e-5)


def test_robust_samples_come_with_the_worst_input_that_was_found(net):
    y = clean(net)
    result = brinell.attack(net, X, y, "pgd?steps=5", eps=0.001)
    assert not result.success.any() and result.robust_accuracy == 1
    assert (result.distance > 0).all(), "robust samples came back clean"
    with torch.no_grad():
        logits = net.eval()(result.x_adv)
    true_logits = logits.gather(1, y[:, None])[:, 0]
    best = logits.scatter(1, y[:, None], -torch.inf).amax(1)
    assert torch.allclose(best - true_logits, result.margin, atol=1e-4)
    assert repr(result) == "<AttackResult: 0 of 12 broken, 100.0% robust, linf, 6 queries each>"


def test_in_a_training_loop(net):
    """The whole budget is spent on every sample, nothing of the network or of torch changes, and
    training on it helps."""
    y = clean(net)
    net.train()
    net.norm.eval()
    net.head.weight.grad = torch.ones(3, 48)
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    state, flags = torch.random.get_rng_state(), [part.training for part in net.modules()]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        worst = brinell.attack(net, X, y, "pgd?steps=8", eps=8 / 255, worst=True, answers="logits")
        assert torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled()
    assert [part.training for part in net.modules()] == flags and torch.equal(
        torch.random.get_rng_state(), state
    )
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert torch.equal(net.head.weight.grad, torch.ones(3, 48)) and net.norm.weight.grad is None
    assert not worst.x_adv.requires_grad and (worst.backwards == 8).all(), (
        "an attack that finds something still goes on"
    )
    closest = brinell.attack(net, X, y, "pgd?steps=8", eps=8 / 255, answers="logits")
    assert (
        worst.margin >= closest.margin - 1e-5
    ).all() and worst.margin.mean() > closest.margin.mean()
    second = brinell.attack(net, X, y, "pgd?steps=1", eps=8 / 255, seed=1, worst=True)
    third = brinell.attack(net, X, y, "pgd?steps=1", eps=8 / 255, seed=2, worst=True)
    assert not torch.equal(second.x_adv, third.x_adv)
    opt = torch.optim.SGD(net.parameters(), 0.05)
    before = worst.margin.mean()
    for step in range(20):
        result = brinell.attack(
            net, X, y, "pgd?steps=3", eps=8 / 255, seed=step, worst=True, answers="logits"
        )
        opt.zero_grad()
        nn.functional.cross_entropy(net(result.x_adv), y).backward()
        opt.step()
    assert brinell.attack(net, X, y, "pgd?steps=8", eps=8 / 255, worst=True).margin.mean() < before


def test_arrays_come_back_as_they_were_given(net):
    weight = torch.randn(48, 3, generator=torch.Generator().manual_seed(2)).numpy()
    last = X.permute(0, 2, 3, 1).numpy().copy()

    def scores(x):
        return x.reshape(len(x), -1) @ weight

    y = scores(last).argmax(1)
    for function in (scores, lambda x: torch.as_tensor(scores(np.asarray(x)))):
        result = brinell.attack(function, last, y, "square?steps=30", eps=0.1, layout="last")
        assert (
            isinstance(result.x_adv, np.ndarray)
            and result.x_adv.shape == last.shape
            and result.success.dtype == bool
        )
        assert result.success.any() and (scores(result.x_adv).argmax(1) != y)[result.success].all()
        assert np.abs(result.x_adv - last).max() <= 0.1 + 1e-6
    with pytest.raises(
        BrinellError,
        match="apgd cannot attack scores: it needs gradients, and the model gives scores only",
    ):
        brinell.attack(scores, last, y, eps=0.1, layout="last")
    double = brinell.attack(net, X.double(), clean(net), eps=0.05)
    assert double.x_adv.dtype == torch.float64


def test_what_is_refused(net, subtests):
    rows = [
        (
            {"eps": None},
            "eps is missing, within which apgd searches: give a number, such as eps=8/255",
        ),
        ({"eps": [0.1, 0.2]}, "eps holds 2 numbers for 12 samples"),
        ({"eps": "0:0.1:3"}, "is 3 budgets: brinell.attack takes one"),
        ({"eps": 8}, r"eps 8.* did you mean 8/255\?"),
        ({"attack": "fast"}, "fast decides by what a whole run finds: call brinell.audit"),
        ({"attack": "nothing"}, "there is no attack 'nothing'"),
        ({"attack": "fgsm", "norm": 1}, "fgsm cannot attack Net: it works in l2, linf, not in l1"),
        ({"x": X * 255}, r"from .* outside the bounds 0 to 1 \(or NaN\): give bounds"),
        ({"x": X * torch.nan}, "or NaN"),
        ({"y": torch.zeros(5, dtype=torch.long)}, "it holds 12 whole numbers"),
        ({"y": torch.full((12,), 9)}, "the class 9, and the model distinguishes 3"),
        ({"model": "digits-cnn"}, "takes one model in memory"),
        ({"targeted": 7}, "there is no target class '7'"),
        ({"attack": "fab", "worst": True}, "minimises the distance"),
        ({"bounds": 3}, "bounds is 3"),
    ]
    for change, words in rows:
        with subtests.test(change=change):
            arguments = {"model": net, "x": X, "y": clean(net), "eps": 8 / 255} | change
            with pytest.raises(BrinellError, match=words) as error:
                brinell.attack(**arguments)
            assert "\n" not in str(error.value)
