"""Freed memory is kept where the C library is glibc, and nothing happens elsewhere."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from brinell.cli import malloc

FAULTS = """
import resource, sys
import numpy as np
from brinell.cli.malloc import keep_freed_memory
assert sys.argv[1] == "without" or keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    held = [np.ones(24 * 2**20, dtype=np.uint8) for _ in range(4)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    for name in malloc.OWN:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.nightly
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_large_arrays_are_mapped_once():
    """Four arrays of 24 MiB, made and dropped twenty times: their pages once, and not twenty times."""
    counts = []
    for word in ("with", "without"):
        process = subprocess.run(
            [sys.executable, "-c", FAULTS, word],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        )
        counts.append(int(process.stdout))
    retained_faults, mapped = counts
    assert retained_faults < mapped / 5


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("the C library was called"))
    assert malloc.keep_freed_memory() is False


@pytest.mark.parametrize("library", [object(), None])
def test_another_c_library(monkeypatch, library):
    def load(name):
        if library is None:
            raise OSError("no such library")
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert malloc.keep_freed_memory() is False


def test_another_system(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert malloc.keep_freed_memory() is False
