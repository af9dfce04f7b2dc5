"""Networks in memory beside a folder: they are opened on the inputs of the folder."""

import runpy

import pytest
from torch import nn

import brinell
from brinell.core.errors import BrinellError


@pytest.fixture(scope="module")
def network(patterns):
    """The network of `patterns`, as its file makes it."""
    return runpy.run_path(str(patterns.folder / "model.py"))["patterns"]()


def test_transfer_of_a_set_to_a_network(benchmark_run, patterns, network, tmp_path):
    """The set's inputs are 1 × 8 × 8 of four classes: the network answers as its spec does."""
    in_memory = brinell.transfer(benchmark_run, model=network, out=tmp_path / "memory")
    by_spec = brinell.transfer(benchmark_run, model=patterns.model, out=tmp_path / "spec")
    assert in_memory.classes == by_spec.classes == list("first second third fourth".split())
    for one, other in zip(in_memory.cells, by_spec.cells, strict=True):
        assert (one.accuracy, one.success) == (other.accuracy, other.success)


def test_explaining_a_network_on_the_examples_of_its_run(audit_run, patterns, network, tmp_path):
    """The network's maps are those of its spec; a network of other inputs is refused."""
    settings = {"run": audit_run, "method": ["gradient"], "steps": 2, "samples": 4}
    in_memory = brinell.explain(network, out=tmp_path / "memory", **settings)
    by_spec = brinell.explain(out=tmp_path / "spec", **settings)
    assert in_memory.n == by_spec.n == 4
    assert in_memory.methods[0].deletion == by_spec.methods[0].deletion
    with pytest.raises(BrinellError, match="."):
        brinell.explain(nn.Linear(7, 4), out=tmp_path / "other", **settings)
