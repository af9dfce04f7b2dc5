"""For each rule of the distortion checker a planted violator that it must catch, and honest
distortions that it must pass."""

import dataclasses
import itertools
import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from _helpers import unrefused
from brinell.core.model import Access
from brinell.core.norms import per_sample
from brinell.distortions._published import Published
from brinell.testing import check_distortion


@dataclass(frozen=True, kw_only=True)
class Honest:
    """Uniform noise: what every violator below is but for one thing."""

    domains: ClassVar[frozenset[str]] = frozenset({"image", "vector"})
    access: ClassVar[Access] = Access.LABELS

    def draws(self, shape):
        return None

    def __call__(self, x, severity, rng, draw):
        return (x + 0.05 * per_sample(severity, x) * (rng.uniform(*x.shape[1:]) - 0.5)).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Chooses(Honest):
    """Nothing random: lighter, darker, or nearer to grey."""

    def draws(self, shape):
        return 3

    def __call__(self, x, severity, rng, draw):
        aim = torch.tensor([1.0, 0.0, 0.5])[draw]
        return x + 0.1 * per_sample(severity, x) * (per_sample(aim, x) - x)


def test_the_honest_ones_pass():
    for honest in (Honest, Chooses):
        check_distortion(honest)


class Crops(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity, rng, draw)[..., :-1]


class Doubles(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity, rng, draw).double()


class ToNumpy(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity, rng, draw).numpy()


class Leaves(Honest):
    def __call__(self, x, severity, rng, draw):
        return x + 0.05 * per_sample(severity, x) * (rng.uniform(*x.shape[1:]) - 0.5)


class DividesByRange(Honest):
    """0 / 0 on flat inputs, which the checker must therefore try."""

    def __call__(self, x, severity, rng, draw):
        flat = super().__call__(x, severity, rng, draw).flatten(1)
        least, most = x.flatten(1).amin(1, keepdim=True), x.flatten(1).amax(1, keepdim=True)
        return (
            ((flat - least) / (most - least) * (most - least) + least).reshape(x.shape).clamp(0, 1)
        )


class Fails(Honest):
    def __call__(self, x, severity, rng, draw):
        raise IndexError("no such\nseverity")


class WritesIntoInput(Honest):
    def __call__(self, x, severity, rng, draw):
        return x.add_(0.05 * per_sample(severity, x) * (rng.uniform(*x.shape[1:]) - 0.5)).clamp_(
            0, 1
        )


class WritesIntoSeverity(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity.mul_(2).clamp_(1, 5), rng, draw)


class DrawsFromTorch(Honest):
    def __call__(self, x, severity, rng, draw):
        torch.rand(1)
        return super().__call__(x, severity, rng, draw)


class DrawsFromNumpy(Honest):
    def __call__(self, x, severity, rng, draw):
        np.random.rand()  # noqa: NPY002
        return super().__call__(x, severity, rng, draw)


class DrawsFromPython(Honest):
    def __call__(self, x, severity, rng, draw):
        random.random()
        return super().__call__(x, severity, rng, draw)


class Remembers(Honest):
    """Another generator each time, of its own, so that no global one moves."""

    calls = itertools.count()

    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity, rng.fold(next(self.calls)), draw)


class LooksAround(Honest):
    """Subtracts the mean of the batch."""

    def __call__(self, x, severity, rng, draw):
        return super().__call__(x + 0.01 * (x.mean() - x), severity, rng, draw)


class FirstSeverityForAll(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity[:1].expand_as(severity), rng, draw)


class SameNoiseEveryTime(Honest):
    """Deterministic, but its draws are one."""

    def __call__(self, x, severity, rng, draw):
        field = torch.linspace(-0.5, 0.5, x[0].numel()).reshape(x.shape[1:])
        return (x + 0.05 * per_sample(severity, x) * field).clamp(0, 1)


class OffersTooMuch(Chooses):
    def draws(self, shape):
        return 6

    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, severity, rng, draw % 3)


