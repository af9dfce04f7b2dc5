"""Repairs of a gradient that is missing or wrong: the same answers with another gradient.

Backward pass differentiable approximation (Athalye, Carlini & Wagner 2018, Obfuscated gradients give a false sense of security,
section 4.1): what cannot be differentiated keeps its forward pass and gets the backward pass of something similar. Here the tool
finds the place and the stand-in itself, in the modules of a torch model:

- at the input of a child module that takes inputs of the model's own shape, the first one or the last, the identity stands in for
  everything before it;
- at a child module whose own gradient is not the gradient of what it computes, the identity stands in for it where it keeps the
  shape, else a small network that was fitted to what it does;
- wherever it rounds or detaches, in a module or between two, the identity stands in for that (`engine.straight_through`).

Finite differences (`engine.gradient_check`) decide which of them is used.

With a surrogate the gradient is that of another model (Papernot et al. 2017, Practical black-box attacks against machine
learning), and the answers are the model's own.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from brinell.core.errors import ModelError, one_line
from brinell.core.hooks import Call, hookable, watch_calls
from brinell.core.memory import is_memory_short
from brinell.core.model import Access, Model, ModelInfo
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.gradient_check import Agreement, agreement
from brinell.engine.straight_through import StraightThrough

Result = TypeVar("Result")

CULPRIT_SAMPLES = 8
"""Number of inputs on which single modules are checked."""
SMALL, LARGE = 0.01, 0.25
"""Steps at a module's input, in standard deviations of its values."""
FIT_STEPS, FIT_WIDTH, FIT_RATE = 300, 64, 0.01
"""Settings of the fit of the small network that replaces a module that changes the shape."""
STRAIGHT = (
    ("the identity at every rounding", False, False),
    ("the identity at every rounding and detachment", True, False),
    ("the identity at every rounding and detachment, and smooth decisions", True, True),
)
"""Straight-through repairs: description, and the arguments attach and decide of `StraightThrough`."""
MAX_DISAGREEMENT = 0.3
"""Disagreement above which a module's own gradient is wrong."""
DropHandler = Callable[[str], None]
"""Called with each repair that is dropped because the model or a module fails with it, and the reason."""


@dataclass(frozen=True)
class Culprit:
    """A module whose gradient is not that of what it computes."""

    name: str
    """Path within the root module, such as `layer1.0.act`."""
    kind: str
    """Name of its class."""
    fault: str
    """Fault: "returns none", "returns zeros" or "returns a wrong one"."""

    def __str__(self) -> str:
        return f"module {self.name} ({self.kind}) {self.fault}"


class SubstituteGradient:
    """The answers of a model with another gradient: that of `differentiable`, from inputs (n, *shape) to the same answers."""

    access = Access.GRADIENTS

    def __init__(self, model: Model, differentiable: Callable[[Tensor], Tensor]) -> None:
        self._model, self._differentiable = model, differentiable
        self.name, self.domain, self.classes = model.name, model.domain, model.classes

    @property
    def info(self) -> ModelInfo:
        """Info of the model itself, without gradients in bf16."""
        return replace(self._model.info, bf16=False)

    def digest(self) -> str:
        """Digest of the model itself, whose answers are the same."""
        return self._model.digest()

    def predict(self, x: Tensor) -> Tensor:
        """The model's answers."""
        return self._differentiable(x) if x.requires_grad else self._model.predict(x)


def with_stand_ins(model: Model, root: nn.Module, stand_ins: "tuple[_Attachable, ...]") -> SubstituteGradient:
    """Replace a model's gradient by stand-ins, each of which makes the input or output of a module of `root` differentiable."""

    def differentiable(x: Tensor) -> Tensor:
        """Logits with the gradients of the stand-ins."""
        with ExitStack() as hooks:
            for stand_in in stand_ins:
                hooks.enter_context(stand_in.attach(root))
            return model.predict(x)

    return SubstituteGradient(model, differentiable)


