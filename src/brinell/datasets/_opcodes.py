"""Reads plain values and arrays from a pickled file without unpickling it.

CIFAR-10 is published as pickles. This module executes their opcodes, as `pickletools` lists them, on its own stack. It imports
nothing, calls nothing that the file names, and refuses every opcode and global that lists, dicts, text and NumPy arrays of
numbers do not need. It reads files of Python 2 (where text is bytes, decoded as latin-1) and of Python 3, protocols 0 to 5.
"""

import pickletools
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from brinell.core import bounded
from brinell.core.errors import BrinellError, RequestError

PUSH_OPCODES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8".split()
)
"""Opcodes that push their own argument."""
NEW_VALUES: dict[str, Callable[[], Any]] = {
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "MARK": lambda: _Mark()},
}
"""Opcodes that push a new value."""
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
"""Opcodes that make a tuple of the top values, and the number of these."""
IGNORED = frozenset(("PROTO", "FRAME", "STOP"))
GLOBALS = {
    "numpy.core.multiarray _reconstruct": "_reconstruct",
    "numpy._core.multiarray _reconstruct": "_reconstruct",
    "numpy.core.numeric _frombuffer": "_frombuffer",
    "numpy._core.numeric _frombuffer": "_frombuffer",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
"""The globals that may be named, and the function of this module that replaces each."""


class _RefusedError(BrinellError):
    """An element that a file of plain arrays does not need."""


class _Global(str):
    """A global that the file names and that is allowed."""


class _Mark:
    """The mark of the stack."""


class _Type:
    """A dtype under construction."""

    def __init__(self, text: str) -> None:
        self.dtype = np.dtype(text)
        if self.dtype.kind not in "biuf":
            raise _RefusedError(f"arrays of type {text!r}")

    def build(self, state: Any) -> None:
        """Set the byte order."""
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array under construction."""

    def __init__(self) -> None:
        self.value: np.ndarray[Any, Any] = np.empty(0)

    def build(self, state: Any) -> None:
        """Fill the array from a pickled state."""
        _, shape, kind, fortran, data = state
        self.fill(data, kind, shape, "F" if fortran else "C")

    def fill(self, data: Any, kind: Any, shape: Any, order: str) -> None:
        """Fill the array with raw bytes."""
        if not isinstance(kind, _Type) or order not in ("C", "F"):
            raise _RefusedError("an array without a plain type")
        raw = data.encode("latin-1") if isinstance(data, str) else data
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def read_values(file: IO[bytes], subject: object) -> Any:
    """The value in a pickled file: numbers, text, lists, tuples, dicts, arrays. Keys of dicts that are bytes become text."""
    machine = _Machine()
    try:
        with bounded.decoding(subject, file.seek(0, 2)):
            file.seek(0)
            for opcode, argument, _ in pickletools.genops(file):
                machine.step(opcode.name, argument)
            return _plain(machine.stack.pop())
    except _RefusedError as error:
        raise RequestError(
            f"{subject} asks for {error}, which no published batch holds; pickles are never run: fetch it again"
        ) from None


class _Machine:
    """A stack, a memo, and the opcodes that build data."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Execute one opcode."""
        if name in PUSH_OPCODES:
            self.stack.append(argument)
        elif name in NEW_VALUES:
            self.stack.append(NEW_VALUES[name]())
        elif name in TUPLES:
            self.stack[-TUPLES[name] :] = [tuple(self.stack[-TUPLES[name] :])]
        elif name in STEPS:
            STEPS[name](self, argument)
        elif name not in IGNORED:
            raise _RefusedError(f"the opcode {name}")

    def pop_values(self, count: int) -> list[Any]:
        """Remove `count` values from the top; the lowest comes first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def since_mark(self) -> list[Any]:
        """Pop everything above the last mark."""
        items: list[Any] = []
        while not isinstance(top := self.stack.pop(), _Mark):
            items.append(top)
        return items[::-1]

    def extend(self, items: list[Any]) -> None:
        """Append items to the list on top."""
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        """Add pairs to the dict on top."""
        self.stack[-1].update(_pairs(items))

    def put(self, index: int) -> None:
        """Store the top in the memo."""
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        """Push an entry of the memo."""
        self.stack.append(self.memo[index])

    def name(self, text: str) -> None:
        """Push a permitted global."""
        if text not in GLOBALS:
            raise _RefusedError(f"the global {text.replace(' ', '.')}")
        self.stack.append(_Global(GLOBALS[text]))

    def reduce(self, function: Any, arguments: tuple[Any, ...]) -> None:
        """Push the result of a permitted call."""
        if not isinstance(function, _Global) or function == "ndarray":
            raise _RefusedError(f"a call of {function!r:.60}")
        self.stack.append(_call(function, arguments))

    def build(self, state: Any) -> None:
        """Set the state of the array or type on top."""
        if not isinstance(self.stack[-1], _Array | _Type):
            raise _RefusedError(f"a state for a {type(self.stack[-1]).__name__}")
        self.stack[-1].build(state)


STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "DICT": lambda machine, _: machine.stack.append(_pairs(machine.since_mark())),
    "APPEND": lambda machine, _: machine.extend(machine.pop_values(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.update(machine.pop_values(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.since_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": lambda machine, _: machine.name("{} {}".format(*machine.pop_values(2))),
    "REDUCE": lambda machine, _: machine.reduce(*machine.pop_values(2)),
    "BUILD": lambda machine, _: machine.build(machine.stack.pop()),
}
"""Actions of the other opcodes."""


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    """The result of one of the allowed functions, computed here."""
    if function == "dtype":
        return _Type(arguments[0])
    if function == "encode":
        text, coding = arguments
        if coding not in ("latin1", "latin-1"):
            raise _RefusedError(f"the coding {coding!r:.40}")
        return text.encode("latin-1")
    array = _Array()
    if function == "_frombuffer":
        array.fill(*arguments)
    return array


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Alternating keys and values as a dict."""
    keys = (key.decode("latin-1") if isinstance(key, bytes) else key for key in items[::2])
    return dict(zip(keys, items[1::2], strict=True))


def _plain(value: Any) -> Any:
    """The value with arrays unwrapped."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {key: item.value if isinstance(item, _Array) else item for key, item in value.items()}
    if isinstance(value, _Type | _Global | _Mark):
        raise _RefusedError(f"a bare {type(value).__name__.strip('_').lower()}")
    return value
