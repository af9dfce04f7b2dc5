"""A work folder, and a complete set that all tests share."""

import numpy as np
import pytest

from _sets import FILTERS, MODEL, benchmark_arguments
from brinell.cli import run as cli


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """Twelve pictures, one of them above the threshold and thus misclassified; a model, and
    distortions.
    """
    folder = tmp_path_factory.mktemp("work")
    rng = np.random.default_rng(0)
    x = (rng.uniform(0.2, 0.55, (12, 5, 5)) * 255).astype(np.uint8)
    x[3] = 200
    np.savez(
        folder / "data.npz",
        x=x[:, None],
        y=np.zeros(12, dtype=np.int64),
        classes=["dark", "bright", "dim"],
    )
    (folder / "model.py").write_text(MODEL)
    (folder / "distortions.py").write_text(FILTERS)
    return folder


@pytest.fixture(autouse=True)
def _working_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_CALLS", "0")
    monkeypatch.setattr("brinell.studies.benchmark.run.PIECE_SAMPLES", 5)


@pytest.fixture(scope="session")
def benchmark_set(work):
    """A complete set in three pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brinell.studies.benchmark.run.PIECE_SAMPLES", 5)
        assert cli(benchmark_arguments(work, work / "made")) == 0
    return work / "made"
