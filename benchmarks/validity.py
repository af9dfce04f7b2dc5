"""How often a check is wrong on the digits: alarms on sound models, and broken defences that pass
every check.

    python -m benchmarks.validity [--cases 200] [--names linear ...] [--quick] [--part 1/2]
    [--cascade fast] [--seed 0]
    python -m benchmarks.validity --broken [--names jpeg ...] [--samples 60] [--part 1/2] [--out
    DIR]
    python -m benchmarks.validity --broken --quick [--table] [--without CODE] [--part 1/2] [--out
    DIR]
    python -m benchmarks.validity --power [--names CODE ...] [--part 1/2]
    python -m benchmarks.validity --costs [--names digits cnn4_pgd ...] [--samples 60]
    python -m benchmarks.validity --rates

Run it from the root of the repository. A sound case is a model of `zoo.sound`, a slice of test
samples and a budget: a fifth of the cases are linear models, half of them have 8 to 64 samples. A
failed check is an alarm; the last column says how many samples an adaptive attack leaves (Linf).
Broken defences stand around the digits network; a defence goes unnoticed if the headline is more
than 1 of 60 above the truth and no check failed. `--quick` takes the stages of the quick members,
and with `--broken` audits the quick member of each kind (`zoo.quick`), with its kept truth; there a
kind goes unnoticed if every check passed, too. `--table` writes its table into
docs/results/checks.md, `--without` lets a check pass whatever it sees. `--power` audits the members
of the kinds that have to fail a check, with 20, 60 and 200 samples; `--costs` counts the passes of
each check, as a share of those of `fast` on a sound network. `--rates` works out error rate and power
of the checks that count samples, of both looks together. `--part` runs every second case of two
and so on; `--out` keeps truths and marks, and no quick member whose mark is kept is audited again.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from torch import nn

from benchmarks import measure
from benchmarks.defences import adaptive, audit
from benchmarks.zoo import ZOO, Pair, load, marks, quick, truth
from benchmarks.zoo.sound import LARGE, SIZES, SOUND, WITHOUT_GRADIENTS
from brinell.core.checks import Code, exact_test
from brinell.engine.after_attacks import AFTER_ATTACKS, AfterContext
from brinell.engine.checks import BEFORE_ATTACKS
from brinell.engine.context import CheckContext
from brinell.engine.model_checks import ModelChecks

GROUP = "checks"
RUNS = {
    "": "--cases 2",
    "--broken": "--names none --samples 6",
    "--power": "--names zero-gradients",
    "--costs": "--names digits --samples 20",
    "--rates": "",
}
PAGE = measure.ROOT / "docs" / "results" / "checks.md"
LINF, L2 = ("4/255", "8/255", "0.05", "0.1", "0.2"), ("0.3", "0.8")
FEW, MANY = (10, 12, 16, 20, 32, 48, 64), (80, 100, 150, 200)
Case = tuple[str, str, str, list[int]]
"""Kind, norm, eps and the numbers of the test samples."""


def cases(count: int, seed: int) -> list[Case]:
    """Sound cases, drawn at random."""
    rng, other = random.Random(seed), [name for name in SOUND if not name.startswith("linear")]
    linear, drawn = [name for name in SOUND if name.startswith("linear")], []
    for k in range(count):
        name = linear[k // 5 % len(linear)] if k % 5 == 0 else other[(k - k // 5) % len(other)]
        norm, eps = ("l2", rng.choice(L2)) if rng.random() < 0.2 else ("linf", rng.choice(LINF))
        size = rng.choice(FEW[:2] if name in LARGE else FEW if k % 2 else MANY)
        drawn.append((name, norm, eps, sorted(rng.sample(range(SIZES.get(name, 539)), size))))
    return drawn


def sound(options: argparse.Namespace) -> None:
    """The table of sound models, and the number of alarms."""
    table = measure.Table(
        "Sound models",
        "case,model,norm,eps,samples,clean,headline,failed checks,not made,forwards,seconds,truth",
    )
    alarms, linear, models = [], 0, {}
    for number, (name, norm, eps, rows) in part(cases(options.cases, options.seed), options.part):
        if options.names and name not in options.names:
            continue
        if name not in models:
            models[name] = SOUND[name]()
        model, x, y = models[name][0], models[name][1][rows], models[name][2][rows]
        black_box = name in WITHOUT_GRADIENTS
        asked, attack = (
            (lambda x, net=model: net(x), "square?steps=200")
            if black_box
            else (model, list(quick.CASCADE) if options.quick else options.cascade)
        )
        answer, robust = audit(asked, x, y, eps, attack, options.seed, norm=norm), None
        linear += name.startswith("linear")
        if answer.failed or answer.headline is None:
            alarms.append(name)
            if norm == "linf" and not black_box and x.dim() == 4:
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
        if answer.robust is not None and entry.flaw not in ("random", "company", "state"):
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


# --- quick members
# ------------------------------------------------------------------------------------------------


def quick_members(options: argparse.Namespace) -> None:
    """The table of quick members, those that went unnoticed, and what each check alone catches."""
    table = measure.Table(
        "Quick members", "kind,clean,headline,truth,failed checks,not made,forwards,cpu s,unnoticed"
    )
    file = options.out / "marks.jsonl" if options.out else None
    kept, rows = marks.read_marks(file) if file else {}, []
    members = quick.read_members()
    for _, kind in part(options.names or list(ZOO), options.part):
        row = kept.get(kind)
        if row is None:
            with marks.passing(options.without):
                row = marks.mark(members[kind])
            if file:
                marks.keep_mark(row, file)
        rows.append(row)
        cells = (row.clean, row.headline, row.truth, " ".join(row.failed), " ".join(row.missing))
        table.add(kind, *cells, row.forwards, row.seconds, row.is_unnoticed())
    for title, chosen in {
        "unnoticed": [row.kind for row in rows if row.is_unnoticed()],
        "above the truth, and said to be unsure alone": [
            row.kind for row in rows if row.is_high and not row.failed and row.unsure
        ],
    }.items():
        print(f"\n{title}: {len(chosen)}: {', '.join(chosen)}")
    print("\n| check | fails on | alone |\n| --- | --- | --- |")
    for code, (kinds, alone) in marks.catches(rows, Code).items():
        print(f"| `{code}` | {len(kinds)} | {', '.join(alone)} |")
    if options.table:
        write_table(rows)


def write_table(rows: list[marks.Mark]) -> None:
    """Put the table of quick members in its place on the page of results."""
    lines = ["| kind | n | truth | headline | marks |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        headline = "refused" if row.headline is None else row.headline
        lines.append(
            f"| {row.kind} | {row.samples} | {row.truth} | {headline} | {' '.join(row.failed)} |"
        )
    before, head, rest = PAGE.read_text(encoding="utf-8").partition(lines[0])
    after = rest[rest.index("\n\n") :] if head else f"\n{rest}"
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")


def power(options: argparse.Namespace) -> None:
    """How often a check fails on the kinds that have to fail it, with few and with many samples."""
    table = measure.Table("Power", "check,kinds,of 20 samples,of 60,of 200,cpu s")
    members = quick.read_members().values()
    for _, code in part(options.names or list(Code), options.part):
        chosen = [member for member in members if member.check == code]
        began, cells = time.process_time(), []
        stages = ("fgsm",) if code in BEFORE_ATTACKS and code != Code.SATURATED else ()
        for samples, starts in SLICES.items():
            failed = [
                code in marks.mark(member, start, samples, stages).failed
                for member in chosen
                for start in starts
            ]
            cells.append(f"{sum(failed)} of {len(failed)}")
        seconds = f"{time.process_time() - began:.0f}"
        table.add(code, " ".join(member.kind for member in chosen), *cells, seconds)


INNER_SCORES = "search for inner scores"
METHODS = {
    "_check_clean_accuracy": Code.CLEAN,
    "_check_plateaus": Code.PLATEAU,
    "_compare_probe": Code.PROBE_AHEAD,
    "_repair": INNER_SCORES,
}
"""Methods of `ModelChecks` that ask outside a context of checks."""


@contextmanager
def counting(module: nn.Module) -> Iterator[tuple[Counter[str], measure.Passes]]:
    """Passes through a module by check, and all of them, while the block runs."""
    spent: Counter[str] = Counter()
    make = CheckContext.make

    def count(code: str, check: Callable[..., Any]) -> Callable[..., Any]:
        """The check, whose passes are added to those of its code."""

        def call(context: Any, *args: Any) -> Any:
            first = len(passes.batches)
            # What another process is asked is no pass of this one, so the check's own count tells.
            asked = context.forwards if isinstance(context, AfterContext) else None
            finding = check(context, *args)
            if asked is None:
                spent[code] += sum(n * (1 + k) for n, k in passes.batches[first:])
            else:
                spent[code] += context.forwards - asked
            return finding

        return call

    def make_counted(context: CheckContext, checks: Any) -> list[Any]:
        return make(context, {code: count(code, check) for code, check in checks.items()})

    with pytest.MonkeyPatch.context() as patch, measure.counting(module) as passes:
        patch.setattr(CheckContext, "make", make_counted)
        for name, code in METHODS.items():
            patch.setattr(ModelChecks, name, count(code, getattr(ModelChecks, name)))
        for code, check in AFTER_ATTACKS.items():
            patch.setitem(AFTER_ATTACKS, code, count(code, check))
        yield spent, passes


def costs(options: argparse.Namespace) -> None:
    """Passes of each check on sound networks, and as a share of those of the whole run."""
    names = options.names or ["digits", "cnn4_pgd"]
    columns = [f"{name}{what}" for name in names for what in ("", ", %")]
    table = measure.Table("Passes of the checks", ["check", *columns])
    cells: dict[str, list[str]] = {}
    for name in names:
        base = load(name, options.samples)
        with counting(base.net) as (spent, passes):
            audit(base.net, base.x, base.y, base.eps, "fast", options.seed)
        whole = passes.forwards + passes.backwards
        counts = {code: spent[code] for code in (*Code, INNER_SCORES)}
        for code, count in (counts | {"all checks": sum(counts.values()), "run": whole}).items():
            cells.setdefault(code, []).extend([str(count), f"{100 * count / whole:.2f}"])
    for code, row in cells.items():
        table.add(code, *row)


TESTS = {
    "5 %": (0.05, 0.3, 12, 0),
    "10 %": (0.1, 0.5, 12, 0),
    "25 %": (0.25, 0.6, 12, 1),
    "40 %": (0.4, 0.8, 0, -1),
    "0.2 %": (0.002, 0.1, 0, -1),
}
"""By the share that a check allows: that share, one at which its power is stated, the samples of a
first look, and how many bad ones of these pass; a check in one look has none."""


def failure(n: int, limit: float, few: int, passing: int, share: float) -> float:
    """Probability that a check fails where each of n samples is bad with this share: more than
    `passing` of the first few are, and more of all than chance explains.
    """
    fewest = next(k for k in range(n + 1) if exact_test(k, n, limit)[0])
    first = scipy.stats.binom(few, share)
    rest = scipy.stats.binom(n - few, share)
    return float(sum(first.pmf(k) * rest.sf(fewest - k - 1) for k in range(passing + 1, few + 1)))


def rates(_: argparse.Namespace) -> None:
    """Error rate and power of the checks that count samples."""
    table = measure.Table(
        "Rates", "share allowed,samples,fails from,error rate (%),share of bad,power (%)"
    )
    for text, (limit, share, *first_look) in TESTS.items():
        for n in (20, 60, 64, 200):
            fewest = next(k for k in range(n + 1) if exact_test(k, n, limit)[0])
            chances = [f"{100 * failure(n, limit, *first_look, p):.2f}" for p in (limit, share)]
            table.add(text, n, fewest, chances[0], share, chances[1])


SLICES = {20: (0, 100, 200), 60: (0, 200), 200: (0,)}
"""First samples of the slices of each size."""


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
        quick=False,
        table=False,
        power=False,
        costs=False,
        rates=False,
        without="",
    )
    if options.rates:
        rates(options)
    elif options.costs:
        costs(options)
    elif options.power:
        power(options)
    elif options.broken and options.quick:
        quick_members(options)
    else:
        (broken if options.broken else sound)(options)


if __name__ == "__main__":
    main()
