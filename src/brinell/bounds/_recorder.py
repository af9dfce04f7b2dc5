"""Records the operations that torch carries out on values that depend on the input of a network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from brinell.bounds._graph import Convolution, Gather, Node, Operation, Reshape, Scaling
from brinell.core.errors import RequestError

BATCH = 2
"""Inputs that are shown at once."""
FORWARDED = {
    "detach",
    "alias",
    "clone",
    "contiguous",
    "_to_copy",
    "to",
    "lift_fresh",
    "dropout",
    "native_dropout",
}
"""Operations that leave values as they are."""
MOVING = {
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "slice",
        "permute",
        "transpose",
        "t",
        "flip",
        "roll",
        "select",
    ),
    *(
        "expand",
        "repeat",
        "constant_pad_nd",
        "index_select",
        "index",
        "split",
        "split_with_sizes",
        "unbind",
        "chunk",
        "narrow",
        "tensor_split",
    ),
}
"""Operations that select, move, repeat or pad values by their positions alone."""
PAIRED = {"add", "sub", "mul", "div"}
"""Operations on pairs of values, which are broadcast."""


class Unbounded(RequestError):
    """A layer of the network has no sound relaxation here."""


@dataclass(frozen=True)
class BatchLayout:
    """Where the samples of a tensor lie: in `shape`, along `axis`.

    `shape` may split an axis of the tensor in two.
    """

    shape: tuple[int, ...]
    axis: int = 0

    def sample(self, value: Tensor) -> Tensor:
        """The part of the first sample; all samples must have the same."""
        samples = value.reshape(self.shape).movedim(self.axis, 0)
        if not bool((samples == samples[:1]).all()):
            raise Unbounded("the network adds another constant to each input of a batch")
        return samples[0]

    def arranged(self, samples: Tensor, shape: Sequence[int]) -> Tensor:
        """Samples along the first axis as a tensor of this layout."""
        return samples.movedim(0, self.axis).reshape(tuple(shape))

    def followed(self, before: Sequence[int], after: Sequence[int]) -> "BatchLayout | None":
        """The layout of a result whose last axes alone differ from the argument's; else None."""
        if tuple(before) == tuple(after):
            return self
        # The axes at the front that are the same, as many as the shorter shape has if all are.
        prefix = min(len(before), len(after))
        for k, (n, m) in enumerate(zip(before, after, strict=False)):
            if n != m:
                prefix = k
                break

        # The axes of the samples must lie in the part that is the same.
        dims = len(self.shape) - (len(before) - prefix)
        if self.axis >= dims:
            return None
        return BatchLayout((*self.shape[:dims], *after[prefix:]), self.axis)


@dataclass(frozen=True)
class Value:
    """A value that depends on the input, as a reader of its operation gets it."""

    node: int
    dims: int
    """Number of axes of the tensor."""


