"""`brinell audit` on the zoo of defences (benchmarks/zoo): broken ones, false alarms on healthy
networks, and shown margins.

    python -m benchmarks.defences [--names jpeg dropout ...] [--base NAME] [--samples 100]
    [--cascade fast] [--seed 0] [--out DIR] python -m benchmarks.defences --healthy [--names
    resnet20 timm ...] [--samples 64] [--cascade fast] [--seed 0] python -m benchmarks.defences
    --margins [--names resnet20 brightness-bonus ...] [--samples 64] [--seed 0] python -m
    benchmarks.defences --list

Run it from the root of the repository. Counts are samples. The truth is the adaptive attack of
`zoo.truth`, and counts what the audit broke as broken, too; it and the networks that a defence
trains are kept under `--out` and used again while the zoo stays as it is. Verdicts:

- `ok`: the headline is at most 1 of 100 above the truth, or a failed check or a refusal names a
  cause.
- `clean bill on a wrong figure`: no check failed, and the headline is more than 1 of 100 above the
  truth.
- `wrong, and said to be unsure`: the same, where the result says that checks which count were not
  made.
- `false alarm`: a check failed on a defence in which nothing is broken, and the headline is right.

A failed check on a healthy network is no false alarm if APGD-CE and APGD-T alone, 100 steps each,
leave more than 1 of 100 samples above the headline or above the truth (Linf). MNIST
lenet5_advtrained in L2 is such a case. A refusal counts as an alarm. `--margins` compares the shown
margin with the decision boundary, on 64 samples at most that the network gets right. Of networks
`--names` takes the beginnings.
"""

import argparse
import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import brinell
from benchmarks import measure
from benchmarks.zoo import ZOO, Base, Defence, Pair, load, truth
from benchmarks.zoo.healthy import networks
from brinell.core.errors import BrinellError
from brinell.core.intervals import wilson
from brinell.core.oracle import Batch
from brinell.engine import boundary
from brinell.store.run import Run

GROUP = "checks"
RUNS = {
    "": "--samples 6 --names none one-channel-numpy",
    "--healthy": "--samples 6 --names digits",
    "--margins": "--samples 6 --names digits",
}
ALLOWED = 0.01
"""By which share of the samples a headline may exceed the truth."""
CLOSE = 0.03
"""Within which share of the samples an adaptive stage is expected to come."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Result of an audit."""

    clean: int | None = None
    headline: int | None = None
    """Samples robust at the budget; None where the model was refused."""
    robust: np.ndarray | None = None
    """(n,) bool: the same, sample by sample."""
    failed: tuple[str, ...] = ()
    """Codes of checks that failed."""
    missing: tuple[str, ...] = ()
    """Codes of checks that were not made."""
    caveat: bool = False
    """True if the result warns that its headline may be too high."""
    refusal: str = ""
    """Reason for a missing headline."""
    forwards: int = 0
    seconds: float = 0.0

    def cells(self, *between: object) -> list[object]:
        """Those of a table: clean, headline, failed and missing checks, what is given, forwards and
        seconds.
        """
        failed = " ".join(self.failed) or (f"refused: {self.refusal[:90]}" if self.refusal else "")
        checks = (self.clean, self.headline, failed, " ".join(self.missing))
        return [*checks, *between, self.forwards, f"{self.seconds:.0f}"]


def audit(
    model: object, x: Tensor, y: Tensor, eps: str, attack: str | list[str], seed: int, **settings
) -> Answer:
    """One audit through the Python API, in Linf by default."""
    module = model if isinstance(model, nn.Module) else nn.Identity()
    began = time.perf_counter()
    settings = {
        "norm": "linf",
        "attack": attack,
        "samples": len(y),
        "seed": seed,
        "device": "cpu",
    } | settings
    with tempfile.TemporaryDirectory() as folder, measure.counting(module) as passes:
        try:
            result = brinell.audit(model, (x, y), eps=eps, out=Path(folder) / "run", **settings)
        except BrinellError as error:
            return Answer(
                refusal=str(error), forwards=passes.forwards, seconds=time.perf_counter() - began
            )
        rows = Run.open(Path(folder) / "run").rows
    model_result = result.models[0]
    robust = np.ones(len(y), dtype=bool)
    robust[rows.sample_id[measure.is_broken(rows)]] = False
    return Answer(
        clean=model_result.clean_accuracy.k,
        headline=model_result.robust_accuracy[-1].k,
        robust=robust,
        failed=tuple(check.code for check in model_result.checks if check.passed is False),
        missing=tuple(check.code for check in model_result.checks if check.passed is None),
        caveat=model_result.caveat is not None,
        forwards=passes.forwards or int(rows.forwards.sum()),
        seconds=time.perf_counter() - began,
    )


