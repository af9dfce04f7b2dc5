"""Robust accuracy of each hardening recipe at equal cost: the comparison that both papers on RLAB
(2403.18985) leave open.

    BRINELL_SHARED=... OMP_NUM_THREADS=1 python benchmarks/recipes.py --subjects digits mnist
    cifar10 ecg video --seeds 0 1 2

Every recipe begins with the same plainly trained network and gets the same number of forward and
backward passes a training sample. The recipe `rlab` works in rounds: RLAB attacks the network as it
has become on some training samples (its queries count as forwards), and the network learns them,
half of each batch, with clean samples in the other half; with `rlab+pgd(steps=5)`, the other half
is PGD in L2 at twice the budget of RLAB. All end with the same test samples: untouched, after
`standard` in Linf, after RLAB within an L2 budget and its queries, and distorted all over at
severity 3.

Each line is one JSON object. With --unseen, the success of RLAB, PGD and distortions against each
recipe stands in one table instead, as `brinell harden` measures it after --passes a training
sample.

--table FILE prints the tables of such lines: means over the seeds,
with 95 % intervals over the samples, each of which takes its seeds along; distortions with the
least and the most of the seeds.
"""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measure
import numpy as np

import brinell
from brinell.analysis.curve import RIGHT, grid, worst_case
from brinell.analysis.means import mean
from brinell.engine.progress import SilentProgress
from brinell.engine.sources import open_data
from brinell.store.run import Run
from brinell.training.recipe import Recipe

GROUP = "hardening"
RUNS = {
    "": "--subjects digits --recipes before n-fgsm rlab --seeds 0 --samples 20 --attack fgsm",
    "--unseen": "--subjects digits --passes 2",
}
SHARED, MODELS = measure.SHARED, measure.ROOT / "examples" / "models"
CHEAP = ("plain", "rlab", "distortions", "pgd(steps=1,step_size=1.25)", "n-fgsm")
WIDER = 2
"""PGD beside what RLAB made is in L2, within this multiple of RLAB's budget."""
RECIPES = (
    *CHEAP,
    "rlab+pgd(steps=5)",
    "pgd(steps=5)",
    "trades(steps=5)",
    "mart(steps=5)",
    "alp(steps=5)",
    "pgd(steps=5)+awp",
)
FURTHER, SHORT = 1.5, 60
"""What is learned by `rlab` lies within this multiple of its L2 budget and is given up after so
many queries: most of the queries of a longer search go to samples that are not found."""
ECG = "kind=signal&divide=1000&unit=mV&low=-5&high=5&groups=record"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A trained network, its data, and the budgets."""

    data: str
    train: str
    model: str
    eps: str
    """In Linf, which is trained for."""
    l2: str
    """The budget of RLAB."""
    rlab: str
    queries: int
    """Of RLAB, for each sample."""
    passes: float
    """Forwards and backwards for each training sample."""
    attacked: int
    """Training samples that RLAB attacks in each round: so few that passes are left for learning
    what it finds."""
    rate: float
    """The learning rate."""
    samples: int = 200
    batch: int = 64
    """Far fewer than the training samples: of an epoch what does not fill a batch is left out."""


def subjects(scratch: Path) -> dict[str, Subject]:
    """What is compared; networks that are not in the shared data are expected in `scratch`."""
    return {
        "digits": Subject(
            data="digits",
            train="digits?split=train",
            model="digits-cnn",
            eps="0.2",
            l2="1",
            rlab="rlab?patch=1",
            queries=250,
            passes=400,
            attacked=400,
            rate=2e-3,
        ),
        "mnist": Subject(
            data=f"npz:{SHARED}/mnist/mnist_test.npz",
            train=f"npz:{SHARED}/mnist/mnist_train.npz",
            model=f"torch:{MODELS}/mnist.py:cnn4?weights={scratch}/cnn4.safetensors",
            eps="0.3",
            l2="2",
            rlab="rlab?patch=2&distortions=signed-patch(factor=4)",
            queries=250,
            passes=24,
            attacked=500,
            rate=2e-3,
        ),
        "cifar10": Subject(
            data=f"npz:{SHARED}/cifar10/cifar10_test.npz",
            train=f"npz:{SHARED}/cifar10/cifar10_train_a.npz",
            model=f"torch:{MODELS}/cifar10.py:captum_cnn?weights={SHARED}/cifar10_weights/captum_cnn_plain.safetensors",
            eps="4/255",
            l2="0.5",
            rlab="rlab?patch=2",
            queries=250,
            passes=100,
            attacked=500,
            rate=2e-3,
        ),
        "ecg": Subject(
            data=f"npz:{SHARED}/ecg_mitbih/mitbih_beats_test_ds2.npz?{ECG}",
            train=f"npz:{SHARED}/ecg_mitbih/mitbih_beats_train_ds1.npz?{ECG}",
            model=f"torch:{MODELS}/ecg.py:beatnet?weights={scratch}/ecg.safetensors",
            eps="0.05",
            l2="0.5",
            rlab="rlab?distortions=gaussian-noise+baseline-wander+muscle-noise",
            queries=250,
            passes=16,
            attacked=500,
            rate=2e-3,
        ),
        "video": Subject(
            data=f"npz:{scratch}/gestures/test.npz",
            train=f"npz:{scratch}/gestures/train.npz",
            model=f"torch:{MODELS}/video.py:r2plus1d?weights={scratch}/gestures/weights.safetensors",
            eps="2/255",
            l2="20",
            rlab="rlab?distortions=gaussian-noise&patch=4x16x16",
            queries=250,
            passes=60,
            attacked=25,
            rate=1e-3,
            samples=48,
            batch=16,
        ),
    }


def prepare(name: str, scratch: Path) -> None:
    """Train the first network of a subject, where it is neither built in, in the shared data, nor
    there already.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    subject = subjects(scratch)[name]
    if name == "mnist" and not (scratch / "cnn4.safetensors").exists():
        with tempfile.TemporaryDirectory() as out:
            first = hardened(
                replace(subject, samples=100),
                f"torch:{MODELS}/mnist.py:cnn4",
                "plain",
                6,
                0,
                Path(out) / "one",
            )
            shutil.copy(first.weights, scratch / "cnn4.safetensors")
    elif name == "ecg" and not (scratch / "ecg.safetensors").exists():
        _run(
            "train_ecg.py",
            subject.train,
            subject.data,
            "--without",
            "201",
            "--out",
            str(scratch / "ecg.safetensors"),
        )
    elif name == "video" and not (scratch / "gestures").exists():
        _run(
            "train_video.py",
            f"{SHARED}/video/asl_gesture_clips.npz",
            "--out",
            str(scratch / "gestures"),
            "--threads",
            "1",
        )


