"""A network over real heartbeats: its accuracy, and what breaks it.

    python benchmarks/ecg.py --study network     train it (if the weights are missing) and print its
                                                 accuracy on new patients
    python benchmarks/ecg.py --study free        RLAB on beats that it may distort without a limit,
                                                 distortion by distortion
    python benchmarks/ecg.py --study curves      success within so many queries at an L2 cap, beside
                                                 Square and random placement

The network sees each beat with the intervals around it; only the trace is attacked. Beats are those
of the 18 test patients, in turn, that the network gets right. A query is one beat shown to the
network, the first check included. The cap of 1 mV in L2 over the 187 values of a beat is a root
mean square of 73 uV, less than the 0.1 mV of a small square on ECG paper. Weights are trained once
and kept in --weights.
"""

import math
from argparse import Namespace
from functools import cache
from pathlib import Path

import measure
import torch
from black_box import Bench
from rlab.common import Outcome, capped, cells, fight, over
from safetensors.torch import save_file
from torch import Tensor, nn

from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.engine.sources import open_data

GROUP = "kinds"
RUNS = {"--study network": "", "--study free": "--samples 6", "--study curves": "--samples 6"}
FOLDER = measure.SHARED / "ecg_mitbih"
SIGNALS = ("baseline-wander", "mains-hum", "muscle-noise", "electrode-pop", "dropout", "gain")
GENERAL = ("gaussian-noise", "brightness", "gaussian-blur", "occlusion")
ALL_SIGNALS = "+".join(SIGNALS)
CAP = 1.0
WEIGHTS = "runs/ecg/rhythmnet.safetensors"
PLAIN = "clean_up=false&refine=0"
ATTACKS = (
    f"rlab?distortions={ALL_SIGNALS}&{PLAIN}",
    f"rlab?distortions={ALL_SIGNALS}&{PLAIN}&policy=greedy",
    f"rlab?{PLAIN}",
    f"rlab?distortions=signed-patch&{PLAIN}&policy=greedy",
    "square?steps=999",
)


@cache
def data(part: str) -> Dataset:
    """The beats of `train_ds1` or `test_ds2`, patients in turn."""
    options = (
        "?kind=signal&divide=1000&unit=mV&low=-5&high=5&groups=record&rhythm=rr_prev_s+rr_next_s"
    )
    return open_data(f"npz:{FOLDER / f'mitbih_beats_{part}.npz'}{options}")


