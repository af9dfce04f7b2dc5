"""What matters in RLAB: each part of it alone, on held-out images, in one table.

    python benchmarks/rlab --study matters [--parts patch dual agents distortions photographs]
    [--networks resnet20 lenet5_clean] [--samples 40] [--start 6000]

    patch         side of the patches and their overlap
    dual          adding alone, removing too, and searches that look ahead by probes
    agents        greedy, the shipped prior, DQN and PPO, each paid by the margin or by dilution
    distortions   each distortion alone
    photographs   patches, removals and signed patches on MCUNet, 8 photographs, L2 6 and 500
                  queries

Test images behind the first --start that the network gets right, which no setting was chosen on.
Success is of these images, with Wilson's interval. A query is one image shown to the network, the
check of the clean one included; an image that was not fooled counts with the whole limit. L2 is the
mean over the fooled images of the closest adversarial one, after 100 further queries that look for
it and the clean-up; a search of the part `dual` has neither. Ratios are paired by image, of L2 over
the images that both rows fooled, and below 1 is better; all intervals are of 95 %. Seconds are the
processor's, the network's included. Agents learn from --steps of single episodes on training images
of ResNet-20, all from the shipped prior, and are kept in --agents. Within L2 1 on CIFAR-10 and 4 on
MNIST and 1,000 queries, where a part does not say otherwise; distortions have L2 2 and 300 queries.
"""

from argparse import Namespace
from dataclasses import dataclass, field, replace
from pathlib import Path

import measure
import torch
from black_box import Bench
from torch import Tensor

from brinell import plugins
from brinell.core.intervals import wilson
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions._published import Published
from brinell.models._torch_model import TorchModel
from brinell.rlab.agent import PRIOR, Agent, find_agent
from brinell.rlab.distort import pair_options
from brinell.rlab.dqn import DQN, DQNSettings
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.policy import PatchNetwork
from brinell.rlab.ratios import ratio
from brinell.rlab.search import PatchSearch
from brinell.rlab.train import ADVANTAGE
from rlab.common import Outcome, fight, hunt
from rlab.policy_gradient import PPO, PPOSettings
from rlab.search import TreeSearch

COLUMNS = (
    "part, network, setting, success, queries, ratio to the first row, L2, "
    "ratio to the first row, s per image"
)
CLOSER = 100
"""Queries after the first success that look for a closer one."""
PAPER = "dqn"
"""The papers' own agent, which is shipped."""
COARSE = "rlab?patch=8&draws=2&severities=4&clean_up=false&policy=prior"
"""Sixteen patches and two variants: 32 moves at most, small enough for a tree."""


@dataclass
class Rows:
    """The rows of one part on one network, beside the first of them."""

    table: measure.Table
    part: str
    bench: Bench
    limit: int
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, setting: str, outcome: Outcome) -> None:
        """One row."""
        self.outcomes.append(outcome)
        fooled = outcome.queries.isfinite()
        n, hits = len(fooled), int(fooled.sum())
        low, high = wilson(hits, n) or (0.0, 1.0)
        queries, first = outcome.queries.clamp_max(self.limit), self.outcomes[0]

        # Of distances only the images compare that both rows fooled.
        both = fooled & first.queries.isfinite()
        beside = outcome is not first
        l2_ratio = measure.ratio(outcome.l2[both], first.l2[both]) if both.any() else ""
        self.table.add(
            self.part,
            self.bench.subject.name,
            setting,
            f"{hits / n:.2f} [{low:.2f}, {high:.2f}]",
            mean_text(queries, 0),
            measure.ratio(queries, first.queries.clamp_max(self.limit)) if beside else "",
            mean_text(outcome.l2[fooled], 2),
            l2_ratio if beside else "",
            f"{outcome.seconds / n:.2f}",
        )


def mean_text(values: Tensor, digits: int) -> str:
    """The mean of values of at least 0 with its 95 % interval; nothing for no value."""
    if not len(values):
        return ""
    mean, interval = ratio(values.double().numpy(), torch.ones(len(values)).double().numpy())
    ends = f" [{max(interval.low, 0.0):.{digits}f}, {interval.high:.{digits}f}]" if interval else ""
    return f"{mean:.{digits}f}{ends}"


def run(bench: Bench, spec: str, eps: float, limit: int) -> Outcome:
    """RLAB by the shipped prior, unless the settings say otherwise, then closer."""
    policy = "" if "policy=" in spec else "&policy=prior"
    return fight(bench, f"{spec}{policy}&refine={CLOSER}", eps, limit, 0)


def patch(table: measure.Table, options: Namespace) -> None:
    """Sides and overlaps."""
    for name, eps in {"resnet20": 1.0, "lenet5_clean": 4.0}.items():
        if name not in options.networks:
            continue
        bench = Bench.of(name, options.samples, start=options.start)
        rows = Rows(table, "patch", bench, 1000)
        for side, stride in ((2, 2), (1, 1), (2, 1), (4, 4), (4, 2), (8, 8), (8, 4)):
            count = len(PatchGrid.over(bench.subject.domain, side, stride))
            outcome = run(bench, f"rlab?patch={side}&stride={stride}", eps, 1000)
            rows.add(f"side {side}, every {stride}, {count} patches", outcome)


