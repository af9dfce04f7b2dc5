"""Records the operations that torch carries out on values that depend on the input of a network."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from brinell.bounds._graph import Convolution, Gather, Node, Operation, Reshape
from brinell.core.errors import RequestError

__all__ = ["BATCH", "Reader", "Recorder", "Unbounded"]

BATCH = 2
"""Inputs that are shown at once, so that the batch axis is known from its length."""
FORWARDED = {"detach", "alias", "clone", "contiguous", "_to_copy", "lift_fresh", "dropout", "native_dropout"}
"""Operations that leave values as they are."""


class Unbounded(RequestError):
    """A layer of the network has no sound relaxation here."""


class Recorder(TorchDispatchMode):
    """Collects the operations on values that depend on the input."""

    def __init__(self, x: Tensor, readers: "Mapping[str, Reader]") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._readers = readers
        self.nodes = [Node(None, (), tuple(x.shape[1:]))]
        self.positions = {id(x): 0}
        self._kept: list[Any] = [x]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and to tell torch's compiler so would import all of it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry an operation out and read it."""
        result = func(*args, **(kwargs or {}))
        flat = [item for arg in args for item in (arg if isinstance(arg, list | tuple) else [arg])]
        if not any(isinstance(item, Tensor) and id(item) in self.positions for item in flat):
            return result
        name = func.__name__.split(".")[0]
        if name in ("_local_scalar_dense", "is_nonzero", "equal", "item"):
            raise Unbounded("the network takes decisions by values of its input")
        value = result[0] if isinstance(result, tuple | list) else result
        self._kept += [value, *flat]
        if name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
        self.positions[id(value)] = self._read(name, func, args, kwargs or {}, value)
        return result

    def add(self, operation: Operation, arguments: Sequence[int], shape: Sequence[int]) -> int:
        """A new node."""
        self.nodes.append(Node(operation, tuple(arguments), tuple(shape)))
        return len(self.nodes) - 1

    def _read(self, name: str, func: Any, args: Any, kwargs: Any, value: Tensor) -> int:
        """The node of the result of an operation."""
        if name in FORWARDED:
            return self.positions[id(args[0])]
        reader = self._readers.get(name)
        if reader is None:
            raise Unbounded(f"there is no bound for the operation {name}")
        if value.shape[:1] != (BATCH,):
            if name in ("t", "transpose"):
                raise Unbounded("the network multiplies values of its input with each other")
            raise Unbounded(f"the operation {name} mixes inputs of a batch")
        bound = _bind(func, args, kwargs)
        return reader(self, bound, tuple(value.shape[1:]))

    def node(self, value: Any) -> int | None:
        """The node of a value, or None for a constant."""
        return self.positions.get(id(value)) if isinstance(value, Tensor) else None

    def shape(self, node: int) -> tuple[int, ...]:
        """Shape of a node."""
        return self.nodes[node].shape

    def indexed(self, node: int, function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> int:
        """A node for an operation that selects, moves or pads values: `function` takes (2, *shape of the node)."""
        size = prod(self.shape(node))
        positions = torch.arange(1, size + 1, dtype=torch.float64).reshape(1, *self.shape(node))
        with torch.utils._python_dispatch._disable_current_modes():
            index = function(positions.repeat(BATCH, *[1] * len(self.shape(node))))[0].round().long() - 1
        if index.numel() == size and bool((index.flatten() == torch.arange(size)).all()):
            return self.add(Reshape(shape), [node], shape)
        strided = _read_strided(index, self.shape(node))
        return self.add(strided or Gather(index.reshape(shape)), [node], shape)


def _read_strided(index: Tensor, shape: tuple[int, ...]) -> Convolution | None:
    """A slice of every k-th position of a map, with channels of zeros around, as a convolution with one value a kernel."""
    if index.dim() != 3 or len(shape) != 3:
        return None
    channels, height, width = shape
    filled = [c for c in range(len(index)) if int(index[c].max()) >= 0]
    if not filled:
        return None
    stride = -(-height // index.shape[1]), -(-width // index.shape[2])
    weight = torch.zeros(len(index), channels, 1, 1, dtype=torch.float64)
    for c in filled:
        weight[c, int(index[c, 0, 0]) // (height * width)] = 1.0
    convolution = Convolution(weight, None, stride)
    positions = torch.arange(1, channels * height * width + 1, dtype=torch.float64).reshape(1, *shape)
    with torch.utils._python_dispatch._disable_current_modes():
        fits = convolution.value(positions)
    return convolution if fits.shape[1:] == index.shape and torch.equal(fits[0].round().long() - 1, index) else None


def _bind(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name, with defaults."""
    bound = {}
    for k, argument in enumerate(func._schema.arguments):
        if k < len(args):
            bound[argument.name] = args[k]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value
    return bound


Reader = Callable[[Recorder, dict[str, Any], tuple[int, ...]], int]
"""Reads an operation with its arguments and the shape of one result, and returns its node."""