class GraphRecorder(TorchDispatchMode):
    """Collects the operations on values that depend on the input."""

    def __init__(self, x: Tensor, readers: "Mapping[str, Reader]") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._readers = readers
        self.nodes = [Node(None, (), tuple(x.shape[1:]))]
        # The node whose value a tensor holds, by the id of the tensor; 0 is the input.
        self.positions = {id(x): 0}
        self._layouts = {id(x): BatchLayout(tuple(x.shape))}
        # Tensors that must not be freed while they are known by their id.
        self._kept: list[Any] = [x]
        self._decomposed: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here.

        True would make torch import all of its compiler, which takes seconds.
        """
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        flat = [item for arg in args for item in (arg if isinstance(arg, list | tuple) else [arg])]
        tensors = [item for item in flat if isinstance(item, Tensor) and id(item) in self.positions]
        # What does not depend on the input is a constant of the network.
        if not tensors:
            return result

        name = _operation_name(func)
        if name in ("_local_scalar_dense", "is_nonzero", "equal", "item"):
            raise Unbounded("the network takes decisions by values of its input")
        # Some operations have several results, of which not all are tensors.
        values = [result]
        if isinstance(result, tuple | list):
            values = [part for part in result if isinstance(part, Tensor)]
        # Tensors are known by their id, which is theirs as long as they exist.
        self._kept += [*values, *flat]

        if name in MOVING and (len(tensors) > 1 or tensors[0] is not args[0]):
            raise Unbounded(f"there is no bound for the operation {name} with these values")
        self._record(name, func, args, kwargs, tensors, values)
        return result

    def _record(
        self,
        name: str,
        func: Any,
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        values: list[Tensor],
    ) -> None:
        """Record an operation by its name: a copy, a move of values, one with a reader, or its
        parts.
        """
        if name in FORWARDED or (name == "as_strided" and _is_same(args[0], values[0])):
            self._place(values[0], self.positions[id(args[0])], self._layouts[id(args[0])])
        elif name in MOVING:
            self._read_moving(name, func, args, kwargs, values)
        elif name in self._readers:
            self._read(name, _bind(func, args, kwargs), tensors, values[0])
        else:
            self._decompose(name, func, args, kwargs, values)

    def _read_moving(
        self, name: str, func: Any, args: Any, kwargs: Any, values: Sequence[Tensor]
    ) -> None:
        """Read an operation that moves values: it does the same with their positions."""
        # Padding with another value than 0 would not be a move of values.
        if kwargs.get("value") or (name == "constant_pad_nd" and any(args[2:])):
            raise Unbounded(f"there is no bound for the operation {name} with these values")
        shifted = self._moved(args[0], lambda x: func(x, *args[1:], **kwargs))
        for value, (node, layout) in zip(values, shifted, strict=True):
            self._place(value, node, layout)

    def _decompose(
        self, name: str, func: Any, args: Any, kwargs: Any, values: Sequence[Tensor]
    ) -> None:
        """Read an operation as the simpler ones of which torch makes it."""
        overload = getattr(getattr(torch.ops.aten, name, None), func._overloadname, None)
        if name in self._decomposed or overload not in decomposition_table:
            outermost = self._decomposed[0] if self._decomposed else name
            raise Unbounded(f"there is no bound for the operation {outermost}")

        # The parts are recorded as they run; an operation within itself would not end.
        self._decomposed.append(name)
        with self:
            result = decomposition_table[overload](*args, **kwargs)
        self._decomposed.pop()

        # The first run gave the network its values; they are those of the nodes of the parts.
        parts = result if isinstance(result, tuple | list) else [result]
        for value, part in zip(values, parts, strict=True):
            if id(part) in self.positions:
                self._place(value, self.positions[id(part)], self._layouts[id(part)])

    def _place(self, value: Tensor, node: int, layout: BatchLayout) -> None:
        """Note the node whose value a tensor holds, and where its samples lie."""
        self.positions[id(value)] = node
        self._layouts[id(value)] = layout

    def _read(
        self, name: str, bound: dict[str, Any], tensors: Sequence[Tensor], value: Tensor
    ) -> None:
        """Add the nodes of an operation with the arguments `bound`, which gave `value`."""
        # The axis of the samples may move through an operation; the layouts of all arguments must
        # agree.
        layouts = {self._layouts[id(item)].followed(item.shape, value.shape) for item in tensors}
        if name in PAIRED:
            changed, layouts = self._read_pair(bound, value)
            bound |= changed
        # Where the samples lie first in the value, and do so in an argument, they stay there.
        elif (
            value.dim()
            and len(value) == BATCH
            and any(self._layouts[id(item)] == BatchLayout(tuple(item.shape)) for item in tensors)
        ):
            layouts = {BatchLayout(tuple(value.shape))}

        (layout,) = layouts if len(layouts) == 1 else (None,)
        # Samples that are mixed cannot be bounded one by one.
        if layout is None:
            raise Unbounded(f"the operation {name} mixes inputs of a batch")
        shape = (*layout.shape[: layout.axis], *layout.shape[layout.axis + 1 :])
        arguments = {key: self._value(item) for key, item in bound.items()}
        self._place(value, self._readers[name](self, arguments, shape), layout)

    def _read_pair(
        self, bound: dict[str, Any], value: Tensor
    ) -> tuple[dict[str, Any], set[BatchLayout | None]]:
        """Both arguments of an operation on pairs, broadcast, and the layouts of their samples."""
        pair = {key: bound[key] for key in ("self", "other") if isinstance(bound[key], Tensor)}
        spread = {
            key: self._spread(item, value.shape)
            for key, item in pair.items()
            if self.node(item) is not None
        }
        changed: dict[str, Any] = {
            key: Value(node, value.dim()) for key, (node, _) in spread.items()
        }
        layouts = [layout for _, layout in spread.values()]

        # Constants lose the axis of the samples, which an argument says: one at least has some.
        for key, item in pair.items():
            if key not in spread and item.dim():
                changed[key] = layouts[0].sample(torch.broadcast_to(item, value.shape))
        return changed, set(layouts)

    def _value(self, item: Any) -> Any:
        """An argument as a reader gets it: a Value, a list with them, or what it is."""
        if isinstance(item, list | tuple):
            return [self._value(part) for part in item]
        if isinstance(item, Value) or self.node(item) is None:
            return item
        return Value(self.positions[id(item)], item.dim())

    def _spread(self, value: Tensor, shape: Sequence[int]) -> tuple[int, BatchLayout]:
        """Node and layout of a value that is broadcast to a shape."""
        if value.shape == shape:
            return self.positions[id(value)], self._layouts[id(value)]
        return self._moved(value, lambda x: torch.broadcast_to(x, tuple(shape)))[0]

    def _moved(
        self, value: Tensor, function: Callable[[Tensor], Any]
    ) -> list[tuple[int, BatchLayout]]:
        """Nodes and layouts of what an operation that moves values gives.

        The operation moves the positions of the values, counted from 1; 0 stands for a padded 0.
        """
        node = self.positions[id(value)]
        layout = self._layouts[id(value)]
        size = prod(self.shape(node))
        shape = self.shape(node)
        # A batch of positions shows where values go, and which samples they belong to.
        positions = torch.arange(1, BATCH * size + 1, dtype=torch.float64).reshape(BATCH, *shape)

        with torch.utils._python_dispatch._disable_current_modes():
            result = function(layout.arranged(positions, value.shape).contiguous())
            results = list(result) if isinstance(result, tuple | list) else [result]
            return [self._found(node, size, shifted) for shifted in results]

    def _found(self, node: int, size: int, shifted: Tensor) -> tuple[int, BatchLayout]:
        """Node and layout of moved positions.

        The samples follow each other along the axis on which all positions differ by `size`.
        """
        shape = tuple(shifted.shape)
        layouts = [BatchLayout(shape, k) for k, n in enumerate(shape) if n == BATCH]
        # Two axes may have been joined: then the samples lie within a longer one.
        for k, n in enumerate(shape):
            if n % BATCH == 0 and n > BATCH:
                layouts += [BatchLayout((*shape[:k], BATCH, n // BATCH, *shape[k + 1 :]), k)]
                layouts += [BatchLayout((*shape[:k], n // BATCH, BATCH, *shape[k + 1 :]), k + 1)]

        for layout in layouts:
            # Each position holds its number; the second sample's numbers are larger by the size of
            # a node.
            first, second = shifted.reshape(layout.shape).movedim(layout.axis, 0)
            is_next = second - first == size
            # Zeros are padding, which both samples have in the same places.
            is_padding = (first == 0) & (second == 0)
            if bool((is_next | is_padding).all()) and bool(second.any()):
                # Numbers count from 1, positions from 0, so that padding becomes -1.
                return self._selected(node, first.round().long() - 1), layout
        raise Unbounded("the network mixes inputs of a batch")

    def add(self, operation: Operation, arguments: Sequence[int], shape: Sequence[int]) -> int:
        """Append a node, and return its number."""
        self.nodes.append(Node(operation, tuple(arguments), tuple(shape)))
        return len(self.nodes) - 1

    def node(self, value: Any) -> int | None:
        """The node of a value, or None for a constant."""
        if isinstance(value, Value):
            return value.node
        return self.positions.get(id(value)) if isinstance(value, Tensor) else None

    def shape(self, node: int) -> tuple[int, ...]:
        """Shape of the value of a node, without the batch."""
        return self.nodes[node].shape

    def constant(self, value: Tensor) -> int:
        """A node of the same value (*shape) for all inputs."""
        zero = self.add(Gather(torch.full(value.shape, -1)), [0], value.shape)
        return self.add(Scaling(torch.zeros_like(value), value), [zero], value.shape)

    def indexed(
        self, node: int, function: Callable[[Tensor], Tensor], shape: tuple[int, ...]
    ) -> int:
        """A node for an operation that selects, moves or pads values.

        `function` takes (1, *shape of the node).
        """
        before = self.shape(node)
        positions = torch.arange(1, prod(before) + 1, dtype=torch.float64).reshape(1, *before)
        with torch.utils._python_dispatch._disable_current_modes():
            # Positions are counted from 1, so that a padded 0 becomes -1.
            index = function(positions)[0].round().long().reshape(shape) - 1
            return self._selected(node, index)

    def _selected(self, node: int, index: Tensor) -> int:
        """A node for values at positions of the flattened value of another; -1 stands for 0."""
        shape = tuple(index.shape)
        size = prod(self.shape(node))
        if index.numel() == size and bool((index.flatten() == torch.arange(size)).all()):
            # All values in their order: only the shape may differ.
            return node if shape == self.shape(node) else self.add(Reshape(shape), [node], shape)
        return self.add(_read_strided(index, self.shape(node)) or Gather(index), [node], shape)


def _operation_name(func: Any) -> str:
    """The name of an operation; what is done in place is read as what it computes."""
    name: str = func.__name__.split(".")[0]
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1]
    return name


def _is_same(x: Tensor, view: Tensor) -> bool:
    """True if a view has the strides of a tensor but for axes of length 1.

    Pooling in another layout of memory makes such views.
    """
    if x.shape != view.shape:
        return False
    strides = zip(x.shape, x.stride(), view.stride(), strict=False)
    return all(n == 1 or first == second for n, first, second in strides)


def _read_strided(index: Tensor, shape: tuple[int, ...]) -> Convolution | None:
    """A slice of every k-th position of a map, as a convolution with one value a kernel.

    It may have channels of zeros.
    """
    if index.dim() != 3 or len(shape) != 3:
        return None

    channels, height, width = shape
    filled = [c for c in range(len(index)) if int(index[c].max()) >= 0]
    if not filled:
        return None

    stride = -(-height // index.shape[1]), -(-width // index.shape[2])
    weight = torch.zeros(len(index), channels, 1, 1, dtype=torch.float64)
    for c in filled:
        # The channel of the argument from which this channel takes its values.
        weight[c, int(index[c, 0, 0]) // (height * width)] = 1.0
    convolution = Convolution(weight, None, stride)

    # Whether the index is such a slice shows when the convolution moves the positions, which count
    # from 1 so that zeros are padding, as -1 is in the index.
    positions = torch.arange(1, channels * height * width + 1, dtype=torch.float64)
    with torch.utils._python_dispatch._disable_current_modes():
        selected = convolution.value(positions.reshape(1, *shape))
    fits = selected.shape[1:] == index.shape and torch.equal(selected[0].round().long() - 1, index)
    return convolution if fits else None


def _bind(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an operation by name, with its defaults."""
    bound = {}
    for k, argument in enumerate(func._schema.arguments):
        if k < len(args):
            bound[argument.name] = args[k]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value
    return bound


Reader = Callable[[GraphRecorder, dict[str, Any], tuple[int, ...]], int]
"""Reads an operation with its arguments and the shape of one result, and returns its node."""