def with_straight_through(model: Model, *, attach: bool, decide: bool = False) -> SubstituteGradient:
    """Replace a model's gradient by one straight through roundings; arguments as in `StraightThrough`."""

    def differentiable(x: Tensor) -> Tensor:
        """Logits with straight-through gradients."""
        with StraightThrough(attach=attach, decide=decide):
            return model.predict(x)

    return SubstituteGradient(model, differentiable)


def attempt(work: Callable[[], Result], description: str, on_drop: DropHandler) -> Result | None:
    """Return the result of `work`, or None if the model fails in it, which `on_drop` receives with the reason.

    Out-of-memory errors are raised again, because `engine.batch_sizer` handles them by smaller batches.
    """
    try:
        return work()
    except (ModelError, RuntimeError) as error:
        if is_memory_short(error):
            raise
        on_drop(f"{description} ({one_line(error, 120)})")
        return None


def _count_changed_calls(model: Model, x: Tensor, description: str, attach: bool, decide: bool, on_drop: DropHandler) -> int:
    """Number of calls that `StraightThrough` changes in the model; 0 if the model fails with it."""
    mode, leaf = StraightThrough(attach=attach, decide=decide), x.detach().requires_grad_()

    def ask() -> int:
        """Number of calls that straight-through mode changed in one forward and backward pass."""
        with torch.enable_grad(), mode:
            model.predict(leaf)
        return mode.changed_calls

    return attempt(ask, description, on_drop) or 0


def with_surrogate(model: Model, surrogate: Model) -> SubstituteGradient:
    """Replace a model's gradient by that of a surrogate of the same domain and number of classes."""

    def differentiable(x: Tensor) -> Tensor:
        """The model's logits with the gradient of the surrogate."""
        with torch.no_grad():
            answers = model.predict(x.detach())
        surrogate_logits = surrogate.predict(x)
        return answers + (surrogate_logits - surrogate_logits.detach())

    return SubstituteGradient(model, differentiable)


def find_culprits(model: Model, x: Tensor, on_drop: DropHandler = lambda description: None) -> list[Culprit]:
    """Find the innermost modules whose gradient disagrees with their output, in the order of calls.

    Args:
        model: the model; without a torch module the result is empty.
        x: (n, *shape) inputs; the first eight are used, or fewer if memory is short.
        on_drop: called with each module that fails when it is called alone; its child modules are checked instead.

    Raises:
        MemoryShortError: the memory does not suffice for one input alone.
    """
    root = model.info.module
    if root is None:
        return []
    room = BatchSizer(CULPRIT_SAMPLES, lambda remark: None)

    def search() -> list[Culprit]:
        """Modules whose gradient does not match their outputs."""
        with torch.no_grad(), record_activations(root) as activations:
            model.predict(x[: room.size])
        return list(_culprits_below(root, "", activations, on_drop))

    return room.fit(search)


def repair_candidates(
    model: Model, x: Tensor, faults: list[Culprit], on_drop: DropHandler = lambda text: None
) -> Iterator[tuple[str, Model]]:
    """Yield candidate repairs, each a description and a model; `on_drop` receives those that fail.

    Stand-ins for `faults`, modules whose gradient is wrong, are fitted to inputs x (n, *shape). Without a torch module only
    straight-through repairs exist.
    """
    most_changed = 0
    for description, attach, decide in STRAIGHT:
        if (count := _count_changed_calls(model, x[:2], description, attach, decide, on_drop)) > most_changed:
            most_changed = count
            yield description, with_straight_through(model, attach=attach, decide=decide)
    root = model.info.module
    if root is None:
        return
    with torch.no_grad(), record_activations(root) as activations:
        model.predict(x)
    root_activations = activations.get("")
    if root_activations is None:
        return
    modules = dict(root.named_modules())
    alike = [name for name, (inputs, _) in activations.items() if name and inputs.shape == root_activations[0].shape]
    for name in dict.fromkeys((*alike[:1], *alike[-1:])):
        yield f"the identity for all that lies before module {name}", with_stand_ins(model, root, (_InputStandIn(name),))
    if faults and all(fault.name in activations for fault in faults):
        parts = [_fit_stand_in(fault.name, modules[fault.name], *activations[fault.name]) for fault in faults]
        description = ", ".join(f"{part.description} for module {part.name}" for part in parts)
        yield description, with_stand_ins(model, root, tuple(parts))


