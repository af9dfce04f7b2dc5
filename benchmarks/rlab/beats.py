"""Surrogates by `brinell train-agent` on heartbeats of DS1 of MIT-BIH; a small network that was trained on them is under test.

    python benchmarks/rlab --study beats [--samples 60] [--queries 300] [--seeds 0] [--steps 400]

The file holds a prior and surrogates. It is made without reinforcement from the labelled beats of DS1 and the answers of the
network to 500 of them. Beats of DS2 that the network gets right count, patients kept apart from those of DS1, L2 1 mV. A query
is one beat shown to the network, the check of the clean beat included; a beat that was not fooled counts with the whole budget.
Ratios of means are paired by beat, with the 95 % bootstrap interval.
"""

import argparse
from pathlib import Path

import measure
import numpy as np
import torch
from black_box import Bench
from torch import Tensor, nn
from torch.nn import functional

from brinell.core.domain import Domain
from brinell.core.intervals import ratio, ratio_text
from brinell.datasets._memory import ArrayDataset
from brinell.models._torch_model import TorchModel
from brinell.rlab import validation
from brinell.rlab.agent import Agent
from brinell.studies.agent.request import TrainAgentRequest
from brinell.studies.agent.run import train_agent
from rlab.common import fight

EPS = 1.0
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

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        """A convolution with its normalisation."""
        convolution = nn.Conv1d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm1d(outputs), nn.ReLU())

    widths = (1, width, width, 2 * width, 2 * width, 4 * width)
    blocks = [block(widths[i], widths[i + 1], 1 if i == 0 else 2) for i in range(5)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4 * width, 5))


def load(name: str) -> tuple[Tensor, Tensor]:
    """Beats in millivolts, and their classes."""
    with np.load(measure.SHARED / "ecg_mitbih" / f"mitbih_beats_{name}.npz") as arrays:
        x = torch.from_numpy(arrays["beats_uV"][:, None].astype(np.float32) / 1000)
        return x.clamp(-5, 5), torch.from_numpy(arrays["labels"].astype(np.int64))


def train(x: Tensor, y: Tensor, steps: int) -> nn.Module:
    """The network under test, rare classes weighted by the root of their rarity; gain, noise and shift vary."""
    torch.manual_seed(0)  # noqa: TID251
    module, generator = network(WIDTH, KERNEL), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(module.parameters(), 2e-3, weight_decay=1e-2)
    weight = (len(y) / torch.bincount(y, minlength=5).float().clamp_min(50)).sqrt()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        rows = torch.randint(len(x), (128,), generator=generator)
        gain, shift = torch.rand(128, 1, 1, generator=generator), int(torch.randint(-6, 7, (), generator=generator))
        inputs = x[rows] * (0.8 + 0.4 * gain) + 0.05 * torch.randn(128, 1, 187, generator=generator)
        logits = module(torch.roll(inputs, shift, 2))
        loss = functional.cross_entropy(logits, y[rows], weight=weight / weight.mean(), label_smoothing=0.05)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return measure.FullModel(module).eval().requires_grad_(False)


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=400, help="steps of the training of the network under test")
    parser.add_argument("--policy", default="runs/rlab/beats.safetensors", help="the file that train-agent writes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    beats = load("train_ds1")
    module, (x, y) = train(*beats, options.steps), load("test_ds2")
    with torch.no_grad():
        right = torch.cat([module(part) for part in x.split(512)]).argmax(1) == y
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(5))
    rows = order[right[order]][: options.samples]
    policy = Path(options.policy)
    policy.parent.mkdir(parents=True, exist_ok=True)
    agent = learn(module, *beats, policy, options.queries)
    subject = Heartbeats(name="heartbeats", factory="", weights="", data="", shape=DOMAIN.shape, eps=EPS, eps_text="1")
    bench = Bench(subject, module, x[rows], y[rows])
    about = agent.about or {}
    explained = ", ".join(f"{one['correlation']:.2f}{'' if one['kept'] else ' (left out)'}" for one in about["surrogates"])
    title = f"Heartbeats: accuracy on DS2 {float(right.float().mean()):.3f}; surrogates correlate with answers by {explained}"
    print(validation.verdict(about), about["training_queries"], sep="\n")
    words = f"python benchmarks/rlab --study beats --samples {options.samples} --queries {options.queries} --seeds "
    columns = ["attack", "@10", "@50", "mean queries", "median", "over Square", "over greedy"]
    table = measure.Table(title, words + " ".join(map(str, options.seeds)), columns)
    means: dict[str, np.ndarray] = {}
    for name, spec in (
        ("Square", f"square?steps={options.queries - 1}"),
        ("greedy, signed patches", f"{RLAB}signed-patch&policy=greedy"),
        ("train-agent, signed patches", f"{RLAB}signed-patch&policy={policy}"),
        ("greedy, six distortions", f"{RLAB}{SIX}&policy=greedy"),
        ("train-agent, six distortions", f"{RLAB}{SIX}&policy={policy}"),
    ):
        outcomes = [attack(bench, spec, options.queries, seed) for seed in options.seeds]
        queries = torch.stack(outcomes).clamp_max(options.queries)
        means[name] = queries.mean(0).numpy()
        rates = [f"{float((queries <= budget).float().mean()):.2f}" for budget in (10, 50)]
        greedy = means.get(name.replace("train-agent", "greedy"))
        over = "" if name == "Square" else ratio_text(*ratio(means[name], means["Square"]))
        over_greedy = ratio_text(*ratio(means[name], greedy)) if greedy is not None and "agent" in name else ""
        table.add(name, *rates, f"{float(queries.mean()):.0f}", f"{float(queries.median()):.0f}", over, over_greedy)


def learn(module: nn.Module, x: Tensor, y: Tensor, out: Path, queries: int) -> Agent:
    """The policy of `brinell train-agent` for the network under test, trained anew."""
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(7))
    dataset = ArrayDataset(x[shuffled].numpy(), y[shuffled].numpy(), tuple("NSVFQ"), DOMAIN, "DS1")
    request = TrainAgentRequest(
        data="DS1", attack=f"{RLAB}signed-patch", samples=500, algorithm="none", episode_steps=queries - 1, device="cpu"
    )
    return train_agent(request, out, lambda report: None, dataset=dataset, model=TorchModel(module, DOMAIN, name="heartbeats"))


def attack(bench: Bench, spec: str, queries: int, seed: int) -> Tensor:
    """Queries until the first success, infinite for none."""
    if spec.startswith("rlab"):
        return fight(bench, spec, EPS, queries, seed).queries
    ledger, _ = bench.fight(spec, "l2", EPS, queries - 1, seed)
    return torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)
