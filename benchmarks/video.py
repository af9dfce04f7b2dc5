"""RLAB on videos: what it reaches, alone and beside random placement and Square restricted to the
same distortions' values.

    python examples/train_video.py $BRINELL_SHARED/video/asl_gesture_clips.npz --out runs/gestures
    python examples/train_video.py $BRINELL_SHARED/video/davis_clips.npz --out runs/davis --hold-out
    1 --mirror python benchmarks/video.py --study free|equal [--data gestures davis] [--clips 12]
    [--seeds 0] [--distortions gaussian-noise]

    free     without a limit on the distance: success, queries, distance after clean-up; lists of
             distortions joined by commas
    equal    within the same L2, from the same patches and the same versions of the same
             distortions; further --policies

On the first held-out clips that the network gets right. A query is one clip shown to the network,
the first check and clean-up included; a clip that was not fooled counts as infinitely many for a
median and as the whole budget for a mean. Figures are means over the seeds with the smallest and
the largest in brackets; ratios are paired by clip, with the 95 % bootstrap interval. Seconds are
the processor's. The restricted Square search is that of benchmarks/rlab/controls.py.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import measure
import torch
from black_box import Bench
from rlab.common import Outcome, cells, fight, over, over_seeds
from rlab.controls import restricted

from brinell import plugins
from brinell.core.domain import Domain

GROUP = "kinds"
RUNS = {
    "--study free": "--data gestures --clips 2",
    "--study equal": "--data gestures --clips 2 --budget 40 --eps 40",
}


class Films(NamedTuple):
    """Description of the data in a table."""

    name: str
    domain: Domain


def open_bench(name: str, clips: int) -> Bench:
    """A network of examples/train_video.py with the first held-out clips that it gets right."""
    folder = measure.ROOT / "runs" / name
    if not (folder / "weights.safetensors").is_file():
        raise SystemExit(
            f"there is no {folder}/weights.safetensors: train it as the first "
            "lines of this file say"
        )
    dataset = plugins.build("dataset", "npz", {"path": str(folder / "test.npz")})()
    settings = {
        "weights": str(folder / "weights.safetensors"),
        "args": f"classes={len(dataset.classes)}",
    }
    path = f"{measure.ROOT / 'examples' / 'models' / 'video.py'}:r2plus1d"
    module = plugins.build("model", "torch", {"path": path, **settings})(dataset.domain).info.module
    module = measure.FullModel(module).eval().requires_grad_(False)
    x, y = dataset.load(range(len(dataset))), torch.from_numpy(dataset.labels())
    right = measure.is_right(module, x, y, 16)
    return Bench(Films(name, dataset.domain), module, x[right][:clips], y[right][:clips])  # type: ignore[arg-type]


def mean_queries(outcomes: list[Outcome], budget: int) -> str:
    """Mean queries, failures as the whole budget."""
    return over_seeds(outcomes, lambda outcome: float(outcome.queries.clamp_max(budget).mean()), 0)


def equal(options: Namespace, bench: Bench) -> None:
    """Ways to place the same distortions within the same distance."""
    eps, budget, places = (
        options.eps,
        options.budget,
        f"patch={options.patch}&draws={options.draws}&slots=32",
    )
    spec = f"rlab?distortions={options.distortions}&{places}&clean_up=false"
    policies = {"RLAB, greedy": "greedy"}
    policies |= {f"RLAB, {Path(policy).stem}": policy for policy in options.policies}
    ways: dict[str, Callable[[int], Outcome]] = {
        name: lambda seed, policy=policy: fight(bench, f"{spec}&policy={policy}", eps, budget, seed)
        for name, policy in policies.items()
    }
    ways["Square, restricted to the same values"] = lambda seed: restricted(
        bench, spec, eps, budget, seed
    )
    columns = (
        f"way, @{budget // 4}, @{budget}, median queries, mean queries, mean over "
        "greedy's, s per clip"
    )
    title = f"{bench.subject.name}: {options.distortions}, L2 at most {eps:g}, {len(bench.y)} clips"
    table = measure.Table(
        title,
        columns,
        f"Patches of {options.patch} of each clip, {options.draws} draws; no clean-up.",
    )
    base: list[Outcome] = []
    for name, run in ways.items():
        ends = [run(seed) for seed in options.seeds]
        base = base or ends
        rates, mean = cells(ends, f"@{budget // 4} rate median"), mean_queries(ends, budget)
        table.add(
            name, *rates, mean, over(ends, base, budget), *cells(ends, "seconds", len(bench.y))
        )


def free(options: Namespace, bench: Bench) -> None:
    """As far as each distortion takes, with the policy that is shipped."""
    columns = (
        "distortions, success, median queries, mean queries, most, L2 after "
        "clean-up, places changed, s per clip"
    )
    title = f"{bench.subject.name}: without a limit on the distance, {len(bench.y)} clips"
    note = f"Patches of {options.patch}, {options.draws} draws, at most {options.budget} queries."
    table, places = (
        measure.Table(title, columns, note),
        f"patch={options.patch}&draws={options.draws}&slots=32&policy=default",
    )
    for distortions in options.distortions.split(","):
        spec = f"rlab?distortions={distortions}&{places}"
        ends = [fight(bench, spec, 1e3, options.budget, seed) for seed in options.seeds]
        most = over_seeds(ends, lambda outcome: float(outcome.queries.max()), 0)
        queries = (mean_queries(ends, options.budget), most)
        table.add(
            distortions,
            *cells(ends, "rate median"),
            *queries,
            *cells(ends, "l2 pixels seconds", len(bench.y)),
        )


def main() -> None:
    """One study on one data set or both."""
    texts = {"distortions": "gaussian-noise", "patch": "4x16x16", "policies": []}
    counts = {"clips": 12, "draws": 4, "eps": 25.0, "budget": 400, "seeds": [0]}
    options = measure.arguments(
        __doc__, study=("free", "equal"), data=["gestures", "davis"], **texts, **counts
    )
    for name in options.data:
        {"free": free, "equal": equal}[options.study](options, open_bench(name, options.clips))


if __name__ == "__main__":
    main()
