"""Surrogates by `brinell train agent` on heartbeats of DS1 of MIT-BIH; a small network that was
trained on them is under test.

    python benchmarks/rlab --study beats [--samples 60] [--queries 300] [--seeds 0] [--steps 400]

The file --policy holds a prior and surrogates. It is made without reinforcement from the labelled
beats of DS1 and the answers of the network to 500 of them. Beats of DS2 that the network gets right
count, of other patients than those of DS1, L2 1 mV. A query is one beat shown to the network, the
check of the clean beat included; a beat that was not fooled counts with the whole budget. Ratios of
means are paired by beat, with the 95 % bootstrap interval.
"""

from pathlib import Path

import measure
import numpy as np
import torch
from black_box import Bench
from torch import Tensor, nn
from torch.nn import functional

import brinell
from brinell.core.domain import Domain
from brinell.datasets._memory import from_arrays
from brinell.models._torch_model import TorchModel
from brinell.rlab.agent import Agent, find_agent, verdict
from rlab.common import Outcome, fight, over

DOMAIN = Domain(kind="signal", shape=(1, 187), low=-5.0, high=5.0)
SIX = "baseline-wander+mains-hum+muscle-noise+electrode-pop+dropout+gain"
RLAB = "rlab?clean_up=false&distortions="
WIDTH, KERNEL = 24, 7
"""Width and kernel of the network under test."""


class Heartbeats(measure.Subject):
    """Heartbeats in place of images."""

    @property
    def domain(self) -> Domain:
        """Millivolts."""
        return DOMAIN


def network(width: int, kernel: int) -> nn.Module:
    """Five convolutions, and the mean over time."""
    widths, layers = (1, width, width, 2 * width, 2 * width, 4 * width), list[nn.Module]()
    for i in range(5):
        convolution = nn.Conv1d(
            widths[i], widths[i + 1], kernel, 1 if i == 0 else 2, kernel // 2, bias=False
        )
        layers += [convolution, nn.BatchNorm1d(widths[i + 1]), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4 * width, 5))


def load(name: str) -> tuple[Tensor, Tensor]:
    """Beats in millivolts, and their classes."""
    with np.load(measure.SHARED / "ecg_mitbih" / f"mitbih_beats_{name}.npz") as arrays:
        x = torch.from_numpy(arrays["beats_uV"][:, None].astype(np.float32) / 1000)
        return x.clamp(-5, 5), torch.from_numpy(arrays["labels"].astype(np.int64))


def train(x: Tensor, y: Tensor, steps: int) -> nn.Module:
    """The network under test, rare classes weighted by the root of their rarity; gain, noise and
    shift vary.
    """
    torch.manual_seed(0)  # noqa: TID251
    module, generator = network(WIDTH, KERNEL), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(module.parameters(), 2e-3, weight_decay=1e-2)
    weight = (len(y) / torch.bincount(y, minlength=5).float().clamp_min(50)).sqrt()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        rows = torch.randint(len(x), (128,), generator=generator)
        gain, shift = (
            torch.rand(128, 1, 1, generator=generator),
            int(torch.randint(-6, 7, (), generator=generator)),
        )
        inputs = x[rows] * (0.8 + 0.4 * gain) + 0.05 * torch.randn(128, 1, 187, generator=generator)
        logits = module(torch.roll(inputs, shift, 2))
        loss = functional.cross_entropy(
            logits, y[rows], weight=weight / weight.mean(), label_smoothing=0.05
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return measure.FullModel(module).eval().requires_grad_(False)


def learn(module: nn.Module, x: Tensor, y: Tensor, out: Path, queries: int) -> Agent:
    """The policy of `brinell train agent` for the network under test, trained anew."""
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(7))
    dataset = from_arrays(x[shuffled].numpy(), y[shuffled].numpy(), tuple("NSVFQ"), DOMAIN, "DS1")
    attack, settings = (
        f"{RLAB}signed-patch&steps={queries - 1}",
        {"samples": 500, "steps": 0, "device": "cpu"},
    )
    brinell.train_agent(
        TorchModel(module, DOMAIN, name="heartbeats"), dataset, attack=attack, out=out, **settings
    )
    return find_agent(str(out))


def main() -> None:
    """One table."""
    path = "runs/rlab/beats.safetensors"
    options = measure.arguments(
        __doc__, study=("beats",), samples=60, queries=300, seeds=[0], steps=400, policy=path
    )
    beats = load("train_ds1")
    module, (x, y) = train(*beats, options.steps), load("test_ds2")
    right = measure.is_right(module, x, y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(5))
    rows = order[right[order]][: options.samples]
    policy = Path(options.policy)
    policy.parent.mkdir(parents=True, exist_ok=True)
    description = learn(module, *beats, policy, options.queries).about or {}
    subject = Heartbeats(
        name="heartbeats",
        factory="",
        weights="",
        data="",
        shape=DOMAIN.shape,
        eps=1.0,
        eps_text="1",
    )
    bench = Bench(subject, module, x[rows], y[rows])
    explained = ", ".join(
        f"{part['correlation']:.2f}{'' if part['kept'] else ' (left out)'}"
        for part in description["surrogates"]
    )
    title = (
        f"Heartbeats: accuracy on DS2 {float(right.float().mean()):.3f}; surrogates "
        f"correlate with answers by {explained}"
    )
    print(verdict(description), description["training_queries"], sep="\n")
    table = measure.Table(title, "attack, @10, @50, mean queries, median, over Square, over greedy")
    outcomes: dict[str, list[Outcome]] = {}
    for name, spec in {
        "Square": f"square?steps={options.queries - 1}",
        "greedy, signed patches": f"{RLAB}signed-patch&policy=greedy",
        "train agent, signed patches": f"{RLAB}signed-patch&policy={policy}",
        "greedy, six distortions": f"{RLAB}{SIX}&policy=greedy",
        "train agent, six distortions": f"{RLAB}{SIX}&policy={policy}",
    }.items():
        outcomes[name] = [fight(bench, spec, 1.0, options.queries, seed) for seed in options.seeds]
        queries = torch.stack(
            [outcome.queries.clamp_max(options.queries) for outcome in outcomes[name]]
        )
        rates = [f"{float((queries <= budget).float().mean()):.2f}" for budget in (10, 50)]
        greedy = (
            outcomes[name.replace("train agent", "greedy")] if "agent" in name else outcomes[name]
        )
        ratios = [
            over(outcomes[name], base, options.queries) for base in (outcomes["Square"], greedy)
        ]
        table.add(
            name, *rates, f"{float(queries.mean()):.0f}", f"{float(queries.median()):.0f}", *ratios
        )
