from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from _synthetic_runs import from_analysis, write_run


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The maker of runs with known answers."""
    return from_analysis("synthetic")


@pytest.fixture
def make(tmp_path):
    """Writes a run folder from the distances at which samples break, as the store lays it out."""

    def make(
        breaks: dict[str, np.ndarray],
        labels: np.ndarray,
        eps: list[float],
        classes: list[str],
        **changes,
    ) -> Path:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        return write_run(folder, breaks, labels, eps, classes, **changes)

    return make