def _run(script: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, measure.ROOT / "examples" / script, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def hardened(
    subject: Subject,
    model: str,
    recipe: str,
    passes: float,
    seed: int,
    out: Path,
    norm: str = "linf",
    eps: str = "",
) -> Any:
    """The model after so many passes for each training sample.

    Its own audits are by one step: `judged` asks afterwards.
    """
    eps = eps or subject.eps
    return brinell.harden(
        model,
        subject.data,
        train=subject.train,
        recipe=recipe,
        norm=norm,
        eps=eps,
        budgets=f"0, {eps}",
        attack="fgsm",
        epochs=passes / sum(Recipe.of(recipe).cost()),
        samples=subject.samples,
        rate=subject.rate,
        seed=seed,
        device="cpu",
        batch_size=subject.batch,
        out=out,
        progress=SilentProgress(),
    )


def in_rounds(
    subject: Subject, seed: int, rounds: int, out: Path, beside: str
) -> tuple[Any, float, list[str]]:
    """The last hardening, the passes of all for each training sample, and what they tell; `beside`
    shares the batches.
    """
    place_of = {} if beside == "plain" else {"norm": "l2", "eps": str(WIDER * float(subject.l2))}
    n, model, cost, events = len(open_data(subject.train)), subject.model, 0.0, []
    for number in range(rounds):
        place = dict(pair.split("=", 1) for pair in subject.rlab.partition("?")[2].split("&"))
        asked_for = {
            "eps": str(FURTHER * float(subject.l2)),
            "steps": SHORT,
            "refine": 0,
            "levels": "1",
            "device": "cpu",
        }
        selection = {"samples": f"random:{subject.attacked}", "seed": rounds * seed + number}
        benchmark_set = brinell.benchmark(
            model,
            subject.train,
            out=out / f"set-{number}",
            progress=SilentProgress(),
            **asked_for,
            **selection,
            **place,
        )
        queries = benchmark_set.queries / n
        recipe = f"{beside}+benchmark-set(path={benchmark_set.folder})"
        result = hardened(
            subject,
            model,
            recipe,
            subject.passes / rounds - queries,
            seed,
            out / f"round-{number}",
            **place_of,
        )
        cost += queries + (result.training.forwards + result.training.backwards) / n
        events += result.events
        model = result.spec or model
    return result, cost, events


def measure_accuracy(subject: Subject, model: str, attack: str, out: Path) -> dict[str, list[int]]:
    """By measure, for each test sample 1 where the model is right."""
    shared: dict[str, Any] = {
        "samples": subject.samples,
        "device": "cpu",
        "progress": SilentProgress(),
    }
    linf = brinell.audit(
        model, subject.data, eps=f"0, {subject.eps}", attack=attack, out=out / "linf", **shared
    )
    shared |= {"norm": "l2", "eps": f"0, {subject.l2}", "queries": subject.queries}
    l2 = brinell.audit(model, subject.data, attack=subject.rlab, out=out / "l2", **shared)
    return {
        "clean": rows(linf.folder, 0),
        "linf": rows(linf.folder, -1),
        "rlab": rows(l2.folder, -1),
    }


def rows(folder: str, budget: int) -> list[int]:
    """For each sample of a run 1 where the model is right at this budget, by position."""
    run = Run.open(folder)
    cells = grid(run.rows, run.manifest, run.manifest["models"][0]["name"])
    return [int(state == RIGHT) for state in worst_case(cells, range(len(cells.stages)))[:, budget]]


def run(
    name: str, subject: Subject, recipe: str, seed: int, attack: str, rounds: int, out: Path
) -> dict[str, Any]:
    """Accuracies of one recipe with one seed."""
    model, passes, seconds, distorted = subject.model, 0.0, 0.0, None
    events: list[str] = []
    if recipe != "before":
        if recipe.partition("+")[0] == "rlab":
            result, passes, events = in_rounds(
                subject, seed, rounds, out, recipe.partition("+")[2] or "plain"
            )
        else:
            result = hardened(subject, model, recipe, subject.passes, seed, out / "one")
            last = result.training
            passes, events = (
                (last.forwards + last.backwards) / len(open_data(subject.train)),
                result.events,
            )
        seconds, model = result.training.seconds, result.spec or model
        distorted = float(
            np.mean(
                [
                    change.pair.value_a
                    for change in result.unseen
                    if not change.name.startswith(("PGD", "RLAB"))
                ]
            )
        )
    return {
        "subject": name,
        "recipe": recipe,
        "seed": seed,
        "eps": subject.eps,
        "l2": subject.l2,
        "queries": subject.queries,
        "attack": attack,
        "passes": round(passes, 1),
        "seconds": round(seconds, 1),
        "events": events,
        "distorted": distorted,
    } | measure_accuracy(subject, model, attack, out / "judged")


UNSEEN = (
    "plain",
    "pgd(steps=5)",
    "trades(steps=5)",
    "mart(steps=5)",
    "alp(steps=5)",
    "rlab(distortions=gaussian-noise)",
)
"""Recipes that `--unseen` compares."""


def unseen(subject: Subject, passes: float, seed: int) -> None:
    """What each recipe does to the success of RLAB, PGD and distortions, as `harden` measures it."""
    columns = (
        "recipe, clean, RLAB succeeds, mean queries, mean L2, PGD in Linf succeeds, in L2, "
        "distortions succeed in the mean, trained on"
    )
    title = f"{passes:g} passes a training sample, {subject.samples} test samples"
    note = "Of the samples that the network gets right; queries of at most 51."
    out = measure.Table(title, columns, note)
    for number, recipe in enumerate(UNSEEN):
        with tempfile.TemporaryDirectory() as folder:
            result = hardened(subject, subject.model, recipe, passes, seed, Path(folder) / "one")
        if number == 0:
            out.add("before", *_unseen_cells(result.unseen, "before"), "")
        used = [row.name.partition(",")[0] for row in result.unseen if row.seen]
        out.add(recipe, *_unseen_cells(result.unseen, "after"), ", ".join(used))


def _unseen_cells(rows: Any, model: str) -> list[str]:
    """Cells of a row from the changes of a hardening, `before` or `after` it."""
    success = {row.name: getattr(row, f"success_{model}") for row in rows}
    (rlab,) = (row for row in rows if row.name.startswith("RLAB"))
    linf, l2 = (_share(success[name]) for name in success if name.startswith("PGD"))
    distorted = [of.value for name, of in success.items() if not name.startswith(("PGD", "RLAB"))]
    return [
        f"{success[rlab.name].n} of {rlab.pair.n}",
        _share(success[rlab.name]),
        f"{getattr(rlab, f'queries_{model}'):.1f}",
        f"{getattr(rlab, f'l2_{model}') or float('nan'):.2f}",
        linf,
        l2,
        f"{100 * np.mean(distorted):.1f}",
    ]


def _share(share: Any) -> str:
    return f"{100 * share.value:.1f} ({100 * share.low:.1f}-{100 * share.high:.1f})"


def table(lines: list[dict[str, Any]]) -> str:
    """The tables of all lines, one for each subject."""
    out = []
    for name in dict.fromkeys(line["subject"] for line in lines):
        subject_lines = [line for line in lines if line["subject"] == name]
        first = subject_lines[0]
        out += [
            f"\n{name}, {len(first['clean'])} test samples, Linf {first['eps']}, "
            f"RLAB within L2 {first['l2']} and "
            f"{first['queries']} queries\n",
            f"| recipe | clean | {first['attack']} | RLAB | distorted | passes | seeds |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for recipe in dict.fromkeys(line["recipe"] for line in subject_lines):
            recipe_lines = [line for line in subject_lines if line["recipe"] == recipe]
            cells = [
                _interval([line[key] for line in recipe_lines]) for key in ("clean", "linf", "rlab")
            ]
            shares = [
                100 * line["distorted"] for line in recipe_lines if line["distorted"] is not None
            ]
            cells.append(
                f"{np.mean(shares):.1f} ({min(shares):.1f}-{max(shares):.1f})" if shares else ""
            )
            cells += [
                f"{np.mean([line['passes'] for line in recipe_lines]):.0f}",
                str(len(recipe_lines)),
            ]
            changed = any(
                "overfitting" in event for line in recipe_lines for event in line["events"]
            )
            out.append(
                f"| {recipe}{' (overfitted: went on more safely)' * changed} | "
                f"{' | '.join(cells)} |"
            )
    return "\n".join(out)


def _interval(seeds: list[list[int]]) -> str:
    values = np.array(seeds, dtype=np.float64)
    estimate = mean(values.ravel(), np.tile(np.arange(values.shape[1]), len(values)))
    assert estimate is not None, "every line has samples"
    if estimate.interval is None:
        return f"{100 * estimate.value:.1f}"
    interval = estimate.interval
    return f"{100 * estimate.value:.1f} ({100 * interval.low:.1f}-{100 * interval.high:.1f})"


def main() -> None:
    """Measure or print what was asked for."""
    names = list(subjects(Path()))
    texts = {
        "l2": "",
        "attack": "standard",
        "scratch": measure.ROOT / "runs" / "recipes",
        "table": Path,
    }
    lists = {"subjects": names, "recipes": ["before", *RECIPES], "seeds": [0, 1, 2]}
    numbers = {"samples": 0, "rounds": 4, "passes": 60.0}
    options = measure.arguments(__doc__, **lists, **numbers, **texts, unseen=False)
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    scratch = Path(options.scratch).resolve()
    for name in options.subjects:
        subject = subjects(scratch)[name]
        prepare(name, scratch)
        if options.unseen:
            unseen(subject, options.passes, options.seeds[0])
            continue
        subject = replace(
            subject, samples=options.samples or subject.samples, l2=options.l2 or subject.l2
        )
        for seed, recipe in itertools.product(options.seeds, options.recipes):
            if recipe == "before" and seed != options.seeds[0]:
                continue  # the same network whatever the seed
            with tempfile.TemporaryDirectory() as out:
                line = run(name, subject, recipe, seed, options.attack, options.rounds, Path(out))
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
