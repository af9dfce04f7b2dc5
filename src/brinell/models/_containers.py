"""The network within what torch and people put around one: compilation, data parallelism,
TorchScript, exported programs.

A compiled or parallel module is asked as the module inside, which gives the same answers and shows
its layers; data parallelism over several GPUs stays. An exported program is asked by its module.
Deeper within a network, compiled parts run uncompiled while it is asked. TorchScript and exported
programs show no layers and have no source, so a digest takes their code from torch; an exported
program that was made for one size of batch is asked in batches of that size.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brinell.core.torch_settings import float32_products

NUMBERED = re.compile(r"___torch_mangle_\d+\.")
"""The number that torch gives to a class, by the order in which it makes classes of one name."""
ATTRIBUTE = re.compile(r"^\s*(\w+) = ", re.MULTILINE)
"""A line about an attribute in what TorchScript prints of a module."""
PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: Any) -> tuple[Any, tuple[str, ...]]:
    """The module within containers, and a description of the containers; other objects
    unchanged.
    """
    notes = []
    # Containers may hold one another.
    while True:
        if isinstance(model, torch.export.ExportedProgram):
            model = model.module()
            notes.append("as an exported program")
        elif isinstance(model, PARALLEL):
            if parallel_over(model) is None:
                notes.append(f"without {type(model).__name__}")
            model = model.module
        elif is_compiled(model):
            notes.append("without torch.compile")
            model = model._orig_mod
        else:
            break

    size = batch_of(model)
    if size is not None:
        notes.append(f"in batches of {size}, for which it was exported")
        model = FixedBatch(model, size)
    elif isinstance(model, torch.jit.ScriptModule):
        model = Holder(model)
    return model, tuple(notes)


def parallel_over(model: Any) -> nn.Module | None:
    """The container that shares batches out among several GPUs; None for any other model."""
    while is_compiled(model):
        model = model._orig_mod
    return model if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1 else None


def is_compiled(module: Any) -> bool:
    """True for a module that torch.compile has wrapped."""
    frames = sys.modules.get("torch._dynamo.eval_frame")  # not loaded where nothing is compiled
    return frames is not None and isinstance(module, frames.OptimizedModule)


def uncompiled() -> AbstractContextManager[Any]:
    """Context in which no module runs compiled.

    A compiled graph hides its operations and is rebuilt for each batch size.
    """
    if "torch._dynamo.eval_frame" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def batch_of(module: Any) -> int | None:
    """The only size of batch that an exported module takes; None for any size and other modules."""
    if not isinstance(module, torch.fx.GraphModule):
        return None
    inputs = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    values = [value for value in inputs if isinstance(value, Tensor) and value.ndim]
    # An export for sizes that it fixes checks them by guards; a free size is a symbol, no int.
    size = values[0].shape[0] if values and "_guards_fn" in dict(module.named_modules()) else None
    return size if isinstance(size, int) else None


class Holder(nn.Module):
    """A TorchScript module as the only part of one that takes hooks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """The answer of the module."""
        return self.module(x)


class FixedBatch(nn.Module):
    """A module that takes batches of one size alone, asked with any number of inputs.

    The last batch is filled up.
    """

    def __init__(self, module: nn.Module, size: int) -> None:
        super().__init__()
        self.module, self.size = module, size

    def forward(self, x: Tensor) -> Any:
        """The answers to the inputs, part by part."""
        padding = -len(x) % self.size
        full = torch.cat([x, x[-1:].expand(padding, *x.shape[1:])])
        answers = [self.module(part) for part in full.split(self.size)]  # type: ignore[no-untyped-call]

        def join(*parts: Any) -> Any:
            return (
                torch.cat(parts)[: len(x)]
                if isinstance(parts[0], Tensor) and parts[0].ndim
                else parts[0]
            )

        return tree_map(join, *answers)

    def extra_repr(self) -> str:
        """The size, for the digest of the model."""
        return f"size={self.size}"


# Modes


def is_training(part: nn.Module) -> bool:
    """True if a module is in training mode; a frozen TorchScript module has no mode."""
    return bool(getattr(part, "training", False))


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Set these modules to evaluation mode, as they are judged; restore all flags at the end.

    Exported modules have flags alone.

    A GPU multiplies in full float32 meanwhile. Recurrent layers do without cuDNN, which refuses
    their gradients in this mode.
    """
    flags = [(part, is_training(part)) for module in modules for part in module.modules()]
    cudnn = torch.backends.cudnn
    # cuDNN's recurrent layers have a backward pass in training mode alone, so torch's own are
    # taken.
    enabled, recurrent = cudnn.enabled, any(isinstance(part, nn.RNNBase) for part, _ in flags)

    try:
        for module in modules:
            _evaluate(module)
        cudnn.enabled = enabled and not recurrent
        with float32_products():
            yield

    finally:
        cudnn.enabled = enabled
        # Each part has a flag of its own: setting the whole would lose frozen layers in training
        # mode.
        for part, training in flags:
            _set_flag(part, training)


def _evaluate(module: nn.Module) -> None:
    """Set a module to evaluation mode, unless it is there already."""
    if not any(is_training(part) for part in module.modules()):
        return
    try:
        module.eval()
    except NotImplementedError:
        # There is an exported module, somewhere within.
        for part in module.modules():
            _set_flag(part, False)


def _set_flag(part: nn.Module, training: bool) -> None:
    """Set the flag of one module; a frozen TorchScript module has none to be set."""
    if is_training(part) != training:
        part.training = training


# Content


def code_of(module: nn.Module) -> list[Any]:
    """The code and constants of TorchScript and graphs, and values beside weights and buffers."""
    content: list[Any] = []
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule):
            content.append(_script_of(part))
        elif isinstance(part, torch.fx.GraphModule):
            content.append(part.code)

    # Some containers keep values in the state that are neither weights nor buffers.
    names = {*dict(module.named_parameters()), *dict(module.named_buffers())}
    content += [
        (name, _dense(value)) for name, value in module.state_dict().items() if name not in names
    ]
    return content


def _script_of(part: Any) -> Any:
    """Code, attributes and constants of a TorchScript module."""
    inner = part._c
    # The text of the attributes, without that of code and parameters.
    names = sorted(set(ATTRIBUTE.findall(inner.dump_to_str(False, True, False))) - {"training"})
    attributes = {name: _dense(inner.getattr(name)) for name in names if inner.hasattr(name)}
    try:
        code, constants = part.code_with_constants
    except RuntimeError:
        return attributes
    values = {name: _dense(value) for name, value in sorted(constants.const_mapping.items())}
    return NUMBERED.sub("", code), values, attributes


def _dense(value: Any) -> Any:
    """A value whose quantised tensors are whole numbers with their scale, as a hash can
    read them.
    """
    if isinstance(value, Tensor) and value.is_quantized:
        return value.dequantize(), value.int_repr()
    if isinstance(value, tuple | list):
        return [_dense(part) for part in value]
    return value if isinstance(value, Tensor | None | int | float | str) else type(value).__name__
