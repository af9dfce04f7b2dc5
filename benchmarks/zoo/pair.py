"""A defence beside its counterpart: the same answers, and a gradient that an adaptive attacker
would take.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from benchmarks.zoo.base import DEFAULT, Base, load

Change = Callable[[Tensor], Tensor]
Flaw = Literal[
    "none",
    "no gradient",
    "partial gradient",
    "wrong gradient",
    "answers",
    "random",
    "company",
    "state",
]
"""What is wrong: nothing; the gradient; answers that say too little or saturate; answers that
are drawn; answers that depend on the other inputs of the batch, or on earlier calls."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A defended model, and what an attack that knows it uses."""

    defended: nn.Module
    """The model that is audited and that judges every adversarial example: (n, *shape) in [0, 1]
    to (n, classes)."""
    counterpart: nn.Module
    """The same classes (for a random defence: of another draw) with an intact gradient: (n,
    *shape) to (n, classes) logits."""
    surrogates: tuple[nn.Module, ...] = ()
    """Further models whose adversarial examples are tried on the defended one."""
    draws: int = 1
    """Gradients averaged in each step of the adaptive attack (EOT)."""
    spread: float = 0.0
    """Half width of the uniform noise that is added to the input of each of them."""
    reject: int | None = None
    """Class that stands for a rejected input, on which an attack has not succeeded."""
    judge: nn.Module | None = None
    """Model that judges in place of a defended one that remembers its inputs."""


@dataclass(frozen=True, kw_only=True)
class Defence:
    """One entry of the zoo."""

    name: str
    summary: str
    """One line: the defence, its source, and what its counterpart does."""
    flaw: Flaw
    make: Callable[[Base], Pair]
    """Puts the defence around a base; a defence that is a training trains its own network on the
    base's data."""
    base: str = DEFAULT
    """The network that it is put around where none is named."""
    eps: str | None = None
    """Budget where it differs from the base's own."""
    audit: dict[str, Any] = field(default_factory=dict)
    """Settings of `brinell.audit` that the model asks for, used where the installed version
    knows them."""

    def build(self, base: Base | str | None = None) -> Pair:
        """The pair around a base (a name loads its first 100 samples), in evaluation mode, weights
        frozen.
        """
        base = base if isinstance(base, Base) else load(base or self.base)
        pair = self.make(base)
        for module in (pair.defended, pair.counterpart, *pair.surrogates):
            module.eval().requires_grad_(False)
        return pair


ZOO: dict[str, Defence] = {}
"""Every defence by its name, filled by the files beside this one."""


def defence(
    name: str, flaw: Flaw, **settings: Any
) -> Callable[[Callable[[Base], Pair]], Callable[[Base], Pair]]:
    """Registers a factory; the first paragraph of its docstring is what the entry says."""

    def enter(make: Callable[[Base], Pair]) -> Callable[[Base], Pair]:
        summary = " ".join((make.__doc__ or "").partition("\n\n")[0].split())
        ZOO[name] = Defence(name=name, summary=summary, flaw=flaw, make=make, **settings)
        return make

    return enter


class Around(nn.Module):
    """A network with something done to its inputs and its answers."""

    def __init__(
        self, net: nn.Module, before: Change = lambda x: x, after: Change = lambda z: z
    ) -> None:
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to the answers."""
        return self.after(self.net(self.before(x)))


class _Value(torch.autograd.Function):
    """The value of one tensor, the gradient of another."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, path: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def value_of(value: Tensor, path: Tensor) -> Tensor:
    """`value` exactly, with the gradient of `path`, of the same shape (BPDA: Athalye, Carlini &
    Wagner 2018, section 4.1).
    """
    return _Value.apply(value.detach(), path)


class Bpda(nn.Module):
    """Answers as `defended` does, with the gradient of `smooth`; without one, the network alone is
    differentiated.
    """

    def __init__(self, defended: nn.Module, smooth: nn.Module) -> None:
        super().__init__()
        self.defended, self.smooth = defended, smooth

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        with torch.no_grad():
            answer = self.defended(x)
        return value_of(answer, self.smooth(x))


def straight_through(change: Change, path: Change = lambda x: x) -> Change:
    """The change with the gradient of `path`, by default of the identity."""

    def changed(x: Tensor) -> Tensor:
        with torch.no_grad():
            value = change(x)
        return value_of(value, path(x))

    return changed


class _Backward(torch.autograd.Function):
    """The identity, whose gradient is changed on its way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Change) -> Tensor:
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.change(grad), None


def backward(change: Change) -> Change:
    """The identity with a changed gradient."""
    return lambda x: _Backward.apply(x, change)


def around(base: Base, before: Change, path: Change = lambda x: x) -> Pair:
    """The base behind a change of its inputs; the counterpart takes the gradient of `path` for that
    of the change.
    """
    return Pair(
        defended=Around(base.net, before),
        counterpart=Around(base.net, straight_through(before, path)),
    )


def noise_like(x: Tensor, rng: torch.Generator) -> Tensor:
    """Standard normal values of the shape of `x`."""
    return torch.randn(x.shape, generator=rng)


def generator(seed: int = 0) -> torch.Generator:
    """A generator of a module's own."""
    return torch.Generator().manual_seed(seed)
