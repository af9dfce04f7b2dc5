"""How long a board of many runs takes, again after one new run, and how many runs that were altered at random it shows.

    python benchmarks/board.py [--models 20] [--tasks 50] [--samples 1000] [--altered 100] [--folder FOLDER]

Each model is the small network of the digits with other random weights, audited by FGSM at two budgets for each task. Some runs
are altered as the tests do (`tests/_board.py`). Runs that the folder holds are used again.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np
import torch

import brinell

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from _board import forge


def make_run(folder: Path, model: int, task: int, samples: int) -> Path:
    """Audit one model at the budgets of one task, unless the folder holds the run."""
    run = folder / f"model-{model}-task-{task}"
    if not run.exists():
        eps = [round(0.001 * (task + 1), 4), round(0.1 + 0.001 * (task + 1), 4)]
        spec = f"digits-cnn?width=4&seed={model}"
        brinell.audit(spec, "digits?split=train", samples=samples, attack="fgsm", eps=eps, out=run)
    return run


def build_board(runs: list[Path], site: Path) -> tuple[list[str], float, float]:
    """Make or renew a board; returns the refused folders, the wall time and the processor time of this process in seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    board = brinell.board(runs, out=site)
    return [refusal.run for refusal in board.refused], time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("models", 20), ("tasks", 50), ("samples", 1000), ("altered", 100), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder = options.folder or Path(tempfile.mkdtemp())
    pairs = [(model, task) for task in range(options.tasks) for model in range(options.models)]
    runs = [make_run(folder, model, task, options.samples) for model, task in pairs]
    rng = np.random.default_rng(options.seed)
    altered = {str(runs[place]) for place in rng.permutation(len(runs) - 1)[: options.altered]}
    for number, run in enumerate(sorted(altered)):
        forge(Path(run), options.seed + number)
    refused, *first = build_board(runs[:-1], folder / "site")
    _, *again = build_board(runs, folder / "site")
    print(f"`{measure.command(options, 'models', 'tasks', 'samples', 'altered')}` on {measure.machine()}\n")
    print("| | figure |\n| --- | --- |")
    print(f"| first build of {len(runs) - 1} runs | {first[0]:.1f} s, {first[1]:.1f} s of the first process |")
    print(f"| after one new run | {again[0]:.1f} s, {again[1]:.1f} s of the first process |")
    print(f"| altered runs shown | {len(altered - set(refused))} of {len(altered)} |")
    print(f"| honest runs refused | {len(set(refused) - altered)} of {len(runs) - 1 - len(altered)} |")
    print(f"| first page | {(folder / 'site' / 'index.html').stat().st_size / 1000:.0f} KB |")


if __name__ == "__main__":
    main()
