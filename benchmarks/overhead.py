"""Overhead of each attack over its passes, and PGD compared with that of other libraries.

Bare: the same batches, in the same order, through the same module, with a forward and an input gradient each and nothing
else; they are recorded by hooks on a first run and checked against the count of the ledger. `all robust`: a budget so small
that nobody is fooled, so that every pass is made. `some fooled`: a real budget, where a fooled sample leaves at once. The peers
run PGD with the same steps, step size and budget from the clean input, in batches of the same size, on a module with the same
weights whose parameters ask for no gradients (which spares foolbox and ART the weight gradients they would take by default).
Above 1 means that the peer is slower. All that is compared runs in turns, pass by pass, so that a machine that is slow for a
while is slow for all alike; `cpu` is the processor time of the thread itself, and means little with more than one.

`--tables long every peers` are the three tables. `every` has all attacks in all their norms, with few `--steps`: budgeted ones
where all are robust, so that batches stay full; minimal ones go on with every sample at any budget and run at the model's own.
`--only "APGD-100, all"` runs that line of the first two tables.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import measure
import numpy as np
import torch
from measure import Passes, Subject, Table, Work, counting, ratios, repeated, replay, spread
from torch import Tensor, nn

from brinell import plugins
from brinell.attacks.apgd import APGD
from brinell.attacks.fab import FAB
from brinell.attacks.fmn import FMN
from brinell.attacks.pgd import PGD
from brinell.attacks.square import Square
from brinell.core.contracts import Attack
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel

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

Run = Callable[[], object]


def run_own(
    subject: Subject, module: nn.Module, attack: Attack, x: Tensor, y: Tensor, eps: float, batch_size: int, norm: str = "linf"
) -> Ledger:
    """One run of one of our attacks, ledger and all."""
    ids = torch.arange(len(x))
    model = TorchModel(module, domain=subject.domain, classes=10, name=subject.name)
    batch = Batch(ids=ids, x=x, y=y)
    distance = plugins.build("distance", norm, {})
    threat = Threat(distance=distance, eps=torch.full((len(x),), eps), domain=subject.domain)
    minimal = attack.family == "minimal"
    ledger = Ledger(model, batch, threat, access=attack.access, batch_size=batch_size, minimal=minimal)
    attack(ledger.oracle(), batch, threat, Streams.of(0, ids))
    return ledger


def foolbox_pgd(module: nn.Module, x: Tensor, y: Tensor, eps: float, batch_size: int) -> Run:
    """The LinfPGD of foolbox."""
    import foolbox

    model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(abs_stepsize=2.5 / STEPS * eps, steps=STEPS, random_start=False)
    return lambda: [
        attack(model, part, labels, epsilons=eps) for part, labels in zip(x.split(batch_size), y.split(batch_size), strict=True)
    ]


def torchattacks_pgd(module: nn.Module, x: Tensor, y: Tensor, eps: float, batch_size: int) -> Run:
    """The PGD of torchattacks."""
    import torchattacks

    attack = torchattacks.PGD(module, eps=eps, alpha=2.5 / STEPS * eps, steps=STEPS, random_start=False)
    return lambda: [attack(part, labels) for part, labels in zip(x.split(batch_size), y.split(batch_size), strict=True)]


def art_pgd(module: nn.Module, x: Tensor, y: Tensor, eps: float, batch_size: int) -> Run:
    """The PGD of the Adversarial Robustness Toolbox."""
    from art.attacks.evasion import ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    model = PyTorchClassifier(
        module, nn.CrossEntropyLoss(), tuple(x.shape[1:]), nb_classes=10, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack = ProjectedGradientDescent(
        model,
        norm=np.inf,
        eps=eps,
        eps_step=2.5 / STEPS * eps,
        max_iter=STEPS,
        num_random_init=0,
        batch_size=batch_size,
        verbose=False,
    )
    images, labels = x.numpy(), y.numpy()
    return lambda: attack.generate(images, labels)


PEERS = {"foolbox": foolbox_pgd, "torchattacks": torchattacks_pgd, "ART": art_pgd}


def against_bare(options: Namespace, subject: Subject, attack: Attack, n: int, eps: float, norm: str = "linf") -> list[str]:
    """Times one of our attacks against a bare loop of the same passes. Returns the robust samples, the passes and the times."""
    module, bare = subject.module(), subject.module()
    x, y = subject.samples(n, module)
    run = partial(run_own, subject, module, attack, x, y, eps, options.batch_size, norm)
    with counting(module) as passes:
        ledger = run()
    check_count(passes, ledger)
    works = {"ours": Work(module, run), "bare": Work(bare, partial(replay, bare, passes, x, y))}
    times = repeated(works, options.repetitions, options.threads)
    wall, cpu = (ratios(times["ours"], times["bare"], clock) for clock in ("wall", "cpu"))
    seconds = spread([timing.wall for timing in times["bare"]], 2)
    standing = f"{n - int(ledger.fooled.sum())} of {n}"
    return [standing, f"{passes.forwards} / {passes.backwards}", seconds, spread(wall), spread(cpu), str(options.repetitions)]


def check_count(passes: Passes, ledger: Ledger) -> None:
    """The hooks and the ledger must agree, or the comparison is of different things."""
    counts = (int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum()))
    if counts != (passes.forwards, passes.backwards):
        raise SystemExit(f"the ledger counts {counts}, the hooks {(passes.forwards, passes.backwards)}")


def against_peers(table: Table, subject: Subject, n: int, eps: float, case: str, options: Namespace) -> None:
    """Time our PGD against each peer's."""
    module = subject.module()
    x, y = subject.samples(n, module)
    attack = PGD(steps=STEPS, step_size=2.5 / STEPS, random_start=False)
    works = {"Brinell": Work(module, partial(run_own, subject, module, attack, x, y, eps, options.batch_size))}
    counts, missing = {}, {}
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
            missing[name] = " ".join(f"{type(error).__name__}: {error}".split())
    times = repeated(works, options.repetitions, options.threads)
    for name in works:
        wall, cpu = (ratios(times[name], times["Brinell"], clock) for clock in ("wall", "cpu"))
        seconds = spread([timing.wall for timing in times[name]], 2)
        counted = f"{counts[name].forwards} / {counts[name].backwards}"
        table.add(subject.name, case, n, name, counted, seconds, spread(wall), spread(cpu), options.repetitions)
    for name, reason in missing.items():
        table.add(subject.name, case, n, name, f"did not run: {reason}", "", "", "", "")