# Activations of the modules of a model, and faulty modules

Activations = dict[str, tuple[Tensor, Tensor]]


@contextmanager
def record_activations(root: nn.Module) -> Iterator[Activations]:
    """Record the first input and output of each module that maps one tensor to one tensor, in the order of calls."""
    activations: Activations = {}
    order: dict[str, int] = {}

    def note(call: Call) -> None:
        """Record plain floating-point inputs and outputs."""
        args, out = call.args, call.answer
        plain = len(args) == 1 and not call.kwargs and isinstance(args[0], Tensor) and isinstance(out, Tensor)
        if plain and call.name not in activations and args[0].is_floating_point() and len(out) == len(args[0]):
            activations[call.name] = (args[0].detach(), out.detach())
            order[call.name] = call.number

    with watch_calls(hookable(root), note):
        yield activations
    ordered = {name: activations[name] for name in sorted(activations, key=order.__getitem__)}
    activations.clear()
    activations.update(ordered)


def _culprits_below(root: nn.Module, path: str, activations: Activations, on_drop: DropHandler) -> Iterator[Culprit]:
    for name, child in root.named_children():
        inner = f"{path}.{name}" if path else name
        if inner not in activations:
            yield from _culprits_below(child, inner, activations, on_drop)
            continue
        fault = attempt(partial(_fault, child, activations[inner][0]), f"module {inner} called alone", on_drop)
        if fault is None:
            continue
        deeper = list(_culprits_below(child, inner, activations, on_drop))
        yield from deeper or [Culprit(inner, type(child).__name__, fault)]


def _fault(module: nn.Module, inputs: Tensor) -> str | None:
    """Fault of a module's gradient at its inputs; None if it predicts short or long steps."""
    generator = torch.Generator().manual_seed(0)
    spread = float(inputs.std().clamp_min(1e-6))
    draw = torch.randn(inputs.shape, generator=generator).to(inputs)
    x = inputs + SMALL * spread * draw
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        out = module(leaf.clone())  # which it may write into
        signs = torch.rand(out.shape, generator=generator).sub_(0.5).sign_().to(out)
        grad = torch.autograd.grad((signs * out).sum(), leaf, allow_unused=True)[0] if out.requires_grad else None
    agreements = [_differences(module, x, signs, grad, step * spread, generator) for step in (SMALL, LARGE)]
    visible = [result for result in agreements if result.samples]
    if not visible or min(result.disagreement for result in visible) <= MAX_DISAGREEMENT:
        return None
    return "returns none" if grad is None else "returns zeros" if not bool(grad.any()) else "returns a wrong one"


def _differences(
    module: nn.Module, x: Tensor, signs: Tensor, grad: Tensor | None, step: float, generator: torch.Generator
) -> Agreement:
    """Agreement of a module's gradient with finite differences of its output."""
    direction = torch.rand(x.shape, generator=generator).sub_(0.5).sign_().to(x) * step
    with torch.no_grad():
        up, down = ((signs * module(side)).flatten(1).double() for side in (x + direction, x - direction))
    predicted = torch.zeros(len(x)).to(x) if grad is None else 2 * (grad * direction).flatten(1).sum(1)
    floor = 1e-6 * (up.abs().sum(1) + down.abs().sum(1)).float()
    return agreement((up - down).sum(1).float(), predicted.float(), floor)


# Stand-ins


class _Attachable(Protocol):
    """A stand-in that makes one module differentiable."""

    def attach(self, root: nn.Module) -> AbstractContextManager[None]:
        """Register the hooks until the context ends."""


