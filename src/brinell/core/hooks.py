"""Calls of the modules of a network, watched while it runs: the one place where Brinell sets hooks on modules.

A module may write into its input (`ReLU(inplace=True)`), and what follows may write into its answer. So a watcher gets copies:
the inputs as they were before the call, the answer as it was after it. The network itself runs on its own tensors, so that what
it does stays the same. TorchScript takes no hooks, and its modules are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a watched module."""

    name: str
    """Name of the module."""
    number: int
    """Place of the call in the order in which calls begin."""
    args: tuple[Any, ...]
    """Copies of the arguments before the call, through which gradients pass."""
    kwargs: dict[str, Any]
    """Copies of the keyword arguments before the call."""
    answer: Any = None
    """A copy of the answer, through which gradients pass; None before the call."""
    output: Any = None
    """The answer itself, on which a hook receives the gradient of what the module answers, whatever is written into it later."""


Watcher = Callable[[Call], Any]
"""Receives a call; what it returns, if anything, takes the place of the answer, or before the call of the first argument."""


def hookable(root: nn.Module) -> dict[str, nn.Module]:
    """The modules of a network that take hooks, by name."""
    return {name: part for name, part in root.named_modules() if not isinstance(part, torch.jit.ScriptModule)}


def check_hookable(root: nn.Module, method: str) -> None:
    """Refuse a network whose parts are TorchScript, for a method that watches its layers.

    Raises:
        RequestError: a part takes no hooks.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in root.modules()):
        raise RequestError(
            f"the network is a TorchScript program, whose layers cannot be watched, as {method} does: take gradient, "
            "integrated-gradients, smoothgrad, occlusion, rise or kernel-shap, or name a function that returns the module before "
            "torch.jit"
        )


@contextmanager
def watch_calls(modules: Mapping[str, nn.Module], after: Watcher | None = None, before: Watcher | None = None) -> Iterator[None]:
    """Watch all calls of these modules while the block runs.

    Args:
        modules: the modules by name; TorchScript among them is left out.
        after: called after each call.
        before: called before each call.
    """
    open_calls: dict[str, list[Call]] = {name: [] for name in modules}
    count = iter(range(1 << 62))

    def begin(name: str) -> Callable[..., Any]:
        """The hook before a call."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """Copy the arguments."""
            call = Call(name=name, number=next(count), args=copied(args), kwargs=copied(kwargs))
            open_calls[name].append(call)
            replacement = before(call) if before is not None else None
            return None if replacement is None else ((replacement, *args[1:]), kwargs)

        return hook

    def end(name: str) -> Callable[..., Any]:
        """The hook after a call."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> Any:
            """Hand the call to the watcher."""
            start = open_calls[name].pop()
            if after is None:
                return None
            return after(
                Call(name=name, number=start.number, args=start.args, kwargs=start.kwargs, answer=copied(answer), output=answer)
            )

        return hook

    handles = []
    try:
        for name, module in modules.items():
            if not isinstance(module, torch.jit.ScriptModule):
                handles.append(module.register_forward_pre_hook(begin(name), with_kwargs=True, prepend=True))
                handles.append(module.register_forward_hook(end(name), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def copied(value: Any) -> Any:
    """Copies of the tensors in a value, through which gradients pass; everything else is the same."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(copied, value))
    return {key: copied(part) for key, part in value.items()} if type(value) is dict else value


def detached(value: Any) -> Any:
    """The tensors in a value without gradients."""
    if isinstance(value, Tensor):
        return value.detach()
    if type(value) in (tuple, list):
        return type(value)(map(detached, value))
    return {key: detached(part) for key, part in value.items()} if type(value) is dict else value