def dual(table: measure.Table, options: Namespace) -> None:
    """Adding and removing in one step, adding alone, and looking ahead by probes."""
    bench = Bench.of("resnet20", options.samples, start=options.start)
    rows = Rows(table, "dual", bench, 1000)
    for removals, text in ((0.5, "add, remove half as many"), (0.0, "add only"), (1.0, "as many")):
        rows.add(text, run(bench, f"rlab?patch=2&removals={removals}", 1.0, 1000))
    rows = Rows(table, "dual, 16 patches, L2 2", bench, 2000)
    rows.add("add, remove half as many", fight(bench, COARSE, 2.0, 2000, 0))
    rows.add("add only", fight(bench, f"{COARSE}&removals=0", 2.0, 2000, 0))
    for depth in (1, 2):
        outcome = hunt(bench, TreeSearch(depth=depth), COARSE, 2.0, 2000, 0)
        rows.add(f"tree of depth {depth}, adds only", outcome)


def agents(table: measure.Table, options: Namespace) -> None:
    """Who places, what it learned by, and what it was paid by."""
    bench = Bench.of("resnet20", options.samples, start=options.start)
    rows = Rows(table, "agents", bench, 1000)
    policies = {
        "prior, greedy: the default": PRIOR,
        "no prior, greedy": "greedy",
        "no prior, DQN, dilution: the papers' agent": PAPER,
    }
    for algorithm in ("dqn", "ppo"):
        for reward in ("margin", "dilution"):
            policies[f"prior, {algorithm.upper()}, {reward}"] = learned(options, algorithm, reward)
    for setting, policy in policies.items():
        rows.add(setting, run(bench, f"rlab?patch=2&policy={policy}", 1.0, 1000))


def learned(options: Namespace, algorithm: str, reward: str) -> str:
    """The file of an agent that learned on training images of ResNet-20, by this algorithm and
    reward; it learns where the file is missing.

    Only the reward differs: all compare patches by their predictions, as the default does.
    """
    path = Path(options.agents) / f"matters-{algorithm}-{reward}-{options.steps}.safetensors"
    if path.exists():
        return str(path)
    subject = measure.subject("resnet20")
    module, domain = subject.module(), subject.domain
    x, y = measure.images("cifar10/cifar10_train_a.npz", slice(0, options.inputs))
    right = measure.is_right(module, x, y)
    x, y = x[right], y[right]

    # The budget of the ledger is open, since an episode of a training begins anew again and again.
    model = TorchModel(module, domain, name=subject.name)
    ledger = measure.open_ledger(
        model, x, y, "l2", torch.inf, access=Access.SCORES, batch_size=128, minimal=True
    )
    threat = replace(ledger.threat, eps=torch.full_like(ledger.threat.eps, 1.0))
    attack, prior = measure.build_attack("rlab?patch=2"), find_agent(PRIOR).prior
    placement = Placement(
        grid=attack.grid(domain),
        variants=attack.variants(domain),
        rules=Rules(reward=reward, refine=0),
        prior=prior,
        slots=64,
    )
    environment = PatchSearch(
        ledger.oracle(),
        ledger.batch,
        threat,
        placement,
        Streams.of(0, ledger.batch.ids),
        cycle=True,
    )
    families = pair_options(placement.variants)
    network = PatchNetwork(families, scale=ADVANTAGE if algorithm == "dqn" else 1.0)
    if algorithm == "dqn":
        trainer = DQN(DQNSettings(warm_up=640), network, environment, 0)
        list(trainer.learn(steps=options.steps))
    else:
        PPO(PPOSettings(), network, environment, 0).learn(options.steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"training_queries": {"steps": _queries(ledger)}}
    Agent(prior=prior, network=network, about=about, domain=domain).save(path)
    return str(path)


def _queries(ledger: Ledger) -> int:
    return int(ledger.costs.forwards.sum())


def distortions(table: measure.Table, options: Namespace) -> None:
    """Each distortion alone, noise first."""
    names = [name for name in plugins.names("distortion") if name != "gaussian-noise"]
    for network, eps in {"resnet20": 2.0, "lenet5_clean": 4.0}.items():
        if network not in options.networks:
            continue
        bench = Bench.of(network, options.samples, start=options.start)
        rows = Rows(table, "distortion", bench, 300)
        for name in ("gaussian-noise", *names):
            distortion = plugins.build("distortion", name, {})
            # The published corruptions are the same again, by other code.
            if isinstance(distortion, Published) or "image" not in distortion.domains:
                continue
            outcome = run(bench, f"rlab?patch=2&draws=4&distortions={name}", eps, 300)
            rows.add(name, outcome)


def photographs(table: measure.Table, options: Namespace) -> None:
    """Photographs of 224 pixels."""
    bench = Bench.of("mcunet_144", min(8, options.samples))
    rows = Rows(table, "photographs", bench, 500)
    for setting, spec in (
        ("noise, side 14, 256 patches", "rlab?draws=4"),
        ("noise, side 8, 784 patches", "rlab?patch=8&draws=4"),
        ("noise, side 32, 49 patches", "rlab?patch=32&draws=4"),
        ("noise, side 14, add only", "rlab?removals=0&draws=4"),
        ("signed patches, side 8, 784 patches", "rlab?distortions=signed-patch&patch=8&draws=4"),
    ):
        rows.add(setting, run(bench, spec, 6.0, 500))


PARTS = {
    "patch": patch,
    "dual": dual,
    "agents": agents,
    "distortions": distortions,
    "photographs": photographs,
}


def main() -> None:
    """One table."""
    options = measure.arguments(
        __doc__,
        study=("matters",),
        parts=list(PARTS),
        networks=["resnet20", "lenet5_clean"],
        samples=40,
        start=6000,
        agents="runs/agents",
        steps=20_000,
        inputs=1500,
    )
    table = measure.Table(f"What matters in RLAB, {options.samples} images a row", COLUMNS)
    for part in options.parts:
        PARTS[part](table, options)
