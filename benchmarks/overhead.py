"""Overhead of each attack over its passes, and PGD compared with that of other libraries.

    python benchmarks/overhead.py [--tables long every peers] [--subjects resnet20 ...] [--only
    "APGD-100, all"]

Bare: the same batches, in the same order, through the same module, with a forward and an input
gradient each and nothing else; they are recorded by hooks on a first run and checked against the
count of the ledger. `all robust`: a budget so small that nobody is fooled, so that every pass is
made. `some fooled`: a real budget, where a fooled sample leaves at once. The peers run PGD with the
same steps, step size and budget from the clean input, in batches of the same size, on a module with
the same weights whose parameters ask for no gradients (which spares foolbox and ART the weight
gradients they would take by default). Above 1 means that the peer is slower. All that is compared
runs in turns, pass by pass, so that a machine that is slow for a while is slow for all alike; `cpu`
is the processor time of the thread itself, and means little with more than one.

The table `every` has all attacks in all their norms, with few `--steps`: budgeted ones where all
are robust, so that batches stay full; minimal ones go on with every sample at any budget and run at
the model's own.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import measure
import numpy as np
import torch
from measure import Passes, Subject, Table, counting, replay, spread
from torch import Tensor, nn
from turns import Work, ratios, repeated

from brinell.attacks.apgd import APGD
from brinell.attacks.fab import FAB
from brinell.attacks.fmn import FMN
from brinell.attacks.pgd import PGD
from brinell.attacks.square import Square
from brinell.core.contracts import Attack
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.models._torch_model import TorchModel

GROUP = "passes"
RUNS = {"": "--subjects cnn4_pgd --norms linf --steps 5 --repetitions 1 --n-hold 32 --n-fall 32"}
STEPS = 50
TINY = 1e-5
"""A budget that fools nobody: the smallest that float32 images still feel."""

LONG: dict[str, Attack] = {f"PGD-{STEPS}": PGD(steps=STEPS), "APGD-100": APGD(steps=100, loss="ce")}
ALL_ATTACKS: dict[str, Callable[[int], Attack]] = {
    "PGD": lambda steps: PGD(steps=steps),
    "APGD-CE": lambda steps: APGD(steps=steps, loss="ce"),
    "APGD-T": lambda steps: APGD(steps=steps // 2, loss="dlr", targets=9),
    "FAB-T": lambda steps: FAB(steps=steps // 2, targets=2),
    "FAB": lambda steps: FAB(steps=steps // 5, targets=0),
    "Square": lambda steps: Square(steps=5 * steps),
    "FMN": lambda steps: FMN(steps=steps),
}
COLUMNS = (
    "robust after, forwards / backwards, bare s, ours / bare wall, ours / bare cpu, repetitions"
)
Run = Callable[[], object]


def run_own(
    subject: Subject,
    module: nn.Module,
    attack: Attack,
    x: Tensor,
    y: Tensor,
    eps: float,
    size: int,
    norm: str,
) -> Ledger:
    """One run of one of our attacks, ledger and all."""
    model = TorchModel(module, domain=subject.domain, classes=10, name=subject.name)
    settings = {"access": attack.access, "batch_size": size, "minimal": attack.family == "minimal"}
    return measure.run_attack(
        attack,
        measure.open_ledger(model, x, y, norm, eps, **settings),
        Streams.of(0, torch.arange(len(x))),
    )


def batches(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and labels, a batch at a time."""
    return zip(x.split(size), y.split(size), strict=True)


def foolbox_pgd(module: nn.Module, x: Tensor, y: Tensor, eps: float, size: int) -> Run:
    """The LinfPGD of foolbox."""
    import foolbox

    model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(
        abs_stepsize=2.5 / STEPS * eps, steps=STEPS, random_start=False
    )
    return lambda: [
        attack(model, part, labels, epsilons=eps) for part, labels in batches(x, y, size)
    ]


def torchattacks_pgd(module: nn.Module, x: Tensor, y: Tensor, eps: float, size: int) -> Run:
    """The PGD of torchattacks."""
    import torchattacks

    attack = torchattacks.PGD(
        module, eps=eps, alpha=2.5 / STEPS * eps, steps=STEPS, random_start=False
    )
    return lambda: [attack(part, labels) for part, labels in batches(x, y, size)]


def art_pgd(module: nn.Module, x: Tensor, y: Tensor, eps: float, size: int) -> Run:
    """The PGD of the Adversarial Robustness Toolbox."""
    from art.attacks.evasion import ProjectedGradientDescent

    settings = {
        "eps_step": 2.5 / STEPS * eps,
        "max_iter": STEPS,
        "num_random_init": 0,
        "batch_size": size,
        "verbose": False,
    }
    attack = ProjectedGradientDescent(
        measure.art_classifier(module, x), norm=np.inf, eps=eps, **settings
    )
    inputs, labels = x.numpy(), y.numpy()
    return lambda: attack.generate(inputs, labels)


PEERS = {"foolbox": foolbox_pgd, "torchattacks": torchattacks_pgd, "ART": art_pgd}


