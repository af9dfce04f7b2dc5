"""How long a board of many runs takes, again after one new run, and how many runs that were altered
at random it shows.

    python benchmarks/board.py [--models 20] [--tasks 50] [--samples 1000] [--altered 100] [--folder
    FOLDER]

Each model is the small network of the digits with other random weights, audited by FGSM at two
budgets for each task. Some runs are altered as the tests do (`tests/_board.py`). Runs that the
folder holds are used again.
"""

import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np

import brinell

sys.path.append(str(measure.ROOT / "tests"))

from _edits import forge

GROUP = "checks"
RUNS = {"": "--models 2 --tasks 2 --samples 20 --altered 1"}


def make_run(folder: Path, model: int, task: int, samples: int) -> Path:
    """Audit one model at the budgets of one task, unless the folder holds the run."""
    run = folder / f"model-{model}-task-{task}"
    if not run.exists():
        eps = [round(0.001 * (task + 1), 4), round(0.1 + 0.001 * (task + 1), 4)]
        spec = f"digits-cnn?width=4&seed={model}"
        brinell.audit(spec, "digits?split=train", samples=samples, attack="fgsm", eps=eps, out=run)
    return run


def build_board(runs: list[Path], site: Path) -> tuple[list[str], str]:
    """Make or renew a board; returns the refused folders, and the time of the wall and of the
    processor in this process.
    """
    wall = time.perf_counter()
    board, processor = measure.timed(lambda: brinell.board(runs, level="rows", out=site))
    return [
        refusal.run for refusal in board.refused
    ], f"{time.perf_counter() - wall:.1f} s, {processor:.1f} s of the first process"


def main() -> None:
    """The table."""
    options = measure.arguments(
        __doc__, models=20, tasks=50, samples=1000, altered=100, seed=0, folder=Path
    )
    folder = options.folder or Path(tempfile.mkdtemp())
    pairs = [(model, task) for task in range(options.tasks) for model in range(options.models)]
    runs = [make_run(folder, model, task, options.samples) for model, task in pairs]
    rng = np.random.default_rng(options.seed)
    altered = {str(runs[place]) for place in rng.permutation(len(runs) - 1)[: options.altered]}
    for number, run in enumerate(sorted(altered)):
        forge(Path(run), options.seed + number)
    refusals, first = build_board(runs[:-1], folder / "site")
    _, second = build_board(runs, folder / "site")
    table = measure.Table("A board", ["", "figure"])
    table.add(f"first build of {len(runs) - 1} runs", first)
    table.add("after one new run", second)
    table.add("altered runs shown", f"{len(altered - set(refusals))} of {len(altered)}")
    table.add(
        "honest runs refused", f"{len(set(refusals) - altered)} of {len(runs) - 1 - len(altered)}"
    )
    table.add("first page", f"{(folder / 'site' / 'index.html').stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