class OffersNothing(Honest):
    def draws(self, shape):
        return 0


class OffersHalf(Honest):
    def draws(self, shape):
        return 2.5


class DoesNothing(Honest):
    def draws(self, shape):
        return 1

    def __call__(self, x, severity, rng, draw):
        return x


class StartsLate(Honest):
    def __call__(self, x, severity, rng, draw):
        return torch.where(per_sample(severity, x) > 1, super().__call__(x, severity, rng, draw), x)


class AlwaysTheSame(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, torch.full_like(severity, 3), rng, draw)


class Backwards(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, 6 - severity, rng, draw)


class Dips(Honest):
    def __call__(self, x, severity, rng, draw):
        return super().__call__(x, torch.tensor([0, 1, 2, 4, 3, 5])[severity], rng, draw)


class OtherKind(Honest):
    domains = frozenset({"image", "audio"})


class NoKind(Honest):
    domains = frozenset()


@dataclass(frozen=True, kw_only=True)
class OtherWord(Honest):
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class LosesItsSettings(Honest):
    pattern: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class NotJson(Honest):
    pattern: Any = field(default_factory=lambda: {1, 2})


@dataclass(frozen=True)
class Positional(Honest):
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class PublishedButIdle(Published):
    versions = 1
    small = large = (1.0, 0.5, 0.0, 0.5, 1.0)
    rising = False

    def distort(self, x, share, rng):
        return x * (1 - share / 2)


@dataclass(frozen=True, kw_only=True)
class PublishedBackwards(PublishedButIdle):
    small = large = (1.0, 0.8, 0.6, 0.5, 0.4)
    rising = True


class Undeclared:
    pass


NO_DOMAINS = dataclasses.make_dataclass("NoDomains", [], frozen=True, kw_only=True)


RULES = [
    (Crops, "distortion Crops made .* of .*; it must keep shape and type"),
    (Doubles, "it must keep shape and type"),
    (ToNumpy, "made ndarray of"),
    (Leaves, "distortion Leaves left the bounds by 0.0"),
    (DividesByRange, "answered NaN or infinity"),
    (Fails, "failed with IndexError: no such severity"),
    (WritesIntoInput, "wrote into the inputs it was given"),
    (WritesIntoSeverity, "wrote into what it was given"),
    (DrawsFromTorch, "drew from a global random generator"),
    (DrawsFromNumpy, "drew from a global random generator"),
    (DrawsFromPython, "drew from a global random generator"),
    (Remembers, "gave two answers to the same inputs and streams"),
    (LooksAround, "gave other answers when the batch was split or reordered"),
    (FirstSeverityForAll, "gave other answers when the batch was split or reordered"),
    (SameNoiseEveryTime, "gave the same answer in two draws"),
    (OffersTooMuch, "gave the same answer in two draws"),
    (OffersNothing, "offers 0 draws"),
    (OffersHalf, "offers 2.5 draws"),
    (DoesNothing, "changed nothing at severity 1"),
    (StartsLate, "changed nothing at severity 1"),
    (AlwaysTheSame, "is not stronger at higher severities: mean L2"),
    (Backwards, "is not stronger at higher severities"),
    (Dips, "is not stronger at higher severities"),
    (PublishedButIdle, "changed nothing at some severity"),
    (PublishedBackwards, "is not stronger at higher severities"),
    (OtherKind, "domains must be some of image, signal, video, vector"),
    (NoKind, "domains must be some of"),
    (OtherWord, "setting seed has another name here: the streams"),
    (LosesItsSettings, "come back from JSON as others"),
    (NotJson, "do not survive JSON"),
    (Positional, "setting size must be keyword-only"),
    (Undeclared, "is no frozen dataclass"),
    (NO_DOMAINS, "NoDomains does not declare domains"),
]


def test_violators():
    assert not unrefused(check_distortion, RULES)


def test_every_violator_is_listed():
    defined = {
        value
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, Honest)
    }
    assert defined - {Honest, Chooses} <= {violator for violator, _ in RULES}
