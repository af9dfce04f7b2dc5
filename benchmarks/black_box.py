"""Attacks without gradients side by side: success after so many queries.

    python benchmarks/black_box.py [--norm l2] [--eps 1] [--attacks square simba] [--samples 60]
    [--skip 60]

All get the same network, which answers nothing but scores, and the first test images that it gets
right, without the first `--skip`, on which settings were chosen. A query is one image shown to the
network, the first check included; a hook on the module counts them too, and the two counts must
agree. A rate is that over all samples, the median that of the queries with failures as infinity;
each is the mean over the seeds, with the smallest and the largest in brackets. `over` is processor
time of the whole attack over that inside the network. Attacks are named as on the command line,
settings included (`square?steps=999`), so your own attack can be compared with them.
"""

import contextlib
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

import measure
import torch
from measure import mean_spread
from torch import Tensor, nn

from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.streams import Streams
from brinell.models._torch_model import TorchModel

GROUP = "agents"
RUNS = {"--attacks rlab?patch=2 square": "--samples 6 --seeds 0 --budgets 100"}
BUDGETS = (100, 250, 500, 1000, 2500, 5000)
EPS = {"l2": "1", "linf": "4/255", "l0": "15", "patch": "8"}
ATTACKS = {
    "l2": ("square", "simba", "simba?basis=dct"),
    "linf": ("square", "simba", "simba?basis=dct"),
    "l0": ("sparse-rs",),
    "patch": ("sparse-rs", "rlab"),
}


@dataclass
class Clock:
    """Processor time inside a module, and how many inputs it was shown."""

    seconds: float = 0.0
    inputs: int = 0


@contextlib.contextmanager
def clocked(module: nn.Module) -> Iterator[Clock]:
    """Watch a module while the block runs."""
    clock = Clock()

    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        clock.inputs += len(inputs[0])
        clock.seconds -= time.process_time()

    def after(*_: object) -> None:
        clock.seconds += time.process_time()

    handles = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield clock
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class Bench:
    """A network with the samples that it gets right."""

    subject: measure.Subject
    module: nn.Module
    x: Tensor
    y: Tensor
    surrogates: tuple[Model, ...] = ()
    """Networks whose gradients an attack may follow."""

    @classmethod
    def of(
        cls,
        subject: str | measure.Subject,
        samples: int,
        skip: int = 0,
        surrogates: tuple[str, ...] = (),
        start: int = 0,
    ) -> "Bench":
        """A network, by its name, with test images that it gets right (`Subject.samples`)."""
        subject = measure.subject(subject) if isinstance(subject, str) else subject
        module = subject.module()
        models = tuple(
            TorchModel(measure.subject(name).module(), subject.domain, name=name)
            for name in surrogates
        )
        return cls(subject, module, *subject.samples(samples, module, skip, start), models)

    def open(self, norm: str, eps: float, queries: int | None, **settings: object) -> Ledger:
        """A ledger over all samples with so many queries each."""
        model = TorchModel(self.module, self.subject.domain, name=self.subject.name)
        settings = {
            "access": Access.SCORES,
            "batch_size": 256,
            "surrogates": self.surrogates,
        } | settings
        return measure.open_ledger(model, self.x, self.y, norm, eps, queries=queries, **settings)

    def fight(
        self, spec: str, norm: str, eps: float, queries: int, seed: int
    ) -> tuple[Ledger, float]:
        """One attack on all samples with so many queries each, and how much longer it took than the
        network.
        """
        attack = measure.build_attack(spec)
        ledger = self.open(
            norm, eps, queries, access=attack.access, minimal=attack.family == "minimal"
        )
        rng = Streams.of(seed, ledger.batch.ids).fold(spec)
        with clocked(self.module) as clock:
            _, seconds = measure.timed(lambda: measure.run_attack(attack, ledger, rng))
        # A success within rounding of the boundary is asked about again, which the ledger counts
        # apart.
        count = int((ledger.costs.forwards + ledger.confirmations).sum())
        if clock.inputs != count:
            raise SystemExit(
                f"{spec}: the ledger counted {count} queries and the network {clock.inputs}"
            )
        return ledger, seconds / max(clock.seconds, 1e-9)


def curves(bench: Bench, options: Namespace) -> None:
    """Success at each budget."""
    budgets, text = options.budgets or BUDGETS, options.eps or EPS[options.norm]
    title = (
        f"Success after so many queries: {bench.subject.name}, {options.norm} {text}, "
        f"{len(bench.y)} samples"
    )
    table = measure.Table(
        title, ["attack", *(f"@{budget}" for budget in budgets), "median queries", "over"]
    )
    for spec in options.attacks or ATTACKS[options.norm]:
        runs = [
            bench.fight(spec, options.norm, measure.parse_eps(text), max(budgets) - 1, seed)
            for seed in options.seeds
        ]
        # The check that the sample is right to begin with is a query like any other.
        queries = [
            torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)
            for ledger, _ in runs
        ]
        rates = (
            mean_spread([float((counts <= budget).float().mean()) for counts in queries], 2)
            for budget in budgets
        )
        median = mean_spread([statistics.median(counts.tolist()) for counts in queries], 0)
        table.add(spec, *rates, median, f"{statistics.median(over for _, over in runs):.2f}")


def main() -> None:
    """One table."""
    lists = {"attacks": [], "budgets": [0], "seeds": [0, 1, 2]}
    options = measure.arguments(
        __doc__,
        **lists,
        norm=tuple(EPS),
        eps="",
        samples=60,
        skip=0,
        model="resnet20",
    )
    options.budgets = [budget for budget in options.budgets if budget]
    curves(Bench.of(options.model, options.samples, options.skip), options)


if __name__ == "__main__":
    main()
