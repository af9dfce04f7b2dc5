"""Attacks without gradients side by side: success after so many queries, or, with --labels, the distance reached.

    python benchmarks/black_box.py [--norm l2] [--eps 1] [--attacks square bandits] [--samples 60] [--skip 60]
    python benchmarks/black_box.py --labels [--norm l2] [--samples 30] [--budgets 1000 2500]

All get the same network, which answers nothing but scores, and the first test images that it gets right. A query is one image
shown to the network, the first check included; a hook on the module counts them too, and the two counts must agree. A rate is
that over all samples, the median that of the queries with failures as infinity; each is the mean over the seeds, with the
smallest and the largest in brackets. `over` is processor time of the whole attack over that inside the network. Attacks are named
as on the command line, settings included (`square?steps=999`), so your own attack can be compared with them.

With --labels, HopSkipJump is compared with that of foolbox and of ART, if they are installed: the median over all samples of the
distance of the closest misclassified input that was shown to the network within the budget, infinite where there was none. Theirs
run on one image at a time, from their own starts, with their defaults, until the budget is spent.
"""

import argparse
import contextlib
import io
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import measure
import numpy as np
import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.eps_grid import parse_eps
from brinell.models._torch_model import TorchModel

BUDGETS = (100, 250, 500, 1000, 2500, 5000)
EPS = {"l2": "1", "linf": "4/255", "l0": "15"}
ATTACKS = {
    "l2": ("square", "simba", "simba?basis=dct", "bandits", "nes"),
    "linf": ("square", "simba", "simba?basis=dct", "bandits", "nes"),
    "l0": ("sparse-rs", "sparse-rs?form=patch"),
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

    def open(
        self, norm: str, eps: float, queries: int | None, *, access: Access = Access.SCORES, minimal: bool = False
    ) -> tuple[Ledger, Batch, Threat]:
        """A ledger over all samples with so many queries each, and what an attack is handed besides."""
        n = len(self.y)
        batch = Batch(ids=torch.arange(n), x=self.x, y=self.y)
        distance = plugins.build("distance", norm, {})
        threat = Threat(distance=distance, eps=torch.full((n,), eps), domain=self.subject.domain)
        model = TorchModel(self.module, self.subject.domain, name=self.subject.name)
        ledger = Ledger(
            model,
            batch,
            threat,
            access=access,
            queries=queries,
            minimal=minimal,
            batch_size=256,
            surrogates=self.surrogates,
        )
        return ledger, ledger.batch, ledger.threat

    def fight(self, spec: str, norm: str, eps: float, queries: int, seed: int) -> tuple[Ledger, float]:
        """One attack on all samples with so many queries each, and how much longer it took than the network."""
        name, path, settings = plugins.parse(spec)
        attack = plugins.build("attack", name, settings | ({"path": path} if path else {}))
        ledger, batch, threat = self.open(norm, eps, queries, access=attack.access, minimal=attack.family == "minimal")
        with clocked(self.module) as clock:
            began = time.process_time()
            attack(ledger.oracle(), batch, threat, Streams.of(seed, batch.ids).fold(spec))
            seconds = time.process_time() - began
        if clock.inputs != int(ledger.costs.forwards.sum()):
            raise SystemExit(
                f"{spec}: the ledger counted {int(ledger.costs.forwards.sum())} queries and the network {clock.inputs}"
            )
        return ledger, seconds / max(clock.seconds, 1e-9)


def spread(values: list[float], digits: int) -> str:
    """Mean with the smallest and the largest value."""
    mean, least, most = statistics.fmean(values), min(values), max(values)
    if least == most:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def curves(bench: Bench, options: argparse.Namespace) -> None:
    """Success at each budget."""
    budgets = [budget for budget in options.budgets or BUDGETS]
    text = options.eps or EPS[options.norm]
    (eps,) = parse_eps(text).values
    title = f"Success after so many queries: {bench.subject.name}, {options.norm} {text}, {len(bench.y)} samples"
    columns = ["attack", *(f"@{budget}" for budget in budgets), "median queries", "over"]
    table = measure.Table(title, command(options, "--eps", text), columns)
    for spec in options.attacks or ATTACKS[options.norm]:
        rates: dict[int, list[float]] = {budget: [] for budget in budgets}
        medians, overs = [], []
        for seed in options.seeds:
            ledger, over = bench.fight(spec, options.norm, eps, max(budgets) - 1, seed)
            # The check that the sample is right to begin with is a query like any other.
            queries = torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)
            for budget in budgets:
                rates[budget].append(float((queries <= budget).float().mean()))
            medians.append(statistics.median(queries.tolist()))
            overs.append(over)
        table.add(spec, *(spread(values, 2) for values in rates.values()), spread(medians, 0), f"{statistics.median(overs):.2f}")


# --- labels alone ----------------------------------------------------------------------------------------------------


class BudgetSpent(Exception):
    """The budget is spent."""


@dataclass
class RecordingModel:
    """A model that records, for the attack on one image, the closest misclassified input within each budget."""

    module: nn.Module
    x: Tensor
    y: int
    norm: float
    budgets: list[int]
    queries: int = 1
    """Inputs shown; the first check is one of them."""
    closest: dict[int, float] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        """The network's answer, noted."""
        x = x.float()  # ART hands on float64
        logits: Tensor = self.module(x)
        size = torch.linalg.vector_norm((x - self.x).flatten(1), ord=self.norm, dim=1)
        in_bounds = ((x >= -1e-6) & (x <= 1 + 1e-6)).flatten(1).all(1)
        size = torch.where((logits.argmax(1) != self.y) & in_bounds, size, torch.inf)
        counts = self.queries + torch.arange(1, len(x) + 1)
        for budget in self.budgets:
            sizes = size[counts <= budget]
            self.closest[budget] = min(self.closest.get(budget, math.inf), float(sizes.min()) if len(sizes) else math.inf)
        self.queries += len(x)
        if self.queries >= max(self.budgets):
            raise BudgetSpent
        return logits


