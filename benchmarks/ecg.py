"""A network over real heartbeats: its accuracy, and what breaks it.

    python benchmarks/ecg.py --study network     train it (if the weights are missing) and print its accuracy on new patients
    python benchmarks/ecg.py --study free        RLAB on beats that it may distort without a limit, distortion by distortion
    python benchmarks/ecg.py --study curves      success within so many queries at an L2 cap, beside Square and random placement
    python benchmarks/ecg.py --study curves --beats ECG5000_TRAIN.txt    the same on the second set of beats

The network sees each beat with the intervals around it; only the trace is attacked. Beats are those of the 18 test
patients, in turn, that the network gets right. A query is one beat shown to the network, the first check included. The cap of
1 mV in L2 over the 187 values of a beat is a root mean square of 73 uV, less than the 0.1 mV of a small square on ECG paper.
Weights are trained once and kept in --weights.

The second set is the smaller file of ECG5000 (UCR archive, 500 beats of one patient, a line each: the class, then 140 values): of
each five beats of the file three are learned from and two attacked. They were scaled to a standard deviation of 1 by those who
made it; a third of that, near the 0.33 mV of MIT-BIH's beats, is taken for 1 mV, so that bounds and distortions mean the same,
and the cap is the same root mean square of 73 uV, 0.865 in L2. The network is `beatnet`, trained by the same recipe for more
epochs, because there are few beats.
"""

import argparse
import math
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from black_box import Bench, spread
from rlab.common import Outcome, fight, outcome
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.intervals import ratio, ratio_text
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.core.user_files import import_file
from brinell.engine.sources import open_data

OPTIONS = "?kind=signal&divide=1000&unit=mV&low=-5&high=5&groups=record&rhythm=rr_prev_s+rr_next_s"
FOLDER = measure.SHARED / "ecg_mitbih"
SIGNALS = ("baseline-wander", "mains-hum", "muscle-noise", "electrode-pop", "dropout", "gain")
GENERAL = ("gaussian-noise", "brightness", "gaussian-blur", "occlusion")
ALL_SIGNALS = "+".join(SIGNALS)
CAP = 1.0
SECOND_CAP, SECOND_EPOCHS = 0.865, 100
"""Of the second set: the same root mean square over 140 values, and the epochs that its 300 beats need."""
BUDGETS = (100, 250, 500, 1000)
ATTACKS = (
    f"rlab?distortions={ALL_SIGNALS}&clean_up=false&refine=0",
    f"rlab?distortions={ALL_SIGNALS}&clean_up=false&refine=0&policy=greedy",
    f"rlab?distortions={ALL_SIGNALS}&clean_up=false&refine=0&policy=random-search",
    "rlab?clean_up=false&refine=0",
    "rlab?distortions=signed-patch&clean_up=false&refine=0&policy=greedy",
    "square?steps=999",
)


@cache
def data(part: str) -> Dataset:
    """The beats of `train_ds1` or `test_ds2`, patients in turn."""
    return open_data(f"npz:{FOLDER / f'mitbih_beats_{part}.npz'}{OPTIONS}")


class Beats(measure.Subject):
    """The network and the beats of the test patients."""

    @property
    def test_data(self) -> Dataset:
        """Those that it is attacked on."""
        return data("test_ds2")

    @property
    def domain(self) -> Domain:
        """Millivolts, and seconds that no attack changes."""
        return self.test_data.domain

    def module(self) -> nn.Module:
        """The network with its weights."""
        from safetensors.torch import load_file

        net: nn.Module = import_file(measure.ROOT / "examples" / "models" / "ecg.py").rhythmnet()
        net.load_state_dict(load_file(self.weights))
        return measure.FullModel(net).eval().requires_grad_(False)

    def samples(self, n: int, module: nn.Module) -> tuple[Tensor, Tensor]:
        """The first `n` beats, patients in turn, that the network gets right."""
        dataset = self.test_data
        x, y = dataset.load(range(len(dataset))), torch.from_numpy(dataset.labels())
        with torch.no_grad():
            right = torch.cat([module(part) for part in x.split(512)]).argmax(1) == y
        return x[right][:n], y[right][:n]


class Second(Beats):
    """The network and the beats of the second set, whose file is `data`."""

    @cached_property
    def test_data(self) -> Dataset:
        """Two of each five beats."""
        return second(Path(self.data), Path(self.weights).parent)[1]

    @property
    def domain(self) -> Domain:
        """As if in millivolts."""
        return self.test_data.domain

    def module(self) -> nn.Module:
        """The network with its weights."""
        from safetensors.torch import load_file

        net: nn.Module = import_file(measure.ROOT / "examples" / "models" / "ecg.py").beatnet("1", "5", "140")
        net.load_state_dict(load_file(self.weights))
        return measure.FullModel(net).eval().requires_grad_(False)


