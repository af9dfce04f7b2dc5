"""What the checks of `brinell audit` cost, as shares of the processor time of a whole run with its page.

    python benchmarks/check_cost.py [--subjects resnet4b resnet20] [--samples 500] [--attack fast] [--repeat 3]

Each run is made in this process on one thread; the first one warms up and is not counted. The data and the weights are those in
BRINELL_SHARED.
"""

import argparse
import functools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from measure import Subject

import brinell
from brinell.engine.model_checks import ModelChecks

GROUPS = {
    "failed_checks": "before the attacks",
    "_repair": "search for inner scores",
    "survivor_checks": "on robust samples",
    "final_checks": "copies and drift",
}


def timed(seconds: dict[str, float], group: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose processor time is added to that of its group."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return method(*args, **kwargs)
        finally:
            seconds[group] += time.process_time() - start

    return call


def run(subject: Subject, attack: str, samples: int) -> dict[str, float]:
    """Processor time of the groups of checks, and of the whole run."""
    seconds: dict[str, float] = defaultdict(float)
    originals = {name: getattr(ModelChecks, name) for name in GROUPS}
    for name, method in originals.items():
        setattr(ModelChecks, name, timed(seconds, GROUPS[name], method))
    try:
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            audit = brinell.audit(
                data=subject.data_spec,
                model=subject.model_spec,
                eps=subject.eps_text,
                samples=samples,
                attack=attack,
                out=Path(folder) / "run",
            )
            seconds["whole run"] = time.process_time() - start
            failed = [check.code for result in audit.models for check in result.checks if check.passed is False]
    finally:
        for name, method in originals.items():
            setattr(ModelChecks, name, method)
    if failed:
        raise SystemExit(f"{subject.name}: {', '.join(failed)} failed, so this is no figure of a healthy model")
    return seconds


def main() -> None:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=["resnet4b", "resnet20"])
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--attack", default="fast")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    groups = [*GROUPS.values(), "all"]
    print(f"| network | whole run, cpu s | {' | '.join(f'{group}, %' for group in groups)} |")
    print("| --- " * (len(groups) + 2) + "|")
    for name in options.subjects:
        subject = measure.subject(name)
        runs = [run(subject, options.attack, options.samples) for _ in range(options.repeat + 1)][1:]
        shares = [[100 * r.get(group, 0.0) / r["whole run"] for group in GROUPS.values()] for r in runs]
        columns = [*np.array(shares).T, np.sum(shares, axis=1)]
        print(
            f"| {name} | {measure.spread([r['whole run'] for r in runs], 1)} | "
            f"{' | '.join(measure.spread(list(column), 1) for column in columns)} |"
        )


if __name__ == "__main__":
    main()
