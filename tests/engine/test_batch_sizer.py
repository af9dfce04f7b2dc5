"""If a device runs out of memory, batches are halved, and the records equal those of smaller
batches."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from _helpers import Recorder, mlp, run_audit
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError
from brinell.engine.batch_sizer import BatchSizer

DOMAIN = Domain(kind="vector", shape=(6,))
ATTACKS = ("apgd-ce?steps=3", "square?steps=5")


@pytest.fixture(autouse=True)
def _without_collection(monkeypatch):
    """To collect what a whole session of tests holds takes seconds."""
    monkeypatch.setattr("gc.collect", lambda: 0)


def short(subject):
    return torch.OutOfMemoryError(f"{subject} was to take 7 GiB")


class Backward(torch.autograd.Function):
    """Passes everything through, and has no memory for the gradients of more than `limit` inputs."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if len(grad) > ctx.limit:
            raise short("a gradient")
        return grad, None


def small(network, forwards, backwards):
    """A model with memory for so many inputs at once."""

    def logits(x):
        if len(x) > forwards:
            raise short("a batch")
        return network(Backward.apply(x, backwards))

    return Recorder(logits, DOMAIN, classes=3)


@pytest.fixture(scope="module")
def data():
    network = mlp()
    x = torch.rand(20, 6, generator=torch.Generator().manual_seed(1))
    return network, x.numpy(), network(x).argmax(1).numpy()


def rows_of(run):
    records = run.rows
    return {
        field.name: getattr(records, field.name)
        for field in fields(records)
        if field.name != "seconds"
    }


def test_the_records_are_those_of_the_batches_that_fit(tmp_path_factory, data, subtests):
    for room in [(9, 6)]:
        with subtests.test(str((room,))):
            tmp_path = tmp_path_factory.mktemp("row")
            network, x, y = data
            model = small(network, *room)
            run = run_audit(tmp_path / "short", model, x, y, batch_size=16, attack=ATTACKS)
            plain = run_audit(
                tmp_path / "plain", small(network, 100, 100), x, y, batch_size=4, attack=ATTACKS
            )
            for name, values in rows_of(plain).items():
                column = rows_of(run)[name]
                if values.dtype.kind == "f":  # clean logits of another batch have other last digits
                    np.testing.assert_allclose(column, values, rtol=1e-5, atol=1e-6, err_msg=name)
                else:
                    np.testing.assert_array_equal(column, values, err_msg=name)
            messages = [
                text
                for stage_remarks in run.manifest["remarks"]["recorder"].values()
                for text in stage_remarks.values()
                if "memory" in text
            ]
            assert messages == [
                f"memory was short for batches of {2 * size} inputs: from there on they hold {size}"
                for size in (8, 4)
            ]
            assert "memory" not in str(plain.manifest["remarks"])
            assert max(len(call) for call in model.calls[-50:]) <= 4  # remembered


def test_one_input_that_does_not_fit_is_an_error_in_one_line(tmp_path, data):
    network, x, y = data
    with pytest.raises(MemoryShortError, match="failed on a batch of 1 inputs .*7 GiB"):
        run_audit(tmp_path / "run", small(network, 0, 0), x, y, batch_size=4, attack=ATTACKS)
    with pytest.raises(MemoryShortError, check=refused("engine.batch_sizer.BatchSizer.halve")):
        BatchSizer(2, lambda remark: None).fit(lambda: (_ for _ in ()).throw(short("an attack")))


def test_what_an_attack_needs_itself_halves_the_batches_too():
    remarks = []
    sizer = BatchSizer(16, remarks.append)

    def work():
        if sizer.size > 3:
            raise short("a table")
        return sizer.size

    assert sizer.fit(work) == sizer.size == 2 and [remark.code for remark in remarks] == [
        "batch-8",
        "batch-4",
        "batch-2",
    ]
