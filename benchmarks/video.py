"""RLAB on videos: what it reaches, alone and beside random placement and Square restricted to the same distortions' values.

    python examples/train_video.py $BRINELL_SHARED/video/asl_gesture_clips.npz --out runs/gestures
    python examples/train_video.py $BRINELL_SHARED/video/davis_clips.npz --out runs/davis --hold-out 1 --mirror
    python benchmarks/video.py --study free|equal [--data gestures davis] [--clips 12] [--seeds 0] [--distortions gaussian-noise]

    free     without a limit on the distance: success, queries, distance after clean-up
    equal    within the same L2, from the same patches and the same versions of the same distortions

On the first held-out clips that the network gets right. A query is one clip shown to the network, the first check and clean-up
included; a clip that was not fooled counts as infinitely many for a median and as the whole budget for a mean. Figures are means
over the seeds with the smallest and the largest in brackets; ratios are paired by clip, with the 95 % bootstrap interval. Seconds
are the processor's.

The restricted Square search places whole windows of patches that carry one version of one distortion, smaller and smaller ones on
Square's schedule (Andriushchenko et al. 2020, Square Attack, section 3), and keeps what lowers the margin; patches elsewhere are
cleared at random where a window would exceed the budget. Its start fills the budget at random.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import measure
import torch
from black_box import Bench, spread
from rlab.common import Outcome, fight, over_seeds
from rlab.controls import restricted
from torch import Tensor

from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.intervals import ratio, ratio_text


class Films(NamedTuple):
    """Description of the data in a table."""

    name: str
    domain: Domain


def bench_of(name: str, clips: int) -> Bench:
    """A network of examples/train_video.py with the first held-out clips that it gets right."""
    folder = measure.ROOT / "runs" / name
    if not (folder / "weights.safetensors").is_file():
        raise SystemExit(f"there is no {folder}/weights.safetensors: train it as the first lines of this file say")
    dataset = plugins.build("dataset", "npz", {"path": str(folder / "test.npz")})()
    module = plugins.build(
        "model",
        "torch",
        {
            "path": f"{measure.ROOT / 'examples' / 'models' / 'video.py'}:r2plus1d",
            "weights": str(folder / "weights.safetensors"),
            "args": f"classes={len(dataset.classes)}",
        },
    )(dataset.domain).module
    module = measure.FullModel(module).eval().requires_grad_(False)
    x, y = dataset.load(range(len(dataset))), torch.from_numpy(dataset.labels())
    with torch.no_grad():
        right = torch.cat([module(part) for part in x.split(16)]).argmax(1) == y
    return Bench(Films(name, dataset.domain), module, x[right][:clips], y[right][:clips])  # type: ignore[arg-type]


# --- studies ---------------------------------------------------------------------------------------------------------


def equal(options: argparse.Namespace, bench: Bench) -> None:
    """Ways to place the same distortions within the same distance."""
    eps, budget = options.eps, options.budget
    spec = f"rlab?distortions={options.distortions}&patch={options.patch}&draws={options.draws}&clean_up=false&slots=32"
    ways: dict[str, Callable[[int], Outcome]] = {
        "RLAB, greedy": lambda seed: fight(bench, f"{spec}&policy=greedy", eps, budget, seed),
        "random search (policy=random-search)": lambda seed: fight(bench, f"{spec}&policy=random-search", eps, budget, seed),
        "Square, restricted to the same values": lambda seed: restricted(bench, spec, eps, budget, seed),
    }
    for policy in options.policies:
        name = f"RLAB, {Path(policy).stem}"
        ways[name] = lambda seed, policy=policy: fight(bench, f"{spec}&policy={policy}", eps, budget, seed)
    columns = f"way, @{budget // 4}, @{budget}, median queries, mean queries, mean over greedy's, s per clip"
    title = f"{bench.subject.name}: {options.distortions}, L2 at most {eps:g}, {len(bench.y)} clips"
    out = table(options, title, columns, f"Patches of {options.patch} of each clip, {options.draws} draws; no clean-up.")
    greedy: Tensor | None = None
    for name, run in ways.items():
        ends = [run(seed) for seed in options.seeds]
        queries = torch.stack([outcome.queries.clamp_max(budget) for outcome in ends])
        greedy = queries if greedy is None else greedy
        out.add(
            name,
            over_seeds(ends, lambda outcome: outcome.rate(budget // 4), 2),
            over_seeds(ends, Outcome.rate, 2),
            over_seeds(ends, Outcome.median, 0),
            spread(queries.mean(1).tolist(), 0),
            "" if greedy is queries else ratio_text(*ratio(queries.mean(0).numpy(), greedy.mean(0).numpy())),
            over_seeds(ends, lambda outcome: outcome.seconds / len(bench.y), 1),
        )


def free(options: argparse.Namespace, bench: Bench) -> None:
    """As far as each distortion takes, with the policy that is shipped."""
    budget = options.budget
    columns = "distortions, success, median queries, mean queries, most, L2 after clean-up, places changed, s per clip"
    title = f"{bench.subject.name}: without a limit on the distance, {len(bench.y)} clips"
    out = table(options, title, columns, f"Patches of {options.patch}, {options.draws} draws, at most {budget} queries.")
    for distortions in options.distortions.split(","):
        spec = f"rlab?distortions={distortions}&patch={options.patch}&draws={options.draws}&slots=32&policy=default"
        ends = [fight(bench, spec, 1e3, budget, seed) for seed in options.seeds]
        out.add(
            distortions,
            over_seeds(ends, Outcome.rate, 2),
            over_seeds(ends, Outcome.median, 0),
            spread([float(outcome.queries.clamp_max(budget).mean()) for outcome in ends], 0),
            spread([float(outcome.queries.max()) for outcome in ends], 0),
            over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.l2), 2),
            over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.pixels), 2),
            over_seeds(ends, lambda outcome: outcome.seconds / len(bench.y), 1),
        )


def table(options: argparse.Namespace, title: str, columns: str, note: str) -> measure.Table:
    """A table that says how it is made again."""
    words = ["python benchmarks/video.py --study", options.study, "--data", *options.data, "--clips", str(options.clips)]
    words += ["--distortions", f'"{options.distortions}"', "--patch", options.patch, "--draws", str(options.draws)]
    words += ["--eps", f"{options.eps:g}"] if options.study == "equal" else []
    words += ["--policies", *options.policies] if options.policies else []
    words += ["--budget", str(options.budget), "--seeds", *map(str, options.seeds)]
    return measure.Table(title, " ".join(words), columns.split(", "), note)


def main() -> None:
    """One study on one data set or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=("free", "equal"), required=True)
    parser.add_argument("--data", nargs="+", choices=("gestures", "davis"), default=["gestures", "davis"])
    parser.add_argument("--clips", type=int, default=12)
    parser.add_argument("--distortions", default="gaussian-noise", help="joined by +; of free, lists of them joined by commas")
    parser.add_argument("--patch", default="4x16x16")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--eps", type=float, default=25.0)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--policies", nargs="*", default=[], help="of equal: further policies, files of brinell train-agent")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.data:
        {"free": free, "equal": equal}[options.study](options, bench_of(name, options.clips))


if __name__ == "__main__":
    main()
