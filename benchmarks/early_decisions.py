"""How often an audit in waves decides wrongly, and after how many samples it decides.

    OMP_NUM_THREADS=1 python -m benchmarks.early_decisions --repetitions 10000

Simulates `brinell audit --until robust:THRESHOLD`: independent samples of a known robust accuracy,
with a look after each wave. Prints a table in Markdown.
"""

import argparse
import math

import numpy as np

from brinell.analysis.sequences import ValueCounts, log_wealth
from brinell.core.record import Array
from brinell.engine.waves import wave_ends

GROUP = "checks"
RUNS = {"": "--repetitions 20"}
ERROR = 0.025
"""The probability of a wrong decision on each side."""


def simulate_decisions(
    truth: float, threshold: float, most: int, repetitions: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """The decisions of audits of at most so many samples, and when they were made.

    Returns:
        (repetitions,) int: 1 for passes, -1 for fails, 0 for undecided; and the numbers of samples.
    """
    limit = -math.log(ERROR)
    decisions = np.zeros(repetitions, dtype=int)
    samples = np.full(repetitions, most)
    robust = np.zeros(repetitions, dtype=int)
    before = 0
    for n in wave_ends(most):
        robust += rng.binomial(n - before, truth, repetitions)
        before = n
        counts = ValueCounts(n - robust, 0, robust)
        passes = log_wealth(counts, threshold) >= limit
        fails = log_wealth(counts.mirrored(), 1 - threshold) >= limit

        is_new = (decisions == 0) & (passes | fails)
        decisions[is_new] = np.where(passes, 1, -1)[is_new]
        samples[is_new] = n
    return decisions, samples


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=1000)
    arguments = parser.parse_args()

    rng = np.random.default_rng(76)
    print(
        "| threshold | truth | passes, % | fails, % | undecided, % | mean samples | 95 % of audits |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for threshold in (0.1, 0.4, 0.5, 0.8):
        for distance in (-0.2, -0.1, -0.02, 0.0, 0.02, 0.1, 0.2):
            truth = threshold + distance
            if not 0 <= truth <= 1:
                continue
            decisions, samples = simulate_decisions(
                truth, threshold, arguments.samples, arguments.repetitions, rng
            )
            shares = [100 * float((decisions == value).mean()) for value in (1, -1, 0)]
            print(
                f"| {threshold:g} | {truth:.2g} | {shares[0]:.2f} | {shares[1]:.2f} | "
                f"{shares[2]:.1f} | {samples.mean():.0f} | {np.quantile(samples, 0.95):.0f} |"
            )


if __name__ == "__main__":
    main()
