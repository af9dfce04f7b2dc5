"""What the shown margin is beside the decision boundary: healthy networks, and the defences of the zoo.

    python -m benchmarks.defences.margins [--names resnet20 brightness-bonus ...] [--samples 64] [--first 0] [--seed 0]

`--names` takes the beginnings of names. The check is made on the samples from `--first` on that the network gets right, at most
64, which the seed draws.
"""

import argparse
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks import measure
from benchmarks.defences import ZOO, base
from benchmarks.defences.healthy import networks
from brinell.core.checks import Code
from brinell.core.oracle import Batch
from brinell.engine import boundary

COLUMNS = "network,lines,forwards a line,before,after,steep at 98 %,at 99.8 %,at 99.98 %,outcome"
Function = Callable[[Tensor], Tensor]


class Asker:
    """The scores of a function, in batches, as an oracle gives them."""

    def __init__(self, function: Function) -> None:
        self.function, self.forwards = function, 0

    def scores(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n, classes)."""
        self.forwards += len(x)
        with torch.no_grad():
            return torch.cat([self.function(part) for part in x.split(64)])


def subjects(names: tuple[str, ...], samples: int) -> Iterator[tuple[str, Function, Tensor, Tensor]]:
    """Healthy networks, then defences: name, function, inputs and labels."""
    for network in networks():
        if network.name.startswith(names):
            try:
                model, x, y = network.load(samples)
            except ImportError:
                continue
            yield network.name, model if isinstance(model, nn.Module) else model.predict, x, y
    for name, entry in ZOO.items():
        if name.startswith(names) and not entry.make.__module__.endswith("trained"):
            loaded = base.load(entry.base, samples)
            yield name, entry.build(loaded).defended, loaded.x, loaded.y


def row(function: Function, x: Tensor, y: Tensor, seed: int) -> tuple[object, ...]:
    """The figures of one network."""
    asker = Asker(function)
    logits = asker.scores(y, x)
    right = (logits.argmax(1) == y).nonzero()[:, 0]
    right = right[torch.randperm(len(right), generator=torch.Generator().manual_seed(seed))[:64]].sort().values
    batch, logits, asker.forwards = Batch(ids=torch.arange(len(right)), x=x[right], y=y[right]), logits[right], 0
    lines = boundary.lines_between(asker, batch, logits, free=True)
    if not len(lines.ids):
        return 0, "", "", "", "", "", "", "no lines"
    crossings = boundary.find_crossings(asker, lines, boundary.lead(logits).median())
    finding = boundary.judge_crossings(Code.BOUNDARY, crossings, "lines")
    outcome = {True: "passed", False: "failed", None: "cannot tell"}[finding.passed]
    sides = [f"{float(side.amax()):.3f}" for side in (crossings.before, crossings.after)]
    steep = [f"{share:.2f}" for share in crossings.steep().tolist()]
    return len(lines.ids), f"{asker.forwards / len(lines.ids):.1f}", *sides, *steep, outcome


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.defences.margins", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", nargs="+", default=[""], help="default: all", metavar="START")
    for name, default in (("samples", 64), ("first", 0), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = f"python -m benchmarks.defences.margins --samples {options.samples} --first {options.first} --seed {options.seed}"
    table = measure.Table("Margins beside the decision boundary", command, COLUMNS.split(","))
    for name, function, x, y in subjects(tuple(options.names), options.first + options.samples):
        first = options.first if len(x) > options.samples else 0
        table.add(name, *row(function, x[first:], y[first:], options.seed))


if __name__ == "__main__":
    main()
