"""A way around a gradient that is missing or wrong: the same answers, and another gradient.

Backward pass differentiable approximation (Athalye, Carlini & Wagner 2018, Obfuscated gradients give a false sense of security,
section 4.1): what cannot be differentiated keeps its forward pass and gets the backward pass of something similar. Here the tool
finds the place and the stand-in itself, in the modules of a torch model:

- at the input of a child module that takes inputs of the model's own shape, the first one or the last, the identity stands in for
  everything before it;
- at a child module whose own gradient is not the gradient of what it computes, the identity stands in for it where it keeps the
  shape, else a small network that was fitted to what it does;
- wherever it rounds or detaches, in a module or between two, the identity stands in for that (`engine.straight_through`).

Which of them is used is decided by the finite differences of `engine.gradient_check`, not by their names.

With a surrogate the gradient is that of another model (Papernot et al. 2017, Practical black-box attacks against machine
learning), and the answers are the model's own.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from brinell.core.errors import ModelError, one_line
from brinell.core.model import Access, Model, ModelInfo
from brinell.engine.gradient_check import Agreement, agreement
from brinell.engine.room import Room
from brinell.engine.straight_through import StraightThrough

Made = TypeVar("Made")

FEW = 8
"""Inputs on which modules are checked one by one."""
SMALL, LARGE = 0.01, 0.25
"""Steps at a module's input, in standard deviations of its values."""
FIT_STEPS, FIT_WIDTH, FIT_RATE = 300, 64, 0.01
"""Of the small network that stands in for a module that changes the shape."""
STRAIGHT = (
    ("the identity at every rounding", False, False),
    ("the identity at every rounding and detachment", True, False),
    ("the identity at every rounding and detachment, and smooth decisions", True, True),
)
"""Ways straight through a model, each in a phrase, with the arguments of `StraightThrough`: attach and decide."""
SUSPECT = 0.3
"""Disagreement above which a module's own gradient is wrong."""
Dropped = Callable[[str], None]
"""Told of each way that was given up since the model, or one of its modules, fails with it, and why."""


@dataclass(frozen=True)
class Culprit:
    """A module whose gradient is not that of what it computes."""

    name: str
    """As the module names it, such as `layer1.0.act`."""
    kind: str
    """Name of its class."""
    fault: str
    """returns none, returns zeros, or returns a wrong one."""

    def __str__(self) -> str:
        return f"module {self.name} ({self.kind}) {self.fault}"


class WithGradient:
    """The answers of a model with another gradient: that of `differentiable`, from inputs (n, *shape) to the same answers."""

    access = Access.GRADIENTS

    def __init__(self, model: Model, differentiable: Callable[[Tensor], Tensor]) -> None:
        self._model, self._differentiable = model, differentiable
        self.name, self.domain, self.classes = model.name, model.domain, model.classes

    @property
    def info(self) -> ModelInfo:
        """That of the model itself, without gradients in bf16."""
        return replace(self._model.info, bf16=False)

    def digest(self) -> str:
        """That of the model itself: its answers are the same."""
        return self._model.digest()

    def predict(self, x: Tensor) -> Tensor:
        """The model's answers."""
        return self._differentiable(x) if x.requires_grad else self._model.predict(x)


def repaired(model: Model, root: nn.Module, stand_ins: "tuple[_StandIn, ...]") -> WithGradient:
    """A model with the gradient that stand-ins give it: each makes the input or output of a module of `root` differentiable."""

    def differentiable(x: Tensor) -> Tensor:
        with ExitStack() as hooks:
            for one in stand_ins:
                hooks.enter_context(one.hooked(root))
            return model.predict(x)

    return WithGradient(model, differentiable)


def straightened(model: Model, *, attach: bool, decide: bool = False) -> WithGradient:
    """A model whose gradient passes straight through what it rounds; arguments as of `StraightThrough`."""

    def differentiable(x: Tensor) -> Tensor:
        with StraightThrough(attach=attach, decide=decide):
            return model.predict(x)

    return WithGradient(model, differentiable)


def attempted(work: Callable[[], Made], way: str, dropped: Dropped) -> Made | None:
    """What `work` returns, which asks the model, or a module of it, in a way that it may not fit; None, with the reason told.

    That memory is short says nothing of the way: it is raised again, for `engine.room`, which halves the batches.
    """
    try:
        return work()
    except torch.OutOfMemoryError:
        raise
    except (ModelError, RuntimeError) as error:
        dropped(f"{way} ({one_line(error, 120)})")
        return None


def _caught(model: Model, x: Tensor, told: str, attach: bool, decide: bool, dropped: Dropped) -> int:
    """How many calls that would change; 0 where the model fails with them."""
    way, leaf = StraightThrough(attach=attach, decide=decide), x.detach().requires_grad_()

    def ask() -> int:
        with torch.enable_grad(), way:
            model.predict(leaf)
        return way.caught

    return attempted(ask, told, dropped) or 0


def along(model: Model, surrogate: Model) -> WithGradient:
    """A model with the gradient of another, over the same domain and with as many classes, which is asked as well."""

    def differentiable(x: Tensor) -> Tensor:
        with torch.no_grad():
            answers = model.predict(x.detach())
        other = surrogate.predict(x)
        return answers + (other - other.detach())

    return WithGradient(model, differentiable)


