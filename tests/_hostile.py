# ruff: noqa: E501, B008
"""Values made at random that no call expects: arrays of every type and container, models that
answer anything, odd settings.

Each function takes a `random.Random` and returns a value; `describe` says what it is when a test
fails.
"""

import io
import itertools
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DTYPES = (
    "bool i1 u1 >i2 u2 <i4 >i4 i8 u8 >u8 f2 >f4 f4 f8 >f8 g c8 c16 S3 U3 O M8[s] m8[D] V4".split()
)
TORCH_DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.uint8,
)
SPECIALS = (float("nan"), float("inf"), -float("inf"), -1.0, 1e300, -0.0, 3.7)
TEXTS = (
    "", " ", "\0", "a\0b", "nan", "inf", "-1", "1e999", "2/0", "0:1:1000000000", "8/255,", "../..", "/dev/zero", "http://", "file.py:",
    "no.py:X", "torch:", "npz:", "hf:", "onnx:\0", "fgsm?steps=1e9", "pgd?steps=-1", "pgd?", "?=&", "a" * 100_000, "\ud800", "\u202e",
    "{" * 5000, "[" * 5000, "%s{0}", "in-memory:x", "recommended:", "embedding:", "\n\n", "cuda:99", "meta", "labels", "1/0", "0/0",
)  # fmt: skip
NUMBERS = (
    -1, 0, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 2**70, -(2**70), 10**400, 1.5, -0.0, 1e-320, 1e300, float("nan"), float("inf"),
    -float("inf"), True, False, np.int64(-5), np.float32("nan"), np.uint64(2**64 - 1), 1j, torch.tensor(2**62), torch.tensor([1, 2]),
)  # fmt: skip


class Evil(Exception):
    """An error of a stranger."""


class Exit(BaseException):
    """An error that `except Exception` does not see."""


class Unprintable:
    """An object whose text cannot be had."""

    def __repr__(self):
        raise Evil("no text\nof mine")


class Endless:
    """A sequence without an end, as an object with `__getitem__` alone."""

    def __getitem__(self, index):
        return 0

    def __len__(self):
        return 2**62


def nested(depth):
    """A list within lists."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


def odd(rng):
    """An object of a type that nobody expects."""
    return rng.choice([
        lambda: None, object, Unprintable, Endless, lambda: nested(rng.choice([3, 100, 5000])), lambda: {}, lambda: [], lambda: (),
        lambda: {"": None}, lambda: {1: 2}, lambda: {"x": "y"}, lambda: b"\0\xff", lambda: bytearray(3), lambda: set(), lambda: {1, "a"},
        lambda: frozenset([2]), lambda: range(3), lambda: iter([1]), lambda: (index for index in range(3)), lambda: itertools.count(),
        lambda: int, lambda: np, lambda: print, lambda: Ellipsis, lambda: NotImplemented, lambda: slice(1), lambda: memoryview(b"ab"),
        lambda: Evil("error as a value"), lambda: torch.float32, lambda: np.dtype("f4"), lambda: torch.device("meta"), nn.Identity,
        lambda: Path("\0"), lambda: Path("."), lambda: io.BytesIO(b"\0\xff"), lambda: rng.choice(NUMBERS), lambda: rng.choice(TEXTS),
        lambda: [rng.choice(NUMBERS), rng.choice(TEXTS)], lambda: [rng.choice(TEXTS)] * 3, lambda: {"a": rng.choice(NUMBERS)},
    ])()  # fmt: skip


def shape(rng, n):
    """A shape that may fit n images of 1 x 8 x 8, or may not."""
    images = (n, 1, 8, 8)
    return rng.choice([*[images] * 20, images, images, (n, 8, 8), (n,), (n, 64), (0, 1, 8, 8), (n, 1, 0, 8), (n + 1, 1, 8, 8), (),
                       (n, 1, 1, 1, 8, 8), (1,), (0,), (n, 1), (1, n)])  # fmt: skip


def array(rng, n, sides=None):
    """An array of any type, order of bytes and container, of n images or of something else."""
    sides = shape(rng, n) if sides is None else sides
    values = np.random.default_rng(rng.randrange(2**32)).random(sides)
    kind = rng.choice([*DTYPES, *["f4", "f8", ">f8", "u1"] * 4])
    with np.errstate(all="ignore"):
        if kind in ("S3", "U3", "O"):
            values = values.astype(kind)
        elif kind == "V4":
            values = np.zeros(sides, "V4")
        else:
            values = (values * rng.choice([1, 1, 1, 3, 255])).astype("f8").astype(kind)
    if values.size and values.dtype.kind in "fc" and rng.random() < 0.1:
        values.flat[rng.randrange(values.size)] = rng.choice(SPECIALS)
    return container(rng, values)


def container(rng, values):
    """The values in one of the containers that people have."""
    choices = [
        lambda: values, lambda: values, lambda: np.asfortranarray(values), lambda: values[..., ::-1] if values.ndim else values,
        lambda: np.lib.stride_tricks.as_strided(values, writeable=False), lambda: np.ma.array(values, mask=False),
        lambda: np.ma.array(values, mask=np.random.default_rng(0).random(values.shape) < 0.2), values.tolist, lambda: list(values.ravel()),
        lambda: scipy.sparse.csr_array(values.reshape(len(values), -1)), lambda: scipy.sparse.coo_matrix(values.reshape(len(values), -1)),
        lambda: np.matrix(values.reshape(len(values), -1)), lambda: iter(values), lambda: np.broadcast_to(values[:1], values.shape),
        lambda: tensor(rng, values), lambda: tensor(rng, values), lambda: tensor(rng, values), lambda: Wrapped(values),
        lambda: memoryview(np.ascontiguousarray(values)), lambda: np.rec.array(np.zeros(len(values), [("a", "f4"), ("b", "i4")])),
    ]  # fmt: skip
    try:
        return rng.choice(choices)()
    except (TypeError, ValueError, RuntimeError, IndexError):
        return values


class Wrapped:
    """An array of another library, which has `__array__` alone."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return self._values


