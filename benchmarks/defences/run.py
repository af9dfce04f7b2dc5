"""`brinell audit` on every broken defence of the zoo: its headline and its checks, compared with the truth.

    python -m benchmarks.defences [--names jpeg dropout ...] [--base NAME] [--samples 100] [--cascade fast] [--seed 0] [--out DIR]
    python -m benchmarks.defences --list
    python -m benchmarks.defences.healthy          (networks with nothing broken: false alarms)

Run from the root of the repository. Counts are samples. The truth is the adaptive attack of `truth.py`, and counts what the
audit broke as broken, too; it and the networks that a defence trains are kept under `--out` and used again while these sources
stay as they are. Verdicts:

- `ok`: the headline is at most 1 of 100 above the truth, or a failed check or a refusal names a cause.
- `clean bill on a wrong figure`: no check failed, and the headline is more than 1 of 100 above the truth.
- `wrong, and said to be unsure`: the same, where the result says that checks which count were not made.
- `false alarm`: a check failed on a defence in which nothing is broken, and the headline is right.
"""

import argparse
import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import brinell
from benchmarks import measure
from benchmarks.defences import ZOO, base, pair, truth
from brinell.core.errors import BrinellError
from brinell.core.record import BROKEN
from brinell.engine.request import Request
from brinell.store.run import Run

COLUMNS = "defence,base,eps,clean,headline,failed checks,not made,truth,headline - truth,forwards,seconds,verdict"
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


def audit(model: object, x: torch.Tensor, y: torch.Tensor, eps: str, attack: str | list[str], seed: int, **settings) -> Answer:
    """One audit through the Python API, in Linf by default; settings that this version does not know are left out."""
    accepted = {"norm": "linf"} | {name: value for name, value in settings.items() if name in Request.model_fields}
    module = model if isinstance(model, torch.nn.Module) else torch.nn.Identity()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, measure.counting(module) as passes:
        try:
            result = brinell.audit(
                model,
                (x, y),
                eps=eps,
                attack=attack,
                samples=len(y),
                seed=seed,
                device="cpu",
                out=Path(folder) / "run",
                **accepted,
            )
        except BrinellError as error:
            return Answer(refusal=str(error), forwards=passes.forwards, seconds=time.perf_counter() - began)
        rows = Run.open(Path(folder) / "run").records()
    model_result = result.models[0]
    robust = np.ones(len(y), dtype=bool)
    robust[rows.sample_id[np.isin(rows.outcome.astype(str), [str(outcome) for outcome in BROKEN])]] = False
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
    entry: pair.Defence, defence_pair: pair.Pair, loaded: base.Base, eps: str, seed: int, out: Path | None
) -> np.ndarray:
    """(n,) bool: samples that are robust to the adaptive attack, cached under `out` until a source file of the zoo changes."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")) if path.stem not in TELLERS)
    key = hashlib.blake2b(sources, digest_size=6).hexdigest()
    file = out and out / "truth" / f"{entry.name}-{loaded.name}-{eps.replace('/', '_')}-{len(loaded.y)}-{seed}-{key}.npy"
    if file and file.is_file():
        return np.load(file)
    robust = truth.robust(defence_pair, loaded, truth.budget(eps), flaw=entry.flaw, seed=seed).numpy()
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, robust)
    return robust


TELLERS = {"run", "healthy", "__main__"}
"""Files on which no truth depends."""


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.defences", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", nargs="+", help="default: all", metavar="NAME")
    parser.add_argument("--base", help="put every defence around this network (default: each its own)")
    parser.add_argument("--cascade", default="fast")
    parser.add_argument("--out", type=Path, help="keeps truths and trained networks")
    parser.add_argument("--list", action="store_true", help="say what each defence is, and stop")
    for name, default in (("samples", 100), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    names = options.names or list(ZOO)
    if unknown := [name for name in names if name not in ZOO]:
        parser.error(f"no defence {', '.join(unknown)}: --list names them all")
    if options.list:
        print("\n".join(f"{name} ({ZOO[name].flaw}): {ZOO[name].summary}" for name in names))
        return
    command = f"python -m benchmarks.defences --samples {options.samples} --cascade {options.cascade} --seed {options.seed}"
    table = measure.Table("Broken defences", command, COLUMNS.split(","))
    counts: dict[str, int] = {}
    close_count, flawed = 0, 0
    for name in names:
        outcome, close = line(table, ZOO[name], options)
        counts[outcome] = counts.get(outcome, 0) + 1
        if ZOO[name].flaw != "none" and close is not None:
            close_count, flawed = close_count + close, flawed + 1
    print("\n" + "; ".join(f"{outcome}: {count}" for outcome, count in sorted(counts.items())))
    print(f"headline within {CLOSE:.0%} of the samples of the truth: {close_count} of {flawed} broken defences with a headline")


def line(table: measure.Table, entry: pair.Defence, options: argparse.Namespace) -> tuple[str, bool | None]:
    """One line; gives its verdict, and whether the headline is near the truth."""
    loaded = base.load(options.base or entry.base, options.samples, options.out)
    defence_pair, eps = entry.build(loaded), entry.eps or loaded.eps
    answer = audit(defence_pair.defended, loaded.x, loaded.y, eps, options.cascade, options.seed, **entry.audit)
    robust = adaptive(entry, defence_pair, loaded, eps, options.seed, options.out)
    comparable = defence_pair.reject is None or "reject_class" in Request.model_fields
    if answer.robust is not None and comparable and entry.flaw not in ("random", "company"):
        robust &= answer.robust
    robust_count = int(robust.sum())
    outcome = verdict(answer, robust_count, len(loaded.y), entry.flaw)
    gap = None if answer.headline is None else answer.headline - robust_count
    failed = " ".join(answer.failed) or (f"refused: {answer.refusal[:90]}" if answer.refusal else "")
    cells = (failed, " ".join(answer.missing), robust_count, gap, answer.forwards, f"{answer.seconds:.0f}", outcome)
    table.add(entry.name, loaded.name, f"linf {eps}", answer.clean, answer.headline, *cells)
    return outcome, None if gap is None else abs(gap) <= CLOSE * len(loaded.y)
