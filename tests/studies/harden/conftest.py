import numpy as np
import pytest

from _hardening import MODEL, samples, words
from brinell.cli import run as cli


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harden")
    (folder / "model.py").write_text(MODEL)
    for name, n, seed in (("train", 256, 0), ("test", 60, 1)):
        x, y = samples(n, seed)
        np.savez(folder / f"{name}.npz", x=x, y=y)
    return folder


@pytest.fixture(scope="session")
def done(work):
    out = work / "done"
    assert cli(words(work, out, "--quiet")) == 0
    return out
