"""Adversarial batches and losses for a user's training loop, on a linear network whose worst corner
is known."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brinell
from brinell.core.errors import RequestError
from brinell.training import AWP, AdversarialBatch, AdversarialLoss

EPS = 0.1
SIGNS = torch.tensor([1.0, -1, 1, 1, -1, -1])


def linear():
    with torch.device("meta"):
        module = nn.Linear(6, 2)
    module.to_empty(device="cpu")
    with torch.no_grad():
        module.weight.copy_(torch.stack([-SIGNS, SIGNS]))
        module.bias.copy_(torch.stack([SIGNS.sum(), -SIGNS.sum()]) / 2)
    return module


@pytest.fixture
def batch():
    x = 0.4 + 0.2 * torch.rand(16, 6, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(16) % 2


def worst(x, y, eps=EPS):
    return x + eps * torch.where(y[:, None] == 0, SIGNS, -SIGNS)


def test_a_batch_becomes_the_worst_one(batch, subtests):
    for attack in ["pgd", "pgd?steps=5", "pgd(steps=3)", "apgd?steps=10", "fgsm", "mart"]:
        with subtests.test(attack=attack):
            x, y = batch
            examples = AdversarialBatch(linear(), attack=attack, eps=EPS)(x, y)
            torch.testing.assert_close(examples, worst(x, y))


def test_every_kind_of_attack_makes_a_batch(subtests):
    for attack in [
        "n-fgsm",
        "trades",
        "pgd+n-fgsm",
        "distortions",
        "square?steps=20",
        "rlab?steps=5",
    ]:
        with subtests.test(attack=attack):
            x, y = (
                torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
                torch.arange(6) % 2,
            )
            rng = torch.get_rng_state()
            model = nn.Sequential(nn.Flatten(), nn.utils.skip_init(nn.Linear, 64, 2))
            nn.init.normal_(model[1].weight, generator=torch.Generator().manual_seed(1))
            nn.init.zeros_(model[1].bias)
            adversarial = AdversarialBatch(
                model, attack=attack, eps=EPS, norm="l2" if attack.startswith("rlab") else "linf"
            )
            first, second = adversarial(x, y), adversarial(x, y)
            assert (
                first.shape == x.shape
                and not first.requires_grad
                and 0 <= float(first.min())
                and float(first.max()) <= 1
            )
            assert not torch.equal(first, x)
            resumed = AdversarialBatch(
                model, attack=attack, eps=EPS, norm=adversarial.distance.name
            )
            resumed.load_state_dict({"calls": 1})
            assert torch.equal(resumed(x, y), second) and resumed.state_dict() == {"calls": 2}
            assert torch.equal(rng, torch.get_rng_state())


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)
    )
    model.train()
    model[2].eval()  # frozen on purpose
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.rand(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    for attack in ("pgd", "apgd?steps=3"):
        AdversarialBatch(model, attack=attack, eps=EPS)(x, y)
    assert [part.training for part in model] == [True, True, False, True, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_eps_rises_with_the_schedule(batch):
    x, y = batch
    ramp = AdversarialBatch(linear(), "pgd", eps="0.1", schedule=4)
    sizes = [float((ramp(x, y) - x).abs().max()) for _ in range(6)]
    assert sizes == pytest.approx([0, 0.025, 0.05, 0.075, 0.1, 0.1], abs=1e-6)
    with pytest.raises(RequestError, match="schedule is -5"):
        AdversarialBatch(linear(), "pgd", eps=0.1, schedule=-5)


def test_models_of_transformers_answer_with_an_object(batch):
    class Output(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear()

        def forward(self, x):
            return SimpleNamespace(logits=self.inner(x))

    x, y = batch
    model = Output()
    torch.testing.assert_close(AdversarialBatch(model, "pgd", eps=EPS)(x, y), worst(x, y))
    loss = AdversarialLoss("pgd", eps=EPS)(model, x, y)
    assert float(loss.detach()) == pytest.approx(
        float(F.cross_entropy(linear()(worst(x, y)), y).detach())
    )


def test_losses_take_model_and_batch(batch):
    x, y = batch
    model = linear()
    clean, attacked = model(x).detach(), model(worst(x, y)).detach()
    cross = AdversarialLoss("apgd?steps=5", eps=EPS)(model, x, y)
    assert float(cross.detach()) == pytest.approx(float(F.cross_entropy(attacked, y)), rel=1e-5)
    trades = AdversarialLoss("trades?beta=6", eps=EPS)(model, x, y)
    assert float(trades.detach()) > float(F.cross_entropy(clean, y))
    trades.backward()
    assert bool(model.weight.grad.any())


def test_awp_in_a_loop_of_ones_own(batch):
    x, y = batch
    model, loss = linear(), AdversarialLoss("trades", eps=EPS)
    awp, before = AWP(model, gamma=0.05), model.weight.detach().clone()
    x_adv = loss.adversarial(model)(x, y)
    plain = loss(model, x, y, x_adv)
    with awp(lambda: loss(model, x, y, x_adv)) as value:
        assert float(value.detach()) > float(plain.detach())
        change = model.weight.detach() - before
        value.backward()
    assert float(change.norm()) == pytest.approx(0.05 * float(before.norm()), rel=1e-4)
    assert torch.equal(model.weight.detach(), before) and bool(model.weight.grad.any())


def test_three_lines_in_a_loop_make_a_network_hold():
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(256) % 2
    x = torch.stack([0.5 + (2 * y - 1) * 0.3, 0.5 + 0.01 * (2 * y - 1)], 1) + 0.005 * torch.rand(
        256, 2, generator=rng
    )
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5, generator=rng)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    adversarial = AdversarialBatch(model, attack="n-fgsm", eps=0.2, schedule=20)
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(adversarial(x, y)), y).backward()
        optimizer.step()
    assert brinell.attack(model, x, y, "apgd?steps=20", eps=0.2).robust_accuracy == 1


def test_what_cannot_be_meant_is_refused_in_one_line(subtests):
    for settings, x, line in [
        ({"attack": "pgd"}, 0.5, "eps is missing, the budget that is trained for"),
        ({"attack": "pgd", "eps": 8}, 0.5, "did you mean 8/255"),
        ({"attack": "pgd", "eps": "0:0.1:3"}, 0.5, "is 3 budgets: a training has one"),
        ({"attack": "n-fgsm", "eps": 0.1, "norm": 2}, 0.5, "NFGSM works in linf, not in l2"),
        ({"attack": "pgb", "eps": 0.1}, 0.5, "there is no attack 'pgb', did you mean 'pgd'"),
        (
            {"attack": "pgd", "eps": 0.1},
            2.0,
            r"outside the bounds 0 to 1 \(or NaN\): give bounds=\(low, high\)",
        ),
        ({"attack": "pgd", "eps": 0.1}, math.nan, r"outside the bounds"),
        ({"attack": "fab", "eps": 0.1}, 0.5, "fab minimises the distance"),
    ]:
        with subtests.test(settings=settings, x=x, line=line):
            with pytest.raises(RequestError, match=line):
                AdversarialBatch(linear(), **settings)(torch.full((2, 6), x), torch.tensor([0, 1]))


def test_what_a_batch_alone_cannot_have_is_refused(subtests):
    for attack, line in [
        ("pgd+awp(gamma=0.5)", r"name pgd here, and put brinell.training.AWP around the loss"),
        ("awp", "name pgd here"),
        ("benchmark-set(path=x)", "learns from further samples"),
    ]:
        with subtests.test(attack=attack, line=line):
            with pytest.raises(RequestError, match=line):
                AdversarialBatch(linear(), attack, eps=0.1)


def test_labels_that_are_no_classes_are_refused_by_every_attack(subtests):
    for attack in ["pgd", "trades", "plain", "apgd?steps=3", "pgd+plain"]:
        for y, line in [
            (torch.tensor([0, 7]), "y holds class 7, and the model answers for 2"),
            (torch.tensor([0]), r"y has shape \(1,\)"),
            (torch.tensor([0.0, 1.0]), "2 whole numbers"),
            (torch.tensor([0, -1]), "from 0 on"),
        ]:
            with subtests.test(attack=attack, y=y, line=line):
                with pytest.raises(RequestError, match=line):
                    AdversarialBatch(linear(), attack, eps=0.1)(torch.full((2, 6), 0.5), y)


def test_labels_of_any_whole_type_will_do(batch):
    x, y = batch
    torch.testing.assert_close(
        AdversarialBatch(linear(), "pgd", eps=EPS)(x, y.to(torch.int32)), worst(x, y)
    )


def test_what_is_no_batch_is_refused(subtests):
    for x in [torch.empty(0, 6), np.zeros((2, 6), np.float32), torch.tensor(0.5)]:
        with subtests.test(x=x):
            with pytest.raises(RequestError, match="give a tensor with the samples first"):
                AdversarialBatch(linear(), "pgd", eps=0.1)(x, torch.tensor([0, 1]))


def test_a_function_is_refused_as_a_model():
    with pytest.raises(RequestError, match="the model is a function: give a torch module"):
        AdversarialBatch(lambda x: x, "pgd", eps=0.1)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_it_works_where_gradients_are_off(context, batch):
    (x, y), model = batch, linear()
    with context():
        examples = AdversarialBatch(model, "pgd", eps=EPS)(x.clone(), y.clone())
    torch.testing.assert_close(examples, worst(x, y))


def test_awp_under_autocast_moves_the_weights(batch):
    x, y = batch
    model = linear()
    with torch.autocast("cpu", torch.bfloat16):
        first = float(F.cross_entropy(model(x), y).detach())
        with AWP(model, gamma=0.5)(lambda: F.cross_entropy(model(x), y)) as value:
            assert float(value.detach()) > first + 0.05
        assert float(F.cross_entropy(model(x), y).detach()) == first


def test_awp_needs_weights_that_learn(batch):
    x, y = batch
    model = linear().requires_grad_(False)
    with (
        pytest.raises(RequestError, match="frozen"),
        AWP(model)(lambda: F.cross_entropy(model(x), y)),
    ):
        pass


def test_batch_norm_does_not_learn_from_the_pass_of_awp():
    model = nn.Sequential(nn.BatchNorm1d(6), linear()).train()
    x, y = torch.rand(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    with AWP(model)(lambda: F.cross_entropy(model(x), y)):
        pass
    assert int(model[0].num_batches_tracked) == 1


def test_a_loss_with_a_schedule_goes_on_from_a_checkpoint(batch):
    x, y = batch
    loss = AdversarialLoss("pgd", eps=EPS, schedule=10)
    for _ in range(4):
        loss(linear(), x, y)
    resumed = AdversarialLoss("pgd", eps=EPS, schedule=10)
    resumed.adversarial(linear()).load_state_dict(loss.adversarial(linear()).state_dict())
    assert loss.adversarial(linear()).state_dict() == {"calls": 4}
    assert float(resumed(linear(), x, y).detach()) == float(loss(linear(), x, y).detach())


WORKER = """
import sys
import torch
from torch import distributed, nn
from brinell.training import AdversarialLoss

