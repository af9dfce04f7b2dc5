"""Plain values and arrays out of a pickled file without unpickling it.

CIFAR-10 is published as pickles. This walks their opcodes as `pickletools` lists them, on a stack of its own. It imports
nothing, calls nothing that the file names, and refuses every opcode and global that lists, dicts, text and NumPy arrays of
numbers do not need. It reads what Python 2 wrote (text is bytes there, handed on as latin-1) and what Python 3 writes,
protocols 0 to 5.
"""

import pickletools
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from brinell.core import bounded
from brinell.core.errors import BrinellError, RequestError

PUSHED = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8".split()
)
"""Opcodes that push their own argument."""
MADE: dict[str, Callable[[], Any]] = {
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "MARK": lambda: _Mark()},
}
"""Opcodes that push something new."""
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
"""Opcodes that make a tuple of so many values from the top."""
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
"""Every global that may be named, and the one of our own functions that replaces it."""


class _Refused(BrinellError):
    """Something that no file of plain arrays needs."""


class _Global(str):
    """A global that was named and is allowed."""


class _Mark:
    """The mark of the stack."""


class _Type:
    """A dtype on its way."""

    def __init__(self, text: str) -> None:
        self.dtype = np.dtype(text)
        if self.dtype.kind not in "biuf":
            raise _Refused(f"arrays of type {text!r}")

    def build(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array on its way."""

    def __init__(self) -> None:
        self.value: np.ndarray[Any, Any] = np.empty(0)

    def build(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        self.fill(data, kind, shape, "F" if fortran else "C")

    def fill(self, data: Any, kind: Any, shape: Any, order: str) -> None:
        if not isinstance(kind, _Type) or order not in ("C", "F"):
            raise _Refused("an array without a plain type")
        raw = data.encode("latin-1") if isinstance(data, str) else data
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def read_values(file: IO[bytes], what: object) -> Any:
    """The value in a pickled file: numbers, text, lists, tuples, dicts, arrays. Keys of dicts that are bytes become text."""
    machine = _Machine()
    try:
        with bounded.decoding(what, file.seek(0, 2)):
            file.seek(0)
            for opcode, argument, _ in pickletools.genops(file):
                machine.step(opcode.name, argument)
            return _plain(machine.stack.pop())
    except _Refused as error:
        raise RequestError(
            f"{what} asks for {error}, which no published batch holds; pickles are never run: fetch it again"
        ) from None


class _Machine:
    """A stack, a memo, and the opcodes that build data."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in PUSHED:
            self.stack.append(argument)
        elif name in MADE:
            self.stack.append(MADE[name]())
        elif name in TUPLES:
            self.stack[-TUPLES[name] :] = [tuple(self.stack[-TUPLES[name] :])]
        elif name in STEPS:
            STEPS[name](self, argument)
        elif name not in IGNORED:
            raise _Refused(f"the opcode {name}")

    def popped(self, count: int) -> list[Any]:
        """So many values from the top, the lowest first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def since_mark(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(top := self.stack.pop(), _Mark):
            items.append(top)
        return items[::-1]

    def extend(self, items: list[Any]) -> None:
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        self.stack[-1].update(_pairs(items))

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def name(self, text: str) -> None:
        if text not in GLOBALS:
            raise _Refused(f"the global {text.replace(' ', '.')}")
        self.stack.append(_Global(GLOBALS[text]))

    def reduce(self, function: Any, arguments: tuple[Any, ...]) -> None:
        if not isinstance(function, _Global) or function == "ndarray":
            raise _Refused(f"a call of {function!r:.60}")
        self.stack.append(_call(function, arguments))

    def build(self, state: Any) -> None:
        if not isinstance(self.stack[-1], _Array | _Type):
            raise _Refused(f"a state for a {type(self.stack[-1]).__name__}")
        self.stack[-1].build(state)


STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "DICT": lambda machine, _: machine.stack.append(_pairs(machine.since_mark())),
    "APPEND": lambda machine, _: machine.extend(machine.popped(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.update(machine.popped(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.since_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": lambda machine, _: machine.name("{} {}".format(*machine.popped(2))),
    "REDUCE": lambda machine, _: machine.reduce(*machine.popped(2)),
    "BUILD": lambda machine, _: machine.build(machine.stack.pop()),
}
"""What the other opcodes do."""


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    """What one of the functions that are allowed makes, done here."""
    if function == "dtype":
        return _Type(arguments[0])
    if function == "encode":
        text, coding = arguments
        if coding not in ("latin1", "latin-1"):
            raise _Refused(f"the coding {coding!r:.40}")
        return text.encode("latin-1")
    array = _Array()
    if function == "_frombuffer":
        array.fill(*arguments)
    return array


def _pairs(items: list[Any]) -> dict[Any, Any]:
    keys = (key.decode("latin-1") if isinstance(key, bytes) else key for key in items[::2])
    return dict(zip(keys, items[1::2], strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {key: item.value if isinstance(item, _Array) else item for key, item in value.items()}
    if isinstance(value, _Type | _Global | _Mark):
        raise _Refused(f"a bare {type(value).__name__.strip('_').lower()}")
    return value