def second(beats: Path, folder: Path) -> tuple[Dataset, Dataset]:
    """What is learned from and what is attacked, of a file of ECG5000."""
    rows = np.loadtxt(beats)
    learned = np.arange(len(rows)) % 5 < 3
    parts = []
    for name, mask in (("train", learned), ("test", ~learned)):
        file = folder / f"ecg5000-{name}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        x, y = rows[mask, None, 1:].astype(np.float32), rows[mask, 0].astype(np.int64) - 1
        np.savez(file, x=x, y=y, classes=np.array(list("12345")))
        parts.append(open_data(f"npz:{file}?kind=signal&divide=3&unit=mV&low=-5&high=5"))
    return parts[0], parts[1]


def bench_of(options: argparse.Namespace) -> Bench:
    """The network with the beats that it is attacked on."""
    train_where_missing(options)
    if options.beats:
        second_subject = Second(
            name="ECG5000 beatnet", factory="ecg.py:beatnet", weights=options.weights, data=options.beats, shape=(1, 140),
            eps=SECOND_CAP, eps_text=str(SECOND_CAP),
        )  # fmt: skip
        module = second_subject.module()
        return Bench(second_subject, module, *second_subject.samples(options.samples, module))
    subject = Beats(
        name="ECG rhythmnet", factory="ecg.py:rhythmnet", weights=options.weights, data="", shape=(4, 187), eps=CAP, eps_text="1"
    )
    module = subject.module()
    return Bench(subject, module, *subject.samples(options.samples, module))


def recipe() -> Any:
    """examples/train_ecg.py as a module."""
    return import_file(measure.ROOT / "examples" / "train_ecg.py")


def train_where_missing(options: argparse.Namespace) -> None:
    """By the recipe, without record 201, which is of the same patient as 202 in the test half."""
    from safetensors.torch import save_file

    if Path(options.weights).exists():
        return
    Path(options.weights).parent.mkdir(parents=True, exist_ok=True)
    training = recipe()
    if options.beats:
        train_data, test_data = second(Path(options.beats), Path(options.weights).parent)
        x, y = train_data.load(range(len(train_data))), torch.from_numpy(train_data.labels())
        net = training.train(x, y, len(train_data.classes), epochs=SECOND_EPOCHS)
        scores = training.score(
            net, test_data.load(range(len(test_data))), torch.from_numpy(test_data.labels()), len(test_data.classes)
        )
        print(f"{len(y)} beats learned; of {len(test_data)} others {scores.accuracy:.3f} are right", flush=True)
    else:
        train_data = data("train_ds1")
        patients = training.patients(train_data)
        mask = patients != "201"
        x, y = train_data.load(range(len(train_data)))[mask], torch.from_numpy(train_data.labels())[mask]
        net = training.train(x, y, len(train_data.classes), rhythm=True, patients=patients[mask], epochs=training.EPOCHS)
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, options.weights)


def network(options: argparse.Namespace) -> None:
    """Accuracy, balanced accuracy, and recall, precision and F1 per class on the test patients."""
    train_where_missing(options)
    dataset = data("test_ds2")
    net = bench_of(options).module
    scores = recipe().score(net, dataset.load(range(len(dataset))), torch.from_numpy(dataset.labels()), len(dataset.classes))
    four = sum(scores.recall[:4]) / 4
    note = (
        f"Accuracy {scores.accuracy:.3f}, balanced accuracy {scores.balanced:.3f} ({four:.3f} without Q, of which there are "
        f"{int(scores.confusion[4].sum())} beats), {len(dataset)} beats of 18 patients."
    )
    columns = ["class", "beats", *(f"taken for {name}" for name in dataset.classes), "recall", "precision", "F1"]
    table = measure.Table("The network on patients that it has not seen", command(options), columns, note)
    for row, name in enumerate(dataset.classes):
        predicted = int(scores.confusion[:, row].sum())
        precision = scores.confusion[row, row] / predicted if predicted else math.nan
        figures = (f"{scores.recall[row]:.2f}", f"{precision:.2f}", f"{scores.f1[row]:.2f}")
        table.add(name, int(scores.confusion[row].sum()), *scores.confusion[row].tolist(), *figures)