@dataclass(frozen=True)
class _InputStandIn:
    """The identity, but for a scale of each channel, from the model's input to that of a module within it."""

    name: str

    @contextmanager
    def attach(self, root: nn.Module) -> Iterator[None]:
        """Attach the hooks that pass the gradient of a late input straight to an early one."""
        inputs: list[Tensor] = []

        def note(call: Call) -> None:
            """Keep the input of the first module."""
            inputs[:] = [call.args[0]]

        def replace_input(call: Call) -> Tensor | None:
            """Replace the gradient of a later input by that of the first one."""
            if not isinstance(call.args[0], Tensor) or call.args[0].shape != inputs[0].shape:
                return None
            return _straight_through(inputs[0], call.args[0])

        with watch_calls({self.name: root.get_submodule(self.name)}, before=replace_input), watch_calls({"": root}, before=note):
            yield


class StandInNetwork(nn.Module):
    """A two-layer network that imitates a module, with `values_in` inputs and `values_out` outputs."""

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
class _OutputStandIn:
    """The gradient of a network, or of the identity if that is None, in place of a module's."""

    name: str
    network: StandInNetwork | None
    description: str

    @contextmanager
    def attach(self, root: nn.Module) -> Iterator[None]:
        """Attach the hook that replaces the gradient of a module."""

        def replace_output(call: Call) -> Tensor:
            """The module's output with the gradient of its stand-in."""
            x, out = call.args[0], call.answer
            if self.network is None:
                return _straight_through(x, out)
            stand_in = _apply_network(self.network, x).reshape(out.shape)
            answer: Tensor = out.detach() + (stand_in - stand_in.detach())
            return answer

        with watch_calls({self.name: root.get_submodule(self.name)}, replace_output):
            yield


def _straight_through(x: Tensor, out: Tensor) -> Tensor:
    """Give `out` the gradient of `x`, scaled per channel by the regression slope of `out` on `x`."""
    with torch.no_grad():
        axes = [axis for axis in range(x.ndim) if axis != 1] if x.ndim > 2 else list(range(x.ndim))
        a, b = (values - values.mean(axes, keepdim=True) for values in (x.detach(), out.detach()))
        slope = (a * b).sum(axes, keepdim=True) / a.square().sum(axes, keepdim=True).clamp_min(1e-12)
        slope = torch.where(slope.abs() > 0.05, slope, 1.0)
    return out.detach() + slope * (x - x.detach())


def _fit_stand_in(name: str, module: nn.Module, x: Tensor, out: Tensor) -> _OutputStandIn:
    """Fit a stand-in: the identity if shapes agree, else a small network, per position if the grids agree."""
    if x.shape == out.shape:
        return _OutputStandIn(name, None, "the identity")
    places = x.ndim == out.ndim > 2 and x.shape[2:] == out.shape[2:]
    columns_in, columns_out = (_columns(values, places) for values in (x, out))
    generator = torch.Generator().manual_seed(0)
    network = StandInNetwork(columns_in.shape[1], columns_out.shape[1], generator).to(x)
    optimiser = torch.optim.Adam(network.parameters(), FIT_RATE)
    with torch.enable_grad():
        for _ in range(FIT_STEPS):
            rows = torch.randint(len(columns_in), (min(1024, len(columns_in)),), generator=generator).to(x.device)
            loss = (network(columns_in[rows]) - columns_out[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return _OutputStandIn(name, network.requires_grad_(False), "a fitted network")


def _columns(values: Tensor, places: bool) -> Tensor:
    """(rows, channels): values as rows for a linear fit."""
    return values.movedim(1, -1).reshape(-1, values.shape[1]) if places else values.flatten(1)


def _apply_network(network: StandInNetwork, x: Tensor) -> Tensor:
    """Apply the network, with channels first as in the module."""
    if x.ndim > 2 and network.values_in == x.shape[1]:
        return network.forward(x.movedim(1, -1)).movedim(-1, 1)
    return network.forward(x.flatten(1))
