import numpy as np
import pytest

from _hardening import MODEL, harden_arguments, samples
from brinell.cli import run as cli


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("harden")
    (directory / "model.py").write_text(MODEL)
    for name, n, seed in (("train", 256, 0), ("test", 60, 1)):
        x, y = samples(n, seed)
        np.savez(directory / f"{name}.npz", x=x, y=y)
    return directory


@pytest.fixture(scope="session")
def hardened_run(workspace):
    folder = workspace / "done"
    assert cli(harden_arguments(workspace, folder)) == 0
    return folder