def tensor(rng, values):
    """The values as a tensor of some type, layout and device."""
    x = torch.as_tensor(np.ascontiguousarray(values.astype(rng.choice(["f4", "f4", "f8", "i8"]))))
    return rng.choice([
        lambda: x, lambda: x.to(rng.choice(TORCH_DTYPES)), lambda: x.to("meta"), x.to_sparse, lambda: x.flatten(1).to_sparse_csr(),
        lambda: x.float().requires_grad_(), lambda: x.transpose(0, -1).contiguous().transpose(0, -1), lambda: nn.Parameter(x.float()),
        lambda: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8), lambda: torch.nested.nested_tensor([x[0], x[0][..., :3]]),
        lambda: x[..., ::2], lambda: x.expand(2, *x.shape), lambda: x[:0], lambda: inference(x), lambda: torch.complex(x.float(), x.float()).conj(),
        lambda: x.float().neg(), lambda: (x.float() * 1.0j).imag,
    ])()  # fmt: skip


def inference(x):
    """A tensor of inference mode."""
    with torch.inference_mode():
        return x.clone()


def labels(rng, n):
    """Labels of n samples: of a wrong number, type, range or container."""
    return rng.choice([
        lambda: array(rng, n, (n,)), lambda: array(rng, n), lambda: [rng.choice([0, 1, 2, -1, 99, 2**40, 0.5, "a", None])] * n,
        lambda: np.full(n, rng.choice([0, 2, 3, -1, 99_999, 100_000, 2**31 - 1, 2**62])), lambda: np.arange(n + 1) % 3,
        lambda: torch.full((n,), 2**31 - 1), lambda: np.array(["cat", "dog"] * n)[:n], lambda: np.zeros((n, 3)), lambda: odd(rng),
        lambda: container(rng, np.arange(n) % 3),
    ])()  # fmt: skip


def inputs(rng, n):
    """Inputs, or data of inputs and labels."""

    def right():
        return np.arange(n) % 3

    x = array(rng, n)
    return rng.choice([
        lambda: x, lambda: (x, right()), lambda: (x, right()), lambda: (x, labels(rng, n)), lambda: {"x": x, "y": right()}, lambda: [x, right()],
        lambda: {"x": x}, lambda: TensorDataset(torch.rand(n, 1, 8, 8), torch.arange(n) % 3), lambda: Broken(rng, n), lambda: odd(rng),
        lambda: DataLoader(Broken(rng, n), batch_size=3), lambda: [(torch.rand(1, 8, 8), rng.choice(NUMBERS))] * n, lambda: (x, right(), None),
    ])()  # fmt: skip


class Broken(torch.utils.data.Dataset):
    """A data set some of whose items are something else, or raise."""

    def __init__(self, rng, n):
        self._n, self._bad, self._kind = n, rng.randrange(n), rng.randrange(6)

    def __len__(self):
        return self._n if self._kind else -1

    def __getitem__(self, index):
        if index == self._bad and self._kind == 1:
            raise Evil("no item\nhere")
        if index == self._bad and self._kind == 2:
            raise SystemExit(0)
        if index == self._bad and self._kind == 3:
            return torch.rand(1, 7, 8), 0
        return torch.rand(1, 8, 8), {4: None, 5: -3}.get(
            self._kind, 0
        ) if index == self._bad else index % 3