# --- broken defences
# -------------------------------------------------------------------------------------------------


def verdict(answer: Answer, robust_count: int, samples: int, flaw: str) -> str:
    """Verdict of one line; `robust_count` is the number of samples that are robust in truth."""
    if answer.headline is None:
        return "ok (refused)"
    wrong = answer.headline - robust_count > ALLOWED * samples
    if wrong and not answer.failed:
        return "wrong, and said to be unsure" if answer.caveat else "clean bill on a wrong figure"
    if answer.failed and not wrong and flaw == "none":
        return "false alarm"
    return "ok (named)" if wrong else "ok"


def adaptive(
    entry: Defence, pair: Pair, base: Base, eps: str, seed: int, out: Path | None
) -> np.ndarray:
    """(n,) bool: samples that are robust to the adaptive attack, cached under `out` until a source
    file of the zoo changes.
    """
    sources = b"".join(
        path.read_bytes() for path in sorted(Path(truth.__file__).parent.glob("*.py"))
    )
    key = hashlib.blake2b(sources, digest_size=6).hexdigest()
    file = (
        out
        and out
        / "truth"
        / f"{entry.name}-{base.name}-{eps.replace('/', '_')}-{len(base.y)}-{seed}-{key}.npy"
    )
    if file and file.is_file():
        return np.load(file)
    robust = truth.robust(pair, base, truth.budget(eps), flaw=entry.flaw, seed=seed).numpy()
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, robust)
    return robust


def broken(options: argparse.Namespace) -> None:
    """The table of broken defences."""
    columns = (
        "defence,base,eps,clean,headline,failed checks,not made,truth,headline - "
        "truth,forwards,seconds,verdict"
    )
    table = measure.Table("Broken defences", columns)
    outcomes: Counter[str] = Counter()
    close = []
    for entry in (ZOO[name] for name in options.names or ZOO):
        base = load(options.base or entry.base, options.samples, options.out)
        pair, eps = entry.build(base), entry.eps or base.eps
        answer = audit(
            pair.defended, base.x, base.y, eps, options.cascade, options.seed, **entry.audit
        )
        robust = adaptive(entry, pair, base, eps, options.seed, options.out)
        if answer.robust is not None and entry.flaw not in ("random", "company", "state"):
            robust &= answer.robust
        robust_count = int(robust.sum())
        outcome = verdict(answer, robust_count, len(base.y), entry.flaw)
        gap = None if answer.headline is None else answer.headline - robust_count
        table.add(entry.name, base.name, f"linf {eps}", *answer.cells(robust_count, gap), outcome)
        outcomes[outcome] += 1
        if entry.flaw != "none" and gap is not None:
            close.append(abs(gap) <= CLOSE * len(base.y))
    print("\n" + "; ".join(f"{outcome}: {count}" for outcome, count in sorted(outcomes.items())))
    print(
        f"headline within {CLOSE:.0%} of the samples of the truth: {sum(close)} "
        f"of {len(close)} broken defences with a headline"
    )


# --- healthy networks
# ------------------------------------------------------------------------------------------------


def is_right(
    model: object, x: Tensor, y: Tensor, norm: str, eps: str, answer: Answer, seed: int
) -> bool:
    """True if a failed check is right: stronger attacks break more samples than gradient attacks
    alone or the headline.
    """
    if answer.headline is None or not isinstance(model, nn.Module):
        return False
    gradients = audit(model, x, y, eps, ["apgd-ce", "apgd-t"], seed, norm=norm).headline
    robust = answer.headline
    if norm == "linf":
        base = Base(
            name="",
            net=model,
            x=x,
            y=y,
            eps=eps,
            train=lambda n: (x[:n], y[:n]),
            empty=lambda: model,
        )
        pair = Pair(defended=model, counterpart=model)
        robust = min(
            robust, int(truth.robust(pair, base, truth.budget(eps), flaw="none", seed=seed).sum())
        )
    return max(answer.headline, gradients or 0) - robust > ALLOWED * len(y)


