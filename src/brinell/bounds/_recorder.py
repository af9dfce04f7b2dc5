"""Records the operations that torch carries out on values that depend on the input of a network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from brinell.bounds._graph import Convolution, Gather, Node, Operation, Reshape, Scale
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
class Layout:
    """Where the samples of a tensor lie: in `shape`, which may split an axis of the tensor in two,
    along `axis`.
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
        return samples.movedim(0, self.axis).reshape(tuple(shape))

    def followed(self, before: Sequence[int], after: Sequence[int]) -> "Layout | None":
        """The layout of a result, of which at most the last axes differ from those of the argument;
        None if others do.
        """
        if tuple(before) == tuple(after):
            return self
        prefix = next(
            (k for k, (n, m) in enumerate(zip(before, after, strict=False)) if n != m),
            min(len(before), len(after)),
        )
        dims = len(self.shape) - (len(before) - prefix)
        return (
            Layout((*self.shape[:dims], *after[prefix:]), self.axis) if self.axis < dims else None
        )


@dataclass(frozen=True)
class Value:
    """A value that depends on the input, as a reader of its operation gets it."""

    node: int
    dims: int
    """Number of axes of the tensor."""


class Recorder(TorchDispatchMode):
    """Collects the operations on values that depend on the input."""

    def __init__(self, x: Tensor, readers: "Mapping[str, Reader]") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._readers = readers
        self.nodes = [Node(None, (), tuple(x.shape[1:]))]
        self.positions = {id(x): 0}
        self._layouts = {id(x): Layout(tuple(x.shape))}
        self._kept: list[Any] = [x]
        self._decomposed: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and to tell torch's compiler so would import all of it,
        which takes seconds.
        """
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        flat = [item for arg in args for item in (arg if isinstance(arg, list | tuple) else [arg])]
        tensors = [item for item in flat if isinstance(item, Tensor) and id(item) in self.positions]
        if not tensors:
            return result
        name = func.__name__.split(".")[0]
        if name in ("_local_scalar_dense", "is_nonzero", "equal", "item"):
            raise Unbounded("the network takes decisions by values of its input")
        if name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
        values = (
            [part for part in result if isinstance(part, Tensor)]
            if isinstance(result, tuple | list)
            else [result]
        )
        self._kept += [*values, *flat]
        if name in FORWARDED or (name == "as_strided" and _is_same(args[0], values[0])):
            self._place(values[0], self.positions[id(args[0])], self._layouts[id(args[0])])
        elif name in MOVING:
            if (
                len(tensors) > 1
                or tensors[0] is not args[0]
                or kwargs.get("value")
                or (name == "constant_pad_nd" and any(args[2:]))
            ):
                raise Unbounded(f"there is no bound for the operation {name} with these values")
            shifted = self._moved(args[0], lambda x: func(x, *args[1:], **kwargs))
            for value, (node, layout) in zip(values, shifted, strict=True):
                self._place(value, node, layout)
        elif name in self._readers:
            self._read(name, _bind(func, args, kwargs), tensors, values[0])
        else:
            self._decompose(name, func, args, kwargs, values)
        return result

    def _decompose(
        self, name: str, func: Any, args: Any, kwargs: Any, values: Sequence[Tensor]
    ) -> None:
        """Read an operation as the simpler ones of which torch makes it."""
        overload = getattr(getattr(torch.ops.aten, name, None), func._overloadname, None)
        if name in self._decomposed or overload not in decomposition_table:
            raise Unbounded(
                "there is no bound for the operation "
                f"{self._decomposed[0] if self._decomposed else name}"
            )
        self._decomposed.append(name)
        with self:
            result = decomposition_table[overload](*args, **kwargs)
        self._decomposed.pop()
        parts = result if isinstance(result, tuple | list) else [result]
        for value, part in zip(values, parts, strict=True):
            if id(part) in self.positions:
                self._place(value, self.positions[id(part)], self._layouts[id(part)])

    def _place(self, value: Tensor, node: int, layout: Layout) -> None:
        self.positions[id(value)], self._layouts[id(value)] = node, layout

    def _read(
        self, name: str, bound: dict[str, Any], tensors: Sequence[Tensor], value: Tensor
    ) -> None:
        layouts = {self._layouts[id(item)].followed(item.shape, value.shape) for item in tensors}
        if name in PAIRED:
            pair = {key: bound[key] for key in ("self", "other") if isinstance(bound[key], Tensor)}
            spread = {
                key: self._spread(item, value.shape)
                for key, item in pair.items()
                if self.node(item) is not None
            }
            placed = [layout for _, layout in spread.values()]
            bound |= {key: Value(node, value.dim()) for key, (node, _) in spread.items()}
            constants = {
                key: item for key, item in pair.items() if key not in spread and item.dim()
            }
            for place in placed[:1]:
                bound |= {
                    key: place.sample(torch.broadcast_to(item, value.shape))
                    for key, item in constants.items()
                }
            layouts = set(placed)
        elif (
            any(self._layouts[id(item)] == Layout(tuple(item.shape)) for item in tensors)
            and len(value) == BATCH
        ):
            layouts = {Layout(tuple(value.shape))}
        (layout,) = layouts if len(layouts) == 1 else (None,)
        if layout is None:
            raise Unbounded(f"the operation {name} mixes inputs of a batch")
        shape = (*layout.shape[: layout.axis], *layout.shape[layout.axis + 1 :])
        self._place(
            value,
            self._readers[name](
                self, {key: self._value(item) for key, item in bound.items()}, shape
            ),
            layout,
        )

    def _value(self, item: Any) -> Any:
        if isinstance(item, list | tuple):
            return [self._value(part) for part in item]
        return (
            item
            if self.node(item) is None or isinstance(item, Value)
            else Value(self.positions[id(item)], item.dim())
        )

    def _spread(self, value: Tensor, shape: Sequence[int]) -> tuple[int, Layout]:
        if value.shape == shape:
            return self.positions[id(value)], self._layouts[id(value)]
        return self._moved(value, lambda x: torch.broadcast_to(x, tuple(shape)))[0]

    def _moved(self, value: Tensor, function: Callable[[Tensor], Any]) -> list[tuple[int, Layout]]:
        """Nodes and layouts of the results of an operation that moves values: found by moving their
        positions.
        """
        node = self.positions[id(value)]
        layout = self._layouts[id(value)]
        size = prod(self.shape(node))
        shape = self.shape(node)
        positions = torch.arange(1, BATCH * size + 1, dtype=torch.float64).reshape(BATCH, *shape)
        with torch.utils._python_dispatch._disable_current_modes():
            result = function(layout.arranged(positions, value.shape).contiguous())
            results = list(result) if isinstance(result, tuple | list) else [result]
            return [self._found(node, size, shifted) for shifted in results]

    def _found(self, node: int, size: int, shifted: Tensor) -> tuple[int, Layout]:
        """Node and layout of moved positions, by the axis along which the samples follow each
        other.
        """
        shape = tuple(shifted.shape)
        layouts = [Layout(shape, k) for k, n in enumerate(shape) if n == BATCH]
        for k, n in enumerate(shape):
            if n % BATCH == 0 and n > BATCH:
                layouts += [Layout((*shape[:k], BATCH, n // BATCH, *shape[k + 1 :]), k)]
                layouts += [Layout((*shape[:k], n // BATCH, BATCH, *shape[k + 1 :]), k + 1)]
        for layout in layouts:
            samples = shifted.reshape(layout.shape).movedim(layout.axis, 0)
            if (
                bool(
                    (
                        (samples[1] - samples[0] == size) | (samples[0] == 0) & (samples[1] == 0)
                    ).all()
                )
                and samples.any()
            ):
                return self._selected(node, samples[0].round().long() - 1), layout
        raise Unbounded("the network mixes inputs of a batch")

    def add(self, operation: Operation, arguments: Sequence[int], shape: Sequence[int]) -> int:
        self.nodes.append(Node(operation, tuple(arguments), tuple(shape)))
        return len(self.nodes) - 1

    def node(self, value: Any) -> int | None:
        """The node of a value, or None for a constant."""
        if isinstance(value, Value):
            return value.node
        return self.positions.get(id(value)) if isinstance(value, Tensor) else None

    def shape(self, node: int) -> tuple[int, ...]:
        return self.nodes[node].shape

    def constant(self, value: Tensor) -> int:
        """A node of the same value (*shape) for all inputs."""
        zero = self.add(Gather(torch.full(value.shape, -1)), [0], value.shape)
        return self.add(Scale(torch.zeros_like(value), value), [zero], value.shape)

    def indexed(
        self, node: int, function: Callable[[Tensor], Tensor], shape: tuple[int, ...]
    ) -> int:
        """A node for an operation that selects, moves or pads values: `function` takes (1, *shape
        of the node).
        """
        positions = torch.arange(1, prod(self.shape(node)) + 1, dtype=torch.float64).reshape(
            1, *self.shape(node)
        )
        with torch.utils._python_dispatch._disable_current_modes():
            return self._selected(node, function(positions)[0].round().long().reshape(shape) - 1)

    def _selected(self, node: int, index: Tensor) -> int:
        """A node for values at positions of the flattened value of another; -1 stands for 0."""
        shape = tuple(index.shape)
        size = prod(self.shape(node))
        if index.numel() == size and bool((index.flatten() == torch.arange(size)).all()):
            return node if shape == self.shape(node) else self.add(Reshape(shape), [node], shape)
        return self.add(_read_strided(index, self.shape(node)) or Gather(index), [node], shape)


def _is_same(x: Tensor, view: Tensor) -> bool:
    """True if a view has the strides of a tensor but for axes of length 1, as pooling in another
    layout of memory makes it.
    """
    strides = zip(x.shape, x.stride(), view.stride(), strict=False)
    return x.shape == view.shape and all(n == 1 or first == second for n, first, second in strides)


def _read_strided(index: Tensor, shape: tuple[int, ...]) -> Convolution | None:
    """A slice of every k-th position of a map, with channels of zeros around, as a convolution with
    one value a kernel.
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
        weight[c, int(index[c, 0, 0]) // (height * width)] = 1.0
    convolution = Convolution(weight, None, stride)
    positions = torch.arange(1, channels * height * width + 1, dtype=torch.float64).reshape(
        1, *shape
    )
    with torch.utils._python_dispatch._disable_current_modes():
        fits = convolution.value(positions)
    return (
        convolution
        if fits.shape[1:] == index.shape and torch.equal(fits[0].round().long() - 1, index)
        else None
    )


def _bind(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
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