def add_own(
    table: Table, head: tuple[str, ...], attack: Attack, options: Namespace, *case: object
) -> None:
    """A line that times one of our attacks against a bare loop of the same passes."""
    subject, n, eps, norm = case
    module, bare = subject.module(), subject.module()
    x, y = subject.samples(n, module)
    run = partial(run_own, subject, module, attack, x, y, eps, options.batch_size, norm)
    with counting(module) as passes:
        ledger = run()
    counts = (int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum()))
    if counts != (passes.forwards, passes.backwards):
        raise SystemExit(
            f"the ledger counts {counts}, the hooks {(passes.forwards, passes.backwards)}"
        )
    works = {"ours": Work(module, run), "bare": Work(bare, partial(replay, bare, passes, x, y))}
    times = repeated(works, options.repetitions, options.threads)
    standing = f"{n - int(ledger.fooled.sum())} of {n}"
    seconds = spread([timing.wall for timing in times["bare"]], 2)
    over = [spread(ratios(times["ours"], times["bare"], clock)) for clock in ("wall", "cpu")]
    table.add(
        subject.name,
        *head,
        standing,
        f"{counts[0]} / {counts[1]}",
        seconds,
        *over,
        options.repetitions,
    )


def add_peers(
    table: Table, subject: Subject, n: int, eps: float, case: str, options: Namespace
) -> None:
    """Lines that time our PGD against each peer's."""
    module = subject.module()
    x, y = subject.samples(n, module)
    attack = PGD(steps=STEPS, step_size=2.5 / STEPS, random_start=False)
    works = {
        "Brinell": Work(
            module, partial(run_own, subject, module, attack, x, y, eps, options.batch_size, "linf")
        )
    }
    counts: dict[str, Passes] = {}
    with counting(module) as counts["Brinell"]:
        works["Brinell"].run()
    for name, make in PEERS.items():
        module = subject.module()
        try:
            work = Work(module, make(module, x, y, eps, options.batch_size))
            with counting(module) as counts[name]:
                work.run()
            works[name] = work
        except Exception as error:  # whatever ails a peer is said in its line
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            table.add(subject.name, case, n, name, f"did not run: {reason}", "", "", "", "")
    times = repeated(works, options.repetitions, options.threads)
    for name in works:
        over = [spread(ratios(times[name], times["Brinell"], clock)) for clock in ("wall", "cpu")]
        seconds = spread([timing.wall for timing in times[name]], 2)
        counted = f"{counts[name].forwards} / {counts[name].backwards}"
        table.add(subject.name, case, n, name, counted, seconds, *over, options.repetitions)


def cases(options: Namespace) -> Iterator[tuple[Subject, int, float, str]]:
    """Each model with many samples that hold, then with some that fall."""
    for subject in map(measure.subject, options.subjects):
        yield subject, options.n_hold, TINY, f"all robust (eps {TINY:g})"
        yield subject, options.n_fall, subject.eps, f"some fooled (eps {subject.eps_text})"


def long(options: Namespace) -> None:
    """PGD and APGD with all their steps."""
    table = Table("Overhead of long runs over their bare passes", f"model, attack, case, {COLUMNS}")
    for subject, n, eps, case in cases(options):
        for name, attack in LONG.items():
            if options.only in f"{name}, {case}":
                add_own(table, (name, case), attack, options, subject, n, eps, "linf")


def every(options: Namespace) -> None:
    """Every attack in every norm that it knows."""
    note = "Targets: 1.15 on ResNet-20, 1.5 on networks of 100,000 parameters."
    table = Table(
        "Overhead of every attack over its bare passes", f"model, attack, norm, {COLUMNS}", note
    )
    for subject in map(measure.subject, options.subjects):
        own_eps = {"linf": subject.eps, "l2": 2.0 if "MNIST" in subject.name else 0.5, "l1": 12.0}
        for name, make in ALL_ATTACKS.items():
            attack = make(options.steps)
            for norm in options.norms:
                eps = own_eps[norm] if attack.family == "minimal" else TINY
                if norm in attack.distances and options.only in f"{name}, {norm}":
                    add_own(
                        table, (name, norm), attack, options, subject, options.n_hold, eps, norm
                    )


def peers(options: Namespace) -> None:
    """Our PGD beside that of other libraries."""
    columns = (
        "model, case, n, library, forwards / backwards, s, wall / ours, cpu / ours, repetitions"
    )
    table = Table(f"PGD-{STEPS} beside other libraries (above 1: slower than ours)", columns)
    for subject, n, eps, case in cases(options):
        add_peers(table, subject, n, eps, case, options)


def main() -> None:
    """The tables that were asked for."""
    counts = {"steps": 20, "repetitions": 3, "batch_size": 128, "n_hold": 128, "n_fall": 256}
    lists = {
        "tables": ["long", "every", "peers"],
        "subjects": list(measure.SUBJECTS),
        "norms": ["linf", "l2", "l1"],
    }
    options = measure.arguments(__doc__, **lists, **counts, only="")
    for name in options.tables:
        {"long": long, "every": every, "peers": peers}[name](options)


if __name__ == "__main__":
    main()