def culprits(model: Model, x: Tensor, dropped: Dropped = lambda way: None) -> list[Culprit]:
    """The innermost modules whose own gradient is not that of what they compute, in the order in which they are called.

    Args:
        model: the model; without a torch module there is nothing to look into.
        x: (n, *shape) inputs; the first eight are used, or fewer where memory is short.
        dropped: told of modules that fail when they are called alone: the modules within them are looked at instead.

    Raises:
        MemoryShortError: there is no memory for one input alone.
    """
    root = model.info.module
    if root is None:
        return []
    room = Room(FEW, lambda remark: None)

    def look() -> list[Culprit]:
        with torch.no_grad(), _watched(root) as seen:
            model.predict(x[: room.size])
        return list(_wrong_within(root, "", seen, dropped))

    return room.fit(look)


def candidates(
    model: Model, x: Tensor, faults: list[Culprit], dropped: Dropped = lambda way: None
) -> Iterator[tuple[str, Model]]:
    """Ways around a gradient, each in a phrase, with the model that goes it; `dropped` is told of those that do not fit.

    Stand-ins for `faults`, modules whose gradient is wrong, are fitted to inputs x (n, *shape). Without a torch module only
    roundings and detachments can be gone around.
    """
    caught = 0
    for told, attach, decide in STRAIGHT:
        if (count := _caught(model, x[:2], told, attach, decide, dropped)) > caught:
            caught = count
            yield told, straightened(model, attach=attach, decide=decide)
    root = model.info.module
    if root is None:
        return
    with torch.no_grad(), _watched(root) as seen:
        model.predict(x)
    given = seen.get("")
    if given is None:
        return
    modules = dict(root.named_modules())
    alike = [name for name, (inputs, _) in seen.items() if name and inputs.shape == given[0].shape]
    for name in dict.fromkeys((*alike[:1], *alike[-1:])):
        yield f"the identity for all that lies before module {name}", repaired(model, root, (_Before(name),))
    if faults and all(fault.name in seen for fault in faults):
        parts = [_fitted(fault.name, modules[fault.name], *seen[fault.name]) for fault in faults]
        told = ", ".join(f"{one.told} for module {one.name}" for one in parts)
        yield told, repaired(model, root, tuple(parts))


# What the modules of a model were given, and which of them are to blame

Seen = dict[str, tuple[Tensor, Tensor]]


