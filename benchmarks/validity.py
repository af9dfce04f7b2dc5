"""How often a check is wrong on the digits: alarms on sound models, and broken defences that pass
every check.

    python -m benchmarks.validity [--cases 200] [--part 1/2] [--cascade fast] [--seed 0]
    python -m benchmarks.validity --broken [--names jpeg ...] [--samples 60] [--part 1/2] [--out
    DIR]

Run it from the root of the repository. A sound case is a model of `zoo.sound`, a slice of test
samples and a budget: a fifth of the cases are linear models, half of them have 8 to 64 samples. A
failed check is an alarm; the last column says how many samples an adaptive attack leaves (Linf).
Broken defences stand around the digits network; a defence goes unnoticed if the headline is more
than 1 of 60 above the truth and no check failed. `--part` runs every second case of two and so on;
`--out` keeps the truth.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.defences import adaptive, audit
from benchmarks.zoo import ZOO, Pair, load, truth
from benchmarks.zoo.sound import SOUND, WITHOUT_GRADIENTS

GROUP = "checks"
RUNS = {"": "--cases 2", "--broken": "--names none --samples 6"}
LINF, L2 = ("4/255", "8/255", "0.05", "0.1", "0.2"), ("0.3", "0.8")
FEW, MANY = (8, 12, 16, 20, 32, 48, 64), (80, 100, 150)
Case = tuple[str, str, str, list[int]]
"""Kind, norm, eps and the numbers of the test samples."""


def cases(count: int, seed: int) -> list[Case]:
    """Sound cases, drawn at random."""
    rng, other = random.Random(seed), [name for name in SOUND if not name.startswith("linear")]
    linear, drawn = [name for name in SOUND if name.startswith("linear")], []
    for k in range(count):
        name = linear[k // 5 % len(linear)] if k % 5 == 0 else other[(k - k // 5) % len(other)]
        norm, eps = ("l2", rng.choice(L2)) if rng.random() < 0.2 else ("linf", rng.choice(LINF))
        drawn.append(
            (name, norm, eps, sorted(rng.sample(range(539), rng.choice(FEW if k % 2 else MANY))))
        )
    return drawn


def sound(options: argparse.Namespace) -> None:
    """The table of sound models, and the number of alarms."""
    table = measure.Table(
        "Sound models",
        "case,model,norm,eps,samples,clean,headline,failed checks,not made,forwards,seconds,truth",
    )
    alarms, linear, models = [], 0, {}
    for number, (name, norm, eps, rows) in part(cases(options.cases, options.seed), options.part):
        if name not in models:
            models[name] = SOUND[name]()
        model, x, y = models[name][0], models[name][1][rows], models[name][2][rows]
        black_box = name in WITHOUT_GRADIENTS
        asked, attack = (
            (lambda x, net=model: net(x), "square?steps=200")
            if black_box
            else (model, options.cascade)
        )
        answer, robust = audit(asked, x, y, eps, attack, options.seed, norm=norm), None
        linear += name.startswith("linear")
        if answer.failed or answer.headline is None:
            alarms.append(name)
            if norm == "linf" and not black_box:
                base, pair = (
                    replace(load("digits", 1), net=model, x=x, y=y),
                    Pair(defended=model, counterpart=model),
                )
                robust = int(
                    truth.robust(pair, base, truth.budget(eps), flaw="none", steps=40).sum()
                )
        table.add(number, name, norm, eps, len(y), *answer.cells(), robust)
    of_linear = sum(name.startswith("linear") for name in alarms)
    print(
        f"\nalarms: {len(alarms)} (of linear models {of_linear} of {linear}): {', '.join(alarms)}"
    )


def broken(options: argparse.Namespace) -> None:
    """The table of broken defences, and those that went unnoticed."""
    table = measure.Table(
        "Broken defences",
        "defence,clean,headline,failed checks,not made,truth,above,forwards,seconds,unnoticed",
    )
    names, base = options.names or list(ZOO), load("digits", options.samples, options.out)
    silent = []
    for _, name in part(names, options.part):
        entry = ZOO[name]
        pair = entry.build(base)
        answer = audit(
            pair.defended, base.x, base.y, base.eps, options.cascade, options.seed, **entry.audit
        )
        robust = adaptive(entry, entry.build(base), base, base.eps, options.seed, options.out)
        if answer.robust is not None and entry.flaw not in ("random", "company"):
            robust &= answer.robust
        above = None if answer.headline is None else answer.headline - int(robust.sum())
        unnoticed = above is not None and above > options.samples / 60 and not answer.failed
        silent += [name] * unnoticed
        table.add(
            name,
            *answer.cells(int(robust.sum()), above),
            "unsure" if unnoticed and answer.caveat else unnoticed,
        )
    print(f"\nunnoticed: {len(silent)}: {', '.join(silent)}")


def part(items: list[Any], text: str) -> Iterator[tuple[int, Any]]:
    """The items of part K of N with their numbers."""
    k, _, n = text.partition("/")
    yield from list(enumerate(items))[int(k) - 1 :: int(n)]


def main() -> None:
    """One table."""
    options = measure.arguments(
        __doc__,
        names=[],
        cases=200,
        samples=60,
        part="1/1",
        cascade="fast",
        seed=0,
        out=Path,
        broken=False,
    )
    (broken if options.broken else sound)(options)


if __name__ == "__main__":
    main()