def healthy(options: argparse.Namespace) -> None:
    """The table of healthy networks, and the rate of false alarms."""
    columns = (
        "network,norm,eps,samples,clean,headline,failed checks,not made,forwards,seconds,verdict"
    )
    table, alarms = measure.Table("Healthy networks", columns), []
    for network in networks():
        if not network.name.startswith(tuple(options.names or [""])):
            continue
        try:
            model, x, y = network.load(options.samples)
        except ImportError as error:
            print(
                f"\nLeft out: {network.name} needs {error.name}, which is not installed.\n",
                flush=True,
            )
            continue
        for norm, eps in network.budgets:
            answer = audit(
                model, x, y, eps, network.attack or options.cascade, options.seed, norm=norm
            )
            outcome = "refused" if answer.headline is None else "ok"
            if answer.failed:
                outcome = (
                    "ok (alarm is right)"
                    if is_right(model, x, y, norm, eps, answer, options.seed)
                    else "false alarm"
                )
            alarms.append(outcome in ("refused", "false alarm"))
            table.add(network.name, norm, eps, len(y), *answer.cells(), outcome)
    if interval := wilson(sum(alarms), len(alarms)):
        print(
            f"\nfalse alarms: {sum(alarms)} of {len(alarms)} pairs, 95 % interval "
            f"{interval.low:.1%} to {interval.high:.1%}"
        )


# --- margins beside the decision boundary
# ------------------------------------------------------------------------------


class Asker:
    """The scores of a function, in batches, as an oracle gives them."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function, self.forwards = function, 0

    def scores(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n, classes)."""
        self.forwards += len(x)
        with torch.no_grad():
            return torch.cat([self.function(part) for part in x.split(64)])


def subjects(
    names: tuple[str, ...], samples: int
) -> Iterator[tuple[str, Callable[[Tensor], Tensor], Tensor, Tensor]]:
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
            base = load(entry.base, samples)
            yield name, entry.build(base).defended, base.x, base.y


def compare_margins(
    function: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, seed: int
) -> list[object]:
    """The cells of one network."""
    asker = Asker(function)
    logits = asker.scores(y, x)
    right = (logits.argmax(1) == y).nonzero()[:, 0]
    right = (
        right[torch.randperm(len(right), generator=torch.Generator().manual_seed(seed))[:64]]
        .sort()
        .values
    )
    batch, logits, asker.forwards = (
        Batch(ids=torch.arange(len(right)), x=x[right], y=y[right]),
        logits[right],
        0,
    )
    lines = boundary.lines_between(asker, batch, logits, free=True)
    if not len(lines.ids):
        return [0, *[""] * 6, "no lines"]
    crossings = boundary.find_crossings(asker, lines, boundary.lead(logits).median())
    finding = boundary.judge_crossings(crossings, "lines", is_first=False)
    outcome = {True: "passed", False: "failed", None: "cannot tell"}[finding.passed]
    sides = [f"{float(side.amax()):.3f}" for side in (crossings.before, crossings.after)]
    steep = [f"{share:.2f}" for share in crossings.steep().tolist()]
    return [len(lines.ids), f"{asker.forwards / len(lines.ids):.1f}", *sides, *steep, outcome]


def margins(options: argparse.Namespace) -> None:
    """The table of margins."""
    columns = (
        "network,lines,forwards a line,before,after,steep at 98 %,at 99.8 %,at 99.98 %,outcome"
    )
    table = measure.Table("Margins beside the decision boundary", columns)
    for name, function, x, y in subjects(tuple(options.names or [""]), options.samples):
        table.add(name, *compare_margins(function, x, y, options.seed))


def main() -> None:
    """One table."""
    switches = {name: False for name in ("healthy", "margins", "list")}
    options = measure.arguments(
        __doc__, names=[], base="", cascade="fast", out=Path, samples=0, seed=0, **switches
    )
    table = healthy if options.healthy else margins if options.margins else broken
    options.samples = options.samples or (100 if table is broken else 64)
    if table is broken and (unknown := [name for name in options.names if name not in ZOO]):
        raise SystemExit(f"no defence {', '.join(unknown)}: --list names them all")
    if options.list:
        print(
            "\n".join(
                f"{name} ({ZOO[name].flaw}): {ZOO[name].summary}" for name in options.names or ZOO
            )
        )
        return
    table(options)


if __name__ == "__main__":
    main()