class Model(nn.Module):
    """A network whose answers become something else from some question on."""

    def __init__(self, rng):
        super().__init__()
        self.head, self.fault, self.from_question = (
            nn.Linear(64, 3),
            rng.choice(FAULTS),
            rng.choice([1, 2, 3, 5, 9]),
        )
        self.questions, self.rng = 0, rng

    def forward(self, x):
        self.questions += 1
        logits = self.head(x.flatten(1)[:, :64].float())
        return logits if self.questions < self.from_question else self.fault(logits)


def raising(error):
    """A function that raises."""

    def fault(logits):
        raise error

    return fault


FAULTS = (
    lambda z: None, lambda z: (z, z), lambda z: {"logits": z}, lambda z: {"scores": z}, lambda z: [z], lambda z: z.detach().numpy(),
    lambda z: z[:1], lambda z: z[:, :0], lambda z: z[:, :1], lambda z: z[:, 0], lambda z: z.T, lambda z: z.sum(), lambda z: z[None],
    lambda z: z * float("nan"), lambda z: z / 0, lambda z: z * 1e38 * 1e38, lambda z: torch.complex(z, z), lambda z: z.long(), lambda z: z > 0,
    lambda z: z.to("meta"), lambda z: z.to_sparse(), lambda z: z.double(), lambda z: z.half(), lambda z: z.argmax(1), lambda z: z.repeat(2, 1),
    lambda z: torch.cat([z, z], 1), lambda z: "logits", lambda z: 7, lambda z: iter(z), lambda z: z.detach(), lambda z: z.requires_grad_(),
    lambda z: np.asarray(z.detach()).astype(">f8"), lambda z: np.ma.array(z.detach().numpy(), mask=True), lambda z: z.detach().numpy().astype(object),
    lambda z: torch.quantize_per_tensor(z.detach(), 0.1, 0, torch.quint8), lambda z: z.expand(2, *z.shape), Endless, Unprintable,
    raising(ValueError("wrong\nin two lines")), raising(SystemExit(0)), raising(SystemExit("bye\nbye")), raising(Exit("left\nso")), raising(GeneratorExit()),
    raising(MemoryError()), raising(RecursionError()), raising(StopIteration()), raising(AssertionError()), raising(KeyError(Unprintable())),
    raising(Evil("x" * 10**6)), raising(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\0")),
)  # fmt: skip


class Estimator:
    """What looks like an estimator of scikit-learn."""

    classes_ = np.arange(3)

    def __init__(self, rng):
        self._fault = rng.choice(FAULTS)

    def get_params(self, deep=True):
        return {}

    def predict(self, x):
        return self._fault(torch.rand(len(x), 3))

    predict_proba = decision_function = predict


def model(rng):
    """A model that answers with something else, or no model at all."""

    def function(network=Model(rng)):
        return lambda x: network(torch.as_tensor(x))

    return rng.choice([
        *[lambda: Model(rng)] * 9, *[function] * 4, lambda: Estimator(rng), lambda: {"a": Model(rng), "b": Model(rng)},
        lambda: [Model(rng)] * 2, lambda: {"\0": Model(rng)}, lambda: {"": Model(rng)}, lambda: {"../x": Model(rng)}, lambda: odd(rng),
        lambda: nn.Linear(64, 3), lambda: Model(rng).to("meta"), lambda: Model(rng).half(), lambda: Model(rng).double(), lambda: Model,
        lambda: torch.nn.Sequential(), lambda: rng.choice(TEXTS), lambda: raising(SystemExit(1)), lambda: raising(Exit()),
    ])()  # fmt: skip


def describe(value, depth=3):
    """What a value is, in a line."""
    text = f"{type(value).__module__}.{type(value).__name__}"
    if isinstance(value, np.ndarray | torch.Tensor):
        return (
            f"{text} {value.dtype} "
            f"{'nested' if getattr(value, 'is_nested', False) else tuple(value.shape)}"
        )
    if isinstance(value, tuple | list) and depth:
        return f"{text}({', '.join(describe(entry, depth - 1) for entry in value[:4])})"
    if isinstance(value, dict) and depth:
        return f"{text}({', '.join(f'{key!r}: {describe(entry, depth - 1)}' for key, entry in value.items())})"
    if isinstance(value, Model):
        return f"{text} fault {FAULTS.index(value.fault)} from question {value.from_question}"
    try:
        return repr(value)[:80]
    except (Evil, RecursionError, ValueError):
        return text
