"""Random numbers as a pure function of (run seed, sample, plugin, restart, draw).

A `Streams` holds one 64-bit key per sample. Drawing twice from the same streams gives the same
numbers; `fold` derives new ones. So order, batch size, device and number of workers cannot change
what a sample is given, and no generator is shared. The generator is SplitMix64 used by counter
(Steele, Lea & Flood 2014, Fast splittable pseudorandom number generators).
"""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)

CACHED = 2**16
"""Numbers that are drawn together on a CPU: seven times faster than where each step goes through
main memory."""


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift of int64, which torch shifts arithmetically."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser: every input bit reaches every output bit."""
    z = (z ^ _shift_right(z, 30)) * _MIX_1
    z = (z ^ _shift_right(z, 27)) * _MIX_2
    return z ^ _shift_right(z, 31)


def _mix_in_place(z: Tensor) -> None:
    """The same, with half the memory to go through."""
    z.bitwise_xor_(_shift_right(z, 30)).mul_(_MIX_1)
    z.bitwise_xor_(_shift_right(z, 27)).mul_(_MIX_2)
    z.bitwise_xor_(_shift_right(z, 31))


def token(value: int | str) -> int:
    """A signed 64-bit number for a name or an integer, the same on every machine."""
    digest = hashlib.blake2b(repr(value).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


@dataclass(frozen=True)
class Streams:
    """One stream of random numbers per sample."""

    keys: Tensor
    """(n,) int64."""

    @classmethod
    def of(cls, seed: int, sample_ids: Tensor) -> "Streams":
        """The streams of a run: `sample_ids` (n,) int64 are positions in the data set."""
        return cls(_mix(sample_ids.to(torch.int64) * _GAMMA + token(seed)))

    def __len__(self) -> int:
        """Number of streams."""
        return len(self.keys)

    def fold(self, value: int | str) -> "Streams":
        """Streams independent of these, one set for each name or number."""
        return Streams(_mix(self.keys * 3 + token(value)))

    def select(self, keep: Tensor) -> "Streams":
        """The streams of the chosen rows."""
        return Streams(self.keys[keep])

    def bits(self, *shape: int) -> Tensor:
        """(n, *shape) int64, all 64 bits random."""
        values = torch.empty(
            len(self), math.prod(shape), dtype=torch.int64, device=self.keys.device
        )
        for rows, bits in self._parts(values.shape[1]):
            values[rows] = bits
        return values.reshape(len(self), *shape)

    def _parts(self, count: int) -> Iterator[tuple[slice, Tensor]]:
        """`count` numbers of each stream, for some of the streams at a time.

        On a CPU they are as many as its cache holds.
        """
        counter = torch.arange(1, count + 1, device=self.keys.device, dtype=torch.int64) * _GAMMA
        step = (
            max(1, CACHED // max(1, count)) if self.keys.device.type == "cpu" else max(1, len(self))
        )
        for start in range(0, len(self), step):
            bits = self.keys[start : start + step, None] + counter
            _mix_in_place(bits)
            yield slice(start, start + step), bits

    def uniform(self, *shape: int) -> Tensor:
        """(n, *shape) float32, uniform on the open interval (0, 1), in steps of 2**-23."""
        values = torch.empty(len(self), math.prod(shape), device=self.keys.device)
        # The upper 23 of 64 bits, and half a step: neither 0 nor 1 occurs.
        for rows, bits in self._parts(values.shape[1]):
            values[rows] = _shift_right(bits, 41)
        return values.add_(0.5).mul_(2.0**-23).reshape(len(self), *shape)

    def normal(self, *shape: int) -> Tensor:
        """(n, *shape) float32, standard normal."""
        normal: Tensor = torch.special.ndtri(self.uniform(*shape))
        return normal

    def integers(self, high: int, *shape: int) -> Tensor:
        """(n, *shape) int64, uniform on 0..high-1; the bias is below high / 2**62."""
        return _shift_right(self.bits(*shape), 2) % high


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Context in which the global generators of random numbers start at a seed.

    Their states are restored at the end. A user's factory draws its first weights there, and layers
    such as dropout draw on `device`, the processor or a CUDA device.
    """
    cuda = []
    if device is not None and device.type == "cuda":
        cuda = [torch.cuda.current_device() if device.index is None else device.index]
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def initial(network: nn.Module, rng: torch.Generator) -> None:
    """Give a network on the meta device weights on the CPU: layers as in He et al.
    2015, biases 0.
    """
    for part in network.modules():
        for name, tensor in list(part.named_parameters(recurse=False)):
            # `to_empty` would import sympy, for most of a second.
            values = torch.zeros(tensor.shape)
            if tensor.ndim > 1:
                nn.init.kaiming_uniform_(values, nonlinearity="relu", generator=rng)
            setattr(part, name, nn.Parameter(values))
