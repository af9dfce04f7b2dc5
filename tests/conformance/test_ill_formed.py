"""Attacks whose class breaks a rule of form: settings, declarations, what a record of them could
not hold.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from _helpers import unrefused
from _honest import Honest
from brinell.core.model import Access
from brinell.testing import check_attack


@dataclass(frozen=True, kw_only=True)
class HoldsATuple(Honest):
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class HoldsAnObject(Honest):
    loss: Any = field(default_factory=object)


@dataclass(frozen=True, kw_only=True)
class SaysEpsilon(Honest):
    epsilon: float = 0.1


@dataclass(frozen=True, kw_only=True)
class SaysNumSteps(Honest):
    num_steps: int = 1


@dataclass(frozen=True, kw_only=True)
class SaysSeed(Honest):
    seed: int = 1


@dataclass(kw_only=True)
class NotFrozen:
    access: ClassVar[Access] = Access.GRADIENTS


class NoDataclass:
    pass


@dataclass(frozen=True)
class Positional(Honest):
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
class WithoutDefault(Honest):
    steps: int


@dataclass(frozen=True, kw_only=True)
class FamilyUnknown(Honest):
    family: ClassVar[str] = "greedy"


@dataclass(frozen=True, kw_only=True)
class DomainUnknown(Honest):
    domains: ClassVar[frozenset[str]] = frozenset({"hologram"})


@dataclass(frozen=True, kw_only=True)
class NoDomain(Honest):
    domains: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class DistanceUnknown(Honest):
    distances: ClassVar[frozenset[str]] = frozenset({"l7"})


ILL_FORMED = {
    HoldsATuple: "come back from JSON as others",
    HoldsAnObject: "do not survive JSON",
    SaysEpsilon: "setting epsilon has another name here: the threat",
    SaysNumSteps: "setting num_steps has another name here: steps",
    SaysSeed: "setting seed has another name here: the streams",
    NotFrozen: "is no frozen dataclass",
    NoDataclass: "is no frozen dataclass",
    Positional: "setting steps must be keyword-only",
    WithoutDefault: "setting steps must be keyword-only and have a default",
    FamilyUnknown: "family is 'greedy'",
    DomainUnknown: "domains must be some of",
    NoDomain: "domains must be some of",
    DistanceUnknown: "no distance of that name in l7",
}


def test_ill_formed():
    assert not unrefused(check_attack, ILL_FORMED.items())


def test_every_declaration_is_needed():
    declarations = {
        "access": Access.GRADIENTS,
        "distances": frozenset({"linf"}),
        "domains": frozenset({"vector"}),
        "family": "budgeted",
        "targeted": True,
        "cost": lambda self, classes: (2, 1),
    }
    lacking = {name: declarations.keys() - {name} for name in declarations}
    plugins = {
        name: dataclass(frozen=True, kw_only=True)(
            type("Undeclared", (), {each: declarations[each] for each in rest})
        )
        for name, rest in lacking.items()
    }
    assert not unrefused(
        check_attack, [(plugin, f"does not declare {name}") for name, plugin in plugins.items()]
    )
