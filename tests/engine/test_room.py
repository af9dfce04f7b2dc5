"""Where a device has too little memory the batches are halved, and the records are those of smaller ones."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from _helpers import Recorder, audited, mlp
from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError
from brinell.engine.room import Room

DOMAIN = Domain(kind="vector", shape=(6,))
ATTACKS = ("apgd-ce?steps=5", "square?steps=10")


def short(what):
    return torch.OutOfMemoryError(f"{what} was to take 7 GiB")


class Backward(torch.autograd.Function):
    """Passes everything through, and has no memory for the gradients of more than `most` inputs."""

    @staticmethod
    def forward(ctx, x, most):
        ctx.most = most
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if len(grad) > ctx.most:
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
    x = torch.rand(40, 6, generator=torch.Generator().manual_seed(1))
    return network, x.numpy(), network(x).argmax(1).numpy()


def rows_of(run):
    records = run.records()
    return {one.name: getattr(records, one.name) for one in fields(records) if one.name != "seconds"}


@pytest.mark.parametrize("room", [(5, 100), (100, 5), (9, 6)], ids=["forwards", "backwards", "both"])
def test_the_records_are_those_of_the_batches_that_fit(tmp_path, data, room):
    network, x, y = data
    model = small(network, *room)
    run = audited(tmp_path / "short", model, x, y, batch_size=16, attack=ATTACKS)
    plain = audited(tmp_path / "plain", small(network, 100, 100), x, y, batch_size=4, attack=ATTACKS)
    for name, values in rows_of(plain).items():
        found = rows_of(run)[name]
        if values.dtype.kind == "f":  # clean logits of another batch have other last digits
            np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found, values, err_msg=name)
    told = [text for said in run.manifest["remarks"]["recorder"].values() for text in said.values() if "memory" in text]
    assert told == [f"memory was short for batches of {2 * size} inputs: from there on they hold {size}" for size in (8, 4)]
    assert "memory" not in plain.manifest["remarks"]["recorder"]
    assert max(len(call) for call in model.calls[-50:]) <= 4  # remembered


def test_one_input_that_does_not_fit_is_an_error_in_one_line(tmp_path, data):
    network, x, y = data
    with pytest.raises(MemoryShortError, match="failed on a batch of 1 inputs .*7 GiB"):
        audited(tmp_path / "run", small(network, 0, 0), x, y, batch_size=4, attack=ATTACKS)
    with pytest.raises(MemoryShortError, match="one input alone does not fit .*7 GiB"):
        Room(2, lambda remark: None).fit(lambda: (_ for _ in ()).throw(short("an attack")))


def test_what_an_attack_needs_itself_halves_the_batches_too():
    told = []
    room = Room(16, told.append)

    def work():
        if room.size > 3:
            raise short("a table")
        return room.size

    assert room.fit(work) == room.size == 2 and [one.code for one in told] == ["batch-8", "batch-4", "batch-2"]
