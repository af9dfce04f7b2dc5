"""`brinell benchmark`: the adversarial benchmark set of a model."""

from functools import partial
from typing import Any

from brinell.cli.options import ShardText, flags_of, percent, say, say_how_many, show
from brinell.cli.verb import Asked, verb
from brinell.studies.benchmark.request import BenchmarkRequest


@verb(BenchmarkRequest, kept="run.toml", resume="Go on with the set in --out.")
def benchmark(asked: Asked, shard: ShardText = None) -> int:
    """Distort what the model classifies correctly until it errs, at graded severities, and store it as a data set.

    The folder loads with the datasets library; --data bench:FOLDER scores other models on it.
    """
    from brinell.api import make_benchmark
    from brinell.runners.meeting import Shard
    from brinell.studies.benchmark.plan import make_plan

    part = Shard.asked(shard, asked.out)
    plan = make_plan(asked.request(BenchmarkRequest))
    for sample, why in plan.unreadable.items():
        say(f"warning: sample {sample} is left out: {why}")
    say_how_many(plan)
    result = asked.carry_out(partial(make_benchmark, shard=part), plan, "benchmark", *flags_of(shard))
    return asked.answer(result, lambda: _show(result))


def _show(answer: Any) -> None:
    outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in answer.outcomes.items() if count)
    show(f"{answer.samples} samples: {outcomes}; {answer.queries:,} queries")
    if answer.median_l2 is not None:
        show(
            f"  adversarial examples, medians: L2 {answer.median_l2:.3g}, {answer.median_patches:g} patches, "
            f"{answer.median_queries_to_success:g} queries, {answer.median_queries_to_refined:g} with clean-up"
        )
        show(f"  {'level':>5}   inputs   accuracy   in 8 bits   not reachable")
    for one in answer.levels if answer.median_l2 is not None else ():
        stored = percent(one.accuracy_quantised)
        show(f"  {one.level:>5g}   {one.inputs:>6}   {percent(one.accuracy):>8}   {stored:>9}   {one.unreached:>13}")
    show(f"benchmark set: {answer.folder}")