rank, store = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loss = AdversarialLoss(sys.argv[3], eps=0.1, seed=rank)
rng = torch.Generator().manual_seed(rank)
for _ in range(3):
    optimizer.zero_grad()
    loss(model, torch.rand(8, 6, generator=rng), torch.randint(2, (8,), generator=rng)).backward()
    optimizer.step()
weights = torch.cat([one.detach().flatten() for one in model.parameters()])
both = [torch.empty_like(weights) for _ in range(2)]
distributed.all_gather(both, weights)
print(float((both[0] - both[1]).abs().max()))
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["pgd", "trades"])
@pytest.mark.nightly
def test_processes_that_train_together_keep_the_same_weights(tmp_path, recipe):
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "worker.py")]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), recipe],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0 and float(output) == 0
    finally:
        for process in processes:
            process.kill()


def test_a_loss_takes_models_with_other_classes(batch):
    x, _ = batch
    loss, wide = AdversarialLoss("pgd", eps=EPS), nn.Linear(6, 5)
    loss(linear(), x, torch.arange(16) % 2)
    loss(wide, x, torch.arange(16) % 5)
    with pytest.raises(RequestError, match="y holds class 4, and the model answers for 2"):
        loss(linear(), x, torch.arange(16) % 5)


class Narrow(nn.Module):
    def forward(self, x):
        return x.sum(1)


def test_a_model_that_gives_one_number_per_input_is_refused(batch):
    with pytest.raises(
        RequestError, match=r"answers 16 inputs with shape \(16,\): it needs a row of logits"
    ):
        AdversarialBatch(Narrow(), "pgd", eps=EPS)(*batch)


def test_labels_of_any_whole_type_serve_losses_too(batch):
    x, y = batch
    first, second = (
        float(AdversarialLoss("trades", eps=EPS)(linear(), x, labels).detach())
        for labels in (y, y.to(torch.int32))
    )
    assert first == second