def every_case(options: Namespace) -> Iterator[tuple[Subject, int, float, str]]:
    """Each model with many samples that hold, then with some that fall."""
    for name in options.subjects:
        subject = measure.subject(name)
        yield subject, options.n_hold, TINY, f"all robust (eps {TINY:g})"
        yield subject, options.n_fall, subject.eps, f"some fooled (eps {subject.eps_text})"


COLUMNS = "robust after, forwards / backwards, bare s, ours / bare wall, ours / bare cpu, repetitions".split(", ")


def long(options: Namespace, command: str) -> None:
    """PGD and APGD with all their steps."""
    table = Table("Overhead of long runs over their bare passes", command, ["model", "attack", "case", *COLUMNS])
    for subject, n, eps, case in every_case(options):
        for name, attack in LONG.items():
            if options.only in f"{name}, {case}":
                table.add(subject.name, name, case, *against_bare(options, subject, attack, n, eps))


def all_attacks(options: Namespace, command: str) -> None:
    """Every attack in every norm that it knows."""
    title = "Overhead of every attack over its bare passes"
    note = "Targets: 1.15 on ResNet-20, 1.5 on networks of 100,000 parameters."
    table = Table(title, command, ["model", "attack", "norm", *COLUMNS], note)
    for key in options.subjects:
        subject = measure.subject(key)
        for name, make in ALL_ATTACKS.items():
            attack = make(options.steps)
            for norm in options.norms:
                eps = own_eps(subject, norm) if attack.family == "minimal" else TINY
                if norm in attack.distances and options.only in f"{name}, {norm}":
                    table.add(subject.name, name, norm, *against_bare(options, subject, attack, options.n_hold, eps, norm))


def own_eps(subject: Subject, norm: str) -> float:
    """The model's own Linf budget, or the L2 or L1 budget of about as many queries."""
    return {"linf": subject.eps, "l2": 2.0 if "MNIST" in subject.name else 0.5, "l1": 12.0}[norm]


def peers(options: Namespace, command: str) -> None:
    """Our PGD beside that of other libraries."""
    columns = "model, case, n, library, forwards / backwards, s, wall / ours, cpu / ours, repetitions"
    table = Table(f"PGD-{STEPS} beside other libraries (above 1: slower than ours)", command, columns.split(", "))
    for subject, n, eps, case in every_case(options):
        against_peers(table, subject, n, eps, case, options)


TABLES = {"long": long, "every": all_attacks, "peers": peers}


def main() -> None:
    """The tables that were asked for."""
    options = measure.arguments(
        __doc__ or "",
        tables=list(TABLES),
        subjects=list(measure.SUBJECTS),
        norms=["linf", "l2", "l1"],
        steps=20,
        repetitions=3,
        batch_size=128,
        n_hold=128,
        n_fall=256,
        only="",
    )
    command = measure.command(options, "tables", "subjects", "norms", "steps", "repetitions", "batch_size", "n_hold", "n_fall")
    for name in options.tables:
        TABLES[name](options, command)


if __name__ == "__main__":
    main()