@contextmanager
def _watched(root: nn.Module) -> Iterator[Seen]:
    """Notes the first input and output of each module that takes one tensor and gives one, in the order of the calls."""
    seen: Seen = {}
    order: list[str] = []

    def before(name: str) -> Callable[..., None]:
        return lambda module, args: order.append(name) if name not in order else None

    def after(name: str) -> Callable[..., None]:
        def note(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            tensors = [one for one in args if isinstance(one, Tensor)]
            plain = len(args) == 1 == len(tensors) and isinstance(out, Tensor)
            if plain and name not in seen and tensors[0].is_floating_point() and len(out) == len(tensors[0]):
                seen[name] = (tensors[0].detach(), out.detach())

        return note

    hooks = []
    for name, module in root.named_modules():
        hooks.append(module.register_forward_pre_hook(before(name)))
        hooks.append(module.register_forward_hook(after(name)))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
        kept = {name: seen[name] for name in order if name in seen}
        seen.clear()
        seen.update(kept)


def _wrong_within(root: nn.Module, path: str, seen: Seen, dropped: Dropped) -> Iterator[Culprit]:
    """Culprits below a module: a wrong one whose own children are all right is to blame itself."""
    for name, child in root.named_children():
        inner = f"{path}.{name}" if path else name
        if inner not in seen:
            yield from _wrong_within(child, inner, seen, dropped)
            continue
        fault = attempted(partial(_fault, child, seen[inner][0]), f"module {inner} called alone", dropped)
        if fault is None:
            continue
        deeper = list(_wrong_within(child, inner, seen, dropped))
        yield from deeper or [Culprit(inner, type(child).__name__, fault)]


def _fault(module: nn.Module, given: Tensor) -> str | None:
    """What is wrong with a module's gradient at its inputs, None where it foretells short or long steps."""
    generator = torch.Generator().manual_seed(0)
    spread = float(given.std().clamp_min(1e-6))
    draw = torch.randn(given.shape, generator=generator).to(given)
    x = given + SMALL * spread * draw
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        out = module(leaf)
        signs = torch.rand(out.shape, generator=generator).sub_(0.5).sign_().to(out)
        grad = torch.autograd.grad((signs * out).sum(), leaf, allow_unused=True)[0] if out.requires_grad else None
    found = [_differences(module, x, signs, grad, step * spread, generator) for step in (SMALL, LARGE)]
    moved = [one for one in found if one.samples]
    if not moved or min(one.disagreement for one in moved) <= SUSPECT:
        return None
    return "returns none" if grad is None else "returns zeros" if not bool(grad.any()) else "returns a wrong one"


def _differences(
    module: nn.Module, x: Tensor, signs: Tensor, grad: Tensor | None, step: float, generator: torch.Generator
) -> Agreement:
    way = torch.rand(x.shape, generator=generator).sub_(0.5).sign_().to(x) * step
    with torch.no_grad():
        up, down = ((signs * module(side)).flatten(1).double() for side in (x + way, x - way))
    foretold = torch.zeros(len(x)).to(x) if grad is None else 2 * (grad * way).flatten(1).sum(1)
    floor = 1e-6 * (up.abs().sum(1) + down.abs().sum(1)).float()
    return agreement((up - down).sum(1).float(), foretold.float(), floor)


# What stands in


class _StandIn(Protocol):
    """How one module is made differentiable."""

    def hooked(self, root: nn.Module) -> AbstractContextManager[None]:
        """The hooks, until the context ends."""


@dataclass(frozen=True)
class _Before:
    """The identity, but for a scale of each channel, from the model's input to that of a module within it."""

    name: str

    @contextmanager
    def hooked(self, root: nn.Module) -> Iterator[None]:
        given: list[Tensor] = []

        def note(module: nn.Module, args: tuple[Any, ...]) -> None:
            given[:] = [args[0]]

        def replace_input(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if not isinstance(args[0], Tensor) or args[0].shape != given[0].shape:
                return None
            return _straight(given[0], args[0]), *args[1:]

        hooks = [
            root.register_forward_pre_hook(note, prepend=True),
            root.get_submodule(self.name).register_forward_pre_hook(replace_input),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class StandIn(nn.Module):
    """Two layers that are fitted to what a module does, for so many values of a column of inputs and of outputs."""

    def __init__(self, values_in: int, values_out: int, generator: torch.Generator) -> None:
        super().__init__()
        self.values_in = values_in
        sizes = [(FIT_WIDTH, values_in), (FIT_WIDTH,), (values_out, FIT_WIDTH), (values_out,)]
        parts = [torch.randn(size, generator=generator) / size[-1] ** 0.5 for size in sizes]
        self.first, self.first_bias, self.last, self.last_bias = (nn.Parameter(part) for part in parts)

    def forward(self, columns: Tensor) -> Tensor:
        """(..., values_in) to (..., values_out)."""
        hidden = nn.functional.linear(columns, self.first, self.first_bias).tanh()
        return nn.functional.linear(hidden, self.last, self.last_bias)


@dataclass(frozen=True)
class _Through:
    """A network in the place of a module, or the identity where that is None."""

    name: str
    network: StandIn | None
    told: str

    @contextmanager
    def hooked(self, root: nn.Module) -> Iterator[None]:
        def replace_output(module: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor:
            x: Tensor = args[0]
            if self.network is None:
                return _straight(x, out)
            stand_in = _through(self.network, x).reshape(out.shape)
            answer: Tensor = out.detach() + (stand_in - stand_in.detach())
            return answer

        hook = root.get_submodule(self.name).register_forward_hook(replace_output)
        try:
            yield
        finally:
            hook.remove()


def _straight(x: Tensor, out: Tensor) -> Tensor:
    """`out` with the gradient of `x`, scaled in each channel as the values of `out` rise with those of `x`."""
    with torch.no_grad():
        axes = [axis for axis in range(x.ndim) if axis != 1] if x.ndim > 2 else list(range(x.ndim))
        a, b = (values - values.mean(axes, keepdim=True) for values in (x.detach(), out.detach()))
        slope = (a * b).sum(axes, keepdim=True) / a.square().sum(axes, keepdim=True).clamp_min(1e-12)
        slope = torch.where(slope.abs() > 0.05, slope, 1.0)
    return out.detach() + slope * (x - x.detach())


def _fitted(name: str, module: nn.Module, x: Tensor, out: Tensor) -> _Through:
    """The identity where shapes agree, else a small network, per place where the grid is kept and over all values otherwise."""
    if x.shape == out.shape:
        return _Through(name, None, "the identity")
    places = x.ndim == out.ndim > 2 and x.shape[2:] == out.shape[2:]
    columns_in, columns_out = (_columns(values, places) for values in (x, out))
    generator = torch.Generator().manual_seed(0)
    network = StandIn(columns_in.shape[1], columns_out.shape[1], generator).to(x)
    optimiser = torch.optim.Adam(network.parameters(), FIT_RATE)
    with torch.enable_grad():
        for _ in range(FIT_STEPS):
            rows = torch.randint(len(columns_in), (min(1024, len(columns_in)),), generator=generator).to(x.device)
            loss = (network(columns_in[rows]) - columns_out[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return _Through(name, network.requires_grad_(False), "a fitted network")


def _columns(values: Tensor, places: bool) -> Tensor:
    return values.movedim(1, -1).reshape(-1, values.shape[1]) if places else values.flatten(1)


def _through(network: StandIn, x: Tensor) -> Tensor:
    """What the stand-in answers, channels first as the module has them."""
    if x.ndim > 2 and network.values_in == x.shape[1]:
        return network.forward(x.movedim(1, -1)).movedim(-1, 1)
    return network.forward(x.flatten(1))