class Forward(nn.Module):
    """A module around a function, as the libraries want it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function's answer; only the labels of it are used."""
        with torch.no_grad():
            return self.function(x)


def foolbox(model: nn.Module, x: Tensor, y: Tensor, norm: str) -> None:
    """HopSkipJump of foolbox."""
    from foolbox import PyTorchModel, attacks

    attack = attacks.HopSkipJumpAttack(constraint=norm)
    try:
        attack(PyTorchModel(model.eval(), bounds=(0, 1), device="cpu"), x, y, epsilons=None)
    except ValueError as error:
        if "init_attack" not in str(error):  # it found no start, which counts as a distance of infinity
            raise


def art(model: nn.Module, x: Tensor, y: Tensor, norm: str) -> None:
    """HopSkipJump of ART; its starts hold one input of noise at a time."""
    sys.modules.setdefault("multiprocess", multiprocessing)
    from art.attacks.evasion import HopSkipJump
    from art.estimators.classification import PyTorchClassifier

    shape = tuple(x.shape[1:])
    classifier = PyTorchClassifier(
        model.eval(), nn.CrossEntropyLoss(), shape, nb_classes=10, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack = HopSkipJump(classifier, norm=2 if norm == "l2" else np.inf, max_iter=64, verbose=False)
    attack.generate(x.numpy().copy(), np.eye(10, dtype=np.float32)[y.numpy()])


def peer_distances(run: Callable[..., None], bench: Bench, options: argparse.Namespace, budgets: list[int], seed: int) -> Tensor:
    """(budgets, samples): the distance that another library reached on each image."""
    np.random.seed(seed)  # noqa: NPY002, TID251
    torch.manual_seed(seed)  # noqa: TID251
    distances = []
    for x, y in zip(bench.x.split(1), bench.y.split(1), strict=True):
        recorder = RecordingModel(bench.module, x, int(y), 2 if options.norm == "l2" else math.inf, budgets)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(BudgetSpent):
            run(Forward(recorder), x, y, options.norm)
        distances.append([recorder.closest.get(budget, math.inf) for budget in budgets])
    return torch.tensor(distances).T


def own_distances(bench: Bench, options: argparse.Namespace, budgets: list[int], seed: int) -> Tensor:
    """(budgets, samples): the distance that ours reached on each image."""
    runs = (bench.fight("hop-skip-jump", options.norm, 1e3, budget - 1, seed)[0] for budget in budgets)
    return torch.stack([ledger.best.distance for ledger in runs])


def distances(bench: Bench, options: argparse.Namespace) -> None:
    """The distance reached with labels alone."""
    budgets = sorted(options.budgets or (1000, 2500))
    title = f"HopSkipJump: median {options.norm} after so many queries, {bench.subject.name}, {len(bench.y)} samples"
    columns = ["implementation", *(f"@{budget}" for budget in budgets), "without a start"]
    table = measure.Table(title, command(options, "--labels"), columns)
    implementations: dict[str, Callable[[int], Tensor]] = {"ours": lambda seed: own_distances(bench, options, budgets, seed)}
    for name, run in (("foolbox", foolbox), ("ART", art)):
        with contextlib.suppress(ImportError):
            __import__({"ART": "art"}.get(name, name))
            implementations[name] = lambda seed, run=run: peer_distances(run, bench, options, budgets, seed)  # type: ignore[misc]
    for name, reach in implementations.items():
        distances = [reach(seed) for seed in options.seeds]
        medians = [spread([statistics.median(closest[row].tolist()) for closest in distances], 3) for row in range(len(budgets))]
        failures = [float(closest[-1].isinf().sum()) for closest in distances]
        table.add(name, *medians, spread(failures, 0))


def command(options: argparse.Namespace, *arguments: str) -> str:
    """How a run is repeated."""
    words = ["python benchmarks/black_box.py", *arguments, "--model", options.model, "--norm", options.norm]
    words += ["--skip", str(options.skip)] if options.skip else []
    words += ["--samples", str(options.samples), "--seeds", *map(str, options.seeds)]
    for name in ("attacks", "budgets"):
        if getattr(options, name):
            words += [f"--{name}", *map(str, getattr(options, name))]
    return " ".join(words)


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", nargs="+", help="attacks with settings; none means all that fit the norm")
    parser.add_argument("--norm", choices=EPS, default="l2")
    parser.add_argument("--eps", default="", help="one budget of distance; none means 1 in L2, 4/255 in Linf, 15 values in L0")
    parser.add_argument("--budgets", nargs="+", type=int, help="queries after which to look")
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="samples to leave out first: those on which settings were chosen")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--model", default="resnet20", help="a network of the shared data")
    parser.add_argument("--labels", action="store_true", help="HopSkipJump beside other libraries, in place of the curves")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    subject = measure.subject(options.model)
    module = subject.module()
    x, y = subject.samples(options.skip + options.samples, module)
    bench = Bench(subject, module, x[options.skip :], y[options.skip :])
    (distances if options.labels else curves)(bench, options)


if __name__ == "__main__":
    main()
