"""What the checks of `brinell audit` cost, as shares of the processor time of a whole run with its
page.

    python benchmarks/check_cost.py [--subjects resnet4b resnet20] [--samples 500] [--attack fast]
    [--repeat 3]

Each run is made in this process on one thread; the first one warms up and is not counted.
"""

import functools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np
import pytest

import brinell
from brinell.engine.model_checks import ModelChecks

GROUP = "checks"
RUNS = {"": "--subjects cnn4_pgd --samples 20 --repeat 1"}
GROUPS = {
    "failed_checks": "before the attacks",
    "_repair": "search for inner scores",
    "survivor_checks": "on robust samples",
    "probe_ahead": "probes compared",
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


def run(subject: measure.Subject, attack: str, samples: int) -> dict[str, float]:
    """Processor time of the groups of checks, and of the whole run."""
    seconds: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, group in GROUPS.items():
            patch.setattr(ModelChecks, name, timed(seconds, group, getattr(ModelChecks, name)))
        settings = {
            "eps": subject.eps_text,
            "samples": samples,
            "attack": attack,
            "out": Path(folder) / "run",
        }
        work = functools.partial(brinell.audit, subject.model_spec, subject.data_spec, **settings)
        audit, seconds["whole run"] = measure.timed(work)
    if failed := [
        check.code for result in audit.models for check in result.checks if check.passed is False
    ]:
        raise SystemExit(
            f"{subject.name}: {', '.join(failed)} failed, so this is no figure of a healthy model"
        )
    return seconds


def main() -> None:
    """A line for each network."""
    options = measure.arguments(
        __doc__, subjects=["resnet4b", "resnet20"], samples=500, attack="fast", repeat=3
    )
    groups = [*GROUPS.values(), "all"]
    table = measure.Table(
        "Cost of the checks", ["network", "whole run, cpu s", *(f"{group}, %" for group in groups)]
    )
    for name in options.subjects:
        runs = [
            run(measure.subject(name), options.attack, options.samples)
            for _ in range(options.repeat + 1)
        ][1:]
        shares = [
            [100 * seconds[group] / seconds["whole run"] for group in GROUPS.values()]
            for seconds in runs
        ]
        columns = [*np.array(shares).T, np.sum(shares, axis=1)]
        whole = measure.spread([seconds["whole run"] for seconds in runs], 1)
        table.add(name, whole, *(measure.spread(list(column), 1) for column in columns))


if __name__ == "__main__":
    main()
