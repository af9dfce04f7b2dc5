"""Models with a state that a copy does not leave behind, or that shows in one check alone.

A store answers near duplicates of what it has seen with the answer that it gave before. It is
shared by deep copies, by all objects of a class, or through a file. An empty store judges.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Around, Pair, defence

Entries = tuple[Tensor, Tensor]
"""(k, values) inputs and (k, classes) answers."""
NEAR = 0.06
"""Mean difference of the values of two inputs that count as duplicates."""
KEPT = 64
"""Inputs of the first batches that a store keeps."""
EARLY, LATE = 15, 40
"""Calls after which a model that tires answers otherwise."""


class Store:
    """A store in memory, which a deep copy shares."""

    def __init__(self) -> None:
        self.entries: Entries | None = None

    def __deepcopy__(self, memo: object) -> "Store":
        return self

    def read(self) -> Entries | None:
        """What is kept; None before the first input."""
        return self.entries

    def write(self, entries: Entries) -> None:
        """Keep these entries in the place of all."""
        self.entries = entries


class Singleton(Store):
    """One store of all objects of the class."""

    shared: Entries | None = None

    def read(self) -> Entries | None:
        """What any object keeps."""
        return Singleton.shared

    def write(self, entries: Entries) -> None:
        """Keep these entries for all objects."""
        Singleton.shared = entries


class OnDisk(Store):
    """A store in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __deepcopy__(self, memo: object) -> "OnDisk":
        return OnDisk(self.file)

    def read(self) -> Entries | None:
        """What the file holds."""
        if not self.file.is_file():
            return None
        with np.load(self.file) as arrays:
            return torch.from_numpy(arrays["inputs"]), torch.from_numpy(arrays["answers"])

    def write(self, entries: Entries) -> None:
        """Write the file."""
        np.savez(self.file, inputs=entries[0].numpy(), answers=entries[1].numpy())


class Remembering(nn.Module):
    """A network that gives an input close to one in its store the answer of that one."""

    def __init__(self, net: nn.Module, store: Store, near: float = NEAR) -> None:
        super().__init__()
        self.net, self.store, self.near = net, store, near

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        answers = self.net(x)
        values = x.detach().flatten(1)
        entries = self.store.read()
        if entries is None or len(entries[0]) < KEPT:
            old_inputs, old_answers = entries or (values[:0], answers[:0].detach())
            entries = (
                torch.cat([old_inputs, values])[:KEPT],
                torch.cat([old_answers, answers.detach()])[:KEPT],
            )
            self.store.write(entries)
        inputs, kept = entries
        distance, nearest = (torch.cdist(values, inputs, p=1) / values.shape[1]).min(1)
        return torch.where(distance[:, None] < self.near, kept[nearest], answers)


def _remembering(base: Base, store: Store) -> Pair:
    return Pair(defended=Remembering(base.net, store), counterpart=base.net, judge=base.net)


@defence("store-of-copies", "state")
def store_of_copies(base: Base) -> Pair:
    """Near duplicates get the answer that a store has, which deep copies share."""
    return _remembering(base, Store())


@defence("store-of-a-class", "state")
def store_of_a_class(base: Base) -> Pair:
    """Near duplicates get the answer that a store has, which all objects of its class share."""
    Singleton.shared = None
    return _remembering(base, Singleton())


@defence("store-on-disk", "state")
def store_on_disk(base: Base) -> Pair:
    """Near duplicates get the answer that a file has."""
    folder = Path(tempfile.mkdtemp())
    pair = _remembering(base, OnDisk(folder / "store.npz"))
    weakref.finalize(pair.defended, shutil.rmtree, folder, ignore_errors=True)
    return pair


class Cached(nn.Module):
    """A network behind a cache whose keys are inputs rounded to a coarse grid."""

    def __init__(self, net: nn.Module, cache: dict[bytes, Tensor], step: float) -> None:
        super().__init__()
        self.net, self.cache, self.step = net, [cache], step

    def __deepcopy__(self, memo: object) -> "Cached":
        return Cached(self.net, self.cache[0], self.step)

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        answers = self.net(x)
        means = torch.nn.functional.avg_pool2d(x.detach(), x.shape[-1] // 2)
        keys = (means / self.step).round().to(torch.int16).flatten(1).numpy()
        rows = [
            self.cache[0].setdefault(key.tobytes(), answer.detach())
            for key, answer in zip(keys, answers, strict=True)
        ]
        kept = torch.stack(rows)
        return torch.where((kept == answers).all(1, keepdim=True), answers, kept)


@defence("coarse-cache", "state")
def coarse_cache(base: Base) -> Pair:
    """Inputs whose quarters have the same rounded brightness get one answer, that of the first."""
    return Pair(defended=Cached(base.net, {}, 0.1), counterpart=base.net, judge=base.net)


class Calls(nn.Module):
    """A network that counts its calls in a buffer or beside it, and answers by the number.

    Args:
        net: the network.
        answer: (network, inputs, number of the call) to answers.
        buffer: count in a buffer, which is a part of the state of the module.
    """

    def __init__(
        self, net: nn.Module, answer: Callable[[nn.Module, Tensor, int], Tensor], *, buffer: bool
    ) -> None:
        super().__init__()
        self.net, self.answer = net, answer
        count = torch.zeros((), dtype=torch.int64)
        if buffer:
            self.register_buffer("count", count)
        else:
            self.count = [count]

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        count = self.count[0] if isinstance(self.count, list) else self.count
        count += 1
        return self.answer(self.net, x, int(count))


def moved(x: Tensor) -> Tensor:
    """The image moved by a pixel."""
    return x.roll(1, -1)


def _tiring(base: Base, last: int) -> Pair:
    defended = Calls(
        base.net, lambda net, x, call: net(moved(x) if call > last else x), buffer=False
    )
    rested = Around(base.net, moved)
    return Pair(defended=defended, counterpart=rested, judge=rested)


@defence("tiring-early", "state")
def tiring_early(base: Base) -> Pair:
    """After 15 calls the network sees its input moved by a pixel."""
    return _tiring(base, EARLY)


@defence("tiring-late", "state")
def tiring_late(base: Base) -> Pair:
    """The same after 40 calls."""
    return _tiring(base, LATE)


@defence("counting", "none")
def counting(base: Base) -> Pair:
    """Calls are counted in a buffer, and the answers stay as they are."""
    defended = Calls(base.net, lambda net, x, call: net(x), buffer=True)
    return Pair(defended=defended, counterpart=base.net)


class OtherWithGradients(nn.Module):
    """A network that sees another input when its gradient is asked for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return self.net(moved(x) if x.requires_grad else x)


@defence("other-with-gradients", "wrong gradient")
def other_with_gradients(base: Base) -> Pair:
    """The network sees its input moved by a pixel where gradients are asked for."""
    return Pair(defended=OtherWithGradients(base.net), counterpart=base.net)


@defence("shifted-labels", "answers")
def shifted_labels(base: Base) -> Pair:
    """The classes are answered in an order that is shifted by one."""
    shifted = Around(base.net, after=lambda z: z.roll(1, 1))
    return Pair(defended=shifted, counterpart=shifted)