class Beats(measure.Subject):
    """The network and the beats of the test patients."""

    @property
    def domain(self) -> Domain:
        """Millivolts, and seconds that no attack changes."""
        return data("test_ds2").domain

    def samples(
        self, n: int, module: nn.Module, skip: int = 0, start: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The first `n` beats, patients in turn, that the network gets right."""
        x, y = (
            data("test_ds2").load(range(len(data("test_ds2")))),
            torch.from_numpy(data("test_ds2").labels()),
        )
        right = measure.is_right(module, x, y)
        return x[right][:n], y[right][:n]


def open_bench(samples: int, weights: str = WEIGHTS) -> Bench:
    """The network, trained where it is missing, with the beats that it is attacked on."""
    path = Path(weights).resolve()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        training, beats = measure.import_example("train_ecg.py"), data("train_ds1")
        patients = training.patients(beats)
        mask = patients != "201"  # of the same patient as 202 in the test half
        x, y = beats.load(range(len(beats)))[mask], torch.from_numpy(beats.labels())[mask]
        net = training.train(
            x, y, len(beats.classes), rhythm=True, patients=patients[mask], epochs=training.EPOCHS
        )
        save_file({name: value.contiguous() for name, value in net.state_dict().items()}, path)
    settings = {"data": "", "shape": (4, 187), "eps": CAP, "eps_text": "1"}
    return Bench.of(
        Beats(name="ECG rhythmnet", factory="ecg.py:rhythmnet", weights=str(path), **settings),
        samples,
    )


def network(options: Namespace, bench: Bench) -> None:
    """Accuracy, balanced accuracy, and recall, precision and F1 per class on the test patients."""
    beats, training = data("test_ds2"), measure.import_example("train_ecg.py")
    scores = training.score(
        bench.module,
        beats.load(range(len(beats))),
        torch.from_numpy(beats.labels()),
        len(beats.classes),
    )
    four, rare = sum(scores.recall[:4]) / 4, int(scores.confusion[4].sum())
    note = (
        f"Accuracy {scores.accuracy:.3f}, balanced accuracy {scores.balanced:.3f} "
        f"({four:.3f} without Q, of which there are "
        f"{rare} beats), {len(beats)} beats of 18 patients."
    )
    columns = [
        "class",
        "beats",
        *(f"taken for {name}" for name in beats.classes),
        "recall",
        "precision",
        "F1",
    ]
    table = measure.Table("The network on patients that it has not seen", columns, note)
    for row, name in enumerate(beats.classes):
        predicted = int(scores.confusion[:, row].sum())
        precision = scores.confusion[row, row] / predicted if predicted else math.nan
        figures = (f"{scores.recall[row]:.2f}", f"{precision:.2f}", f"{scores.f1[row]:.2f}")
        table.add(name, int(scores.confusion[row].sum()), *scores.confusion[row].tolist(), *figures)


def free(options: Namespace, bench: Bench) -> None:
    """Every distortion alone, and those for signals together, without a limit on the distance."""
    note = (
        "Queries of the fooled and all, distances of the fooled in mV, after the "
        "clean-up. Policy: default."
    )
    columns = (
        "distortions, success, median queries, most queries, median L2, median share "
        "of values changed"
    )
    table = measure.Table(
        f"RLAB on {len(bench.y)} beats that it may distort freely, {options.queries} queries",
        columns,
        note,
    )
    for distortions in (ALL_SIGNALS, *SIGNALS, *GENERAL):
        result = fight(
            bench,
            f"rlab?distortions={distortions}&policy=default",
            1e3,
            options.queries,
            options.seeds[0],
        )
        most = max([*result.queries[result.queries.isfinite()].tolist(), -1])
        name = "all six for signals" if distortions == ALL_SIGNALS else distortions
        distances = (f"{result.of_fooled(result.l2):.2g}", f"{result.of_fooled(result.pixels):.2f}")
        table.add(name, f"{result.rate():.3f}", f"{result.median():.0f}", f"{most:.0f}", *distances)


def curves(options: Namespace, bench: Bench) -> None:
    """Success within so many queries at the cap, and what gradients reach."""
    title = f"Success within so many queries at L2 {options.eps:g} mV, {len(bench.y)} beats"
    note = (
        "Means with 1000 for a beat that was not fooled; the ratio to Square's "
        "is paired by beat, with its mean over the seeds, "
        "with the 95 % bootstrap interval over beats."
    )
    columns = "attack, @100, @250, @500, @1000, median queries, mean queries, over Square"
    table, base = measure.Table(title, columns, note), list[Outcome]()
    for spec in sorted(options.attacks or ATTACKS, key=lambda spec: not spec.startswith("square")):
        spec = (
            f"{spec}&policy=default" if spec.startswith("rlab") and "policy=" not in spec else spec
        )
        ends = [fight(bench, spec, options.eps, 1000, seed) for seed in options.seeds]
        base = base or ends
        mean = f"{float(capped(ends, 1000).mean()):.0f}"
        figures = cells(ends, "@100 @250 @500 @1000 median")
        table.add(
            f"`{spec}`".replace(ALL_SIGNALS, "SIGNALS"), *figures, mean, over(ends, base, 1000)
        )
    ledger = bench.open("l2", options.eps, None, access=Access.GRADIENTS)
    measure.run_attack(
        measure.build_attack("apgd?restarts=3&loss=margin"), ledger, Streams.of(0, ledger.batch.ids)
    )
    success = f"{float(ledger.fooled.float().mean()):.2f}"
    table.add("APGD on the margin, 3 restarts (gradients)", "", "", "", success, "", "", "")


def main() -> None:
    """One study."""
    studies = {"network": network, "free": free, "curves": curves}
    settings = {
        "samples": 200,
        "seeds": [0],
        "eps": CAP,
        "queries": 1000,
        "attacks": [],
        "weights": WEIGHTS,
    }
    options = measure.arguments(__doc__, study=tuple(studies), **settings)
    studies[options.study](options, open_bench(options.samples, options.weights))


if __name__ == "__main__":
    main()