def free(options: argparse.Namespace) -> None:
    """Every distortion alone, and those for signals together, without a limit on the distance."""
    bench = bench_of(options)
    note = "Queries of the fooled and all, distances of the fooled in mV, after the clean-up. Policy: default."
    columns = ["distortions", "success", "median queries", "most queries", "median L2", "median share of values changed"]
    title = f"RLAB on {len(bench.y)} beats that it may distort freely, {options.queries} queries"
    arguments = ["--distortions", *options.distortions] if options.distortions else []
    table = measure.Table(title, command(options, "--queries", str(options.queries), *arguments), columns, note)
    for distortions in options.distortions or (ALL_SIGNALS, *SIGNALS, *GENERAL):
        result = fight(bench, f"rlab?distortions={distortions}&policy=default", 1e3, options.queries, options.seeds[0])
        most = float(result.queries[result.queries.isfinite()].max()) if result.queries.isfinite().any() else math.nan
        name = "all six for signals" if distortions == ALL_SIGNALS else distortions
        cells = (f"{result.of_fooled(result.l2):.2g}", f"{result.of_fooled(result.pixels):.2f}")
        table.add(name, f"{result.rate():.3f}", f"{result.median():.0f}", f"{most:.0f}", *cells)


def curves(options: argparse.Namespace) -> None:
    """Success within so many queries at the cap, and what gradients reach."""
    bench = bench_of(options)
    title = f"Success within so many queries at L2 {options.eps:g} mV, {len(bench.y)} beats"
    columns = ["attack", *(f"@{budget}" for budget in BUDGETS), "median queries", "mean queries", "over Square"]
    arguments = ["--attacks", *(f"'{spec}'" for spec in options.attacks)] if options.attacks else []
    note = (
        f"Means with {max(BUDGETS)} for a beat that was not fooled; the ratio to Square's is paired by beat, with its mean over "
        "the seeds, with the 95 % bootstrap interval over beats."
    )
    table = measure.Table(title, command(options, "--eps", f"{options.eps:g}", *arguments), columns, note)
    base: np.ndarray[Any, Any] | None = None
    specs = sorted(options.attacks or ATTACKS, key=lambda spec: not spec.startswith("square"))
    for spec in specs:
        ends: list[Outcome] = []
        for seed in options.seeds:
            ledger, _ = bench.fight(spec, "l2", options.eps, max(BUDGETS) - 1, seed)
            ends.append(outcome(ledger, bench.x, 0.0))
        rates = [spread([result.rate(budget) for result in ends], 2) for budget in BUDGETS]
        capped = torch.stack([result.queries.clamp_max(max(BUDGETS)) for result in ends]).mean(0).numpy()
        base = capped if spec.startswith("square") else base
        over = ""
        if base is not None and base is not capped:
            over = ratio_text(*ratio(capped, base))
        figures = (spread([result.median() for result in ends], 0), f"{capped.mean():.0f}", over)
        table.add(f"`{spec}`".replace(ALL_SIGNALS, "SIGNALS"), *rates, *figures)
    ledger, batch, threat = bench.open("l2", options.eps, None, access=Access.GRADIENTS)
    attack = plugins.build("attack", "apgd", {"restarts": 3, "loss": "margin"})
    attack(ledger.oracle(), batch, threat, Streams.of(0, batch.ids))
    table.add(
        "APGD on the margin, 3 restarts (gradients)",
        *["" for _ in BUDGETS[:-1]],
        f"{float(ledger.fooled.float().mean()):.2f}",
        *["", "", ""],
    )


def command(options: argparse.Namespace, *arguments: str) -> str:
    """How a study is repeated."""
    words = ["python benchmarks/ecg.py --study", options.study, "--samples", str(options.samples), "--seeds"]
    return " ".join([*words, *map(str, options.seeds), *(["--beats", "ECG5000_TRAIN.txt"] if options.beats else []), *arguments])


def main() -> None:
    """One study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=("network", "free", "curves"), required=True)
    parser.add_argument("--samples", type=int, default=200, help="beats that the network gets right")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--eps", type=float, help="L2 cap of `curves`, in mV")
    parser.add_argument("--beats", help="the second set: the training file of ECG5000, as text")
    parser.add_argument("--queries", type=int, default=1000, help="of `free`, for a beat")
    parser.add_argument("--distortions", nargs="+", help="of `free`, where not all")
    parser.add_argument("--attacks", nargs="+", help="of `curves`, as on the command line")
    parser.add_argument("--weights", help="where the network is kept: in runs/ecg by default")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.weights = options.weights or f"runs/ecg/{'beatnet-ecg5000' if options.beats else 'rhythmnet'}.safetensors"
    options.eps = options.eps or (SECOND_CAP if options.beats else CAP)
    torch.set_num_threads(options.threads)
    {"network": network, "free": free, "curves": curves}[options.study](options)


if __name__ == "__main__":
    main()
