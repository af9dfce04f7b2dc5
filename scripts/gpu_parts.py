"""The parts of `scripts/gpu.py`: its table, its networks, and pictures without Pillow.

Importing it puts the checkout first.
"""

import enum
import importlib.util
import io
import struct
import sys
import time
import traceback
import types
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples" / "models")]


# Pictures


PILLOW = importlib.util.find_spec("PIL") is not None


class Picture:
    """Pixels that are written as PNG, for the pages of the verbs where Pillow is not installed.

    JPEG loses nothing here.
    """

    Resampling = enum.Enum("Resampling", "NEAREST BOX BILINEAR BICUBIC LANCZOS")

    def __init__(self, pixels: np.ndarray[Any, Any]) -> None:
        self.__array_interface__ = (pixels := np.ascontiguousarray(pixels)).__array_interface__
        self.pixels, (self.height, self.width) = pixels, pixels.shape[:2]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    def thumbnail(self, size: tuple[int, int], method: object = None) -> None:
        """Drop rows and columns until no side is larger."""
        step = -(-max(self.size) // max(size))
        self.__init__(self.pixels[::step, ::step])

    def save(self, file: Any, format: str, **settings: Any) -> None:
        """Write the pixels."""
        if format.upper() == "JPEG":
            np.save(file, self.pixels)
            return
        rows = np.pad(self.pixels.reshape(self.height, -1), ((0, 0), (1, 0))).tobytes()
        head = struct.pack(
            ">IIBBBBB", self.width, self.height, 8, 2 if self.pixels.ndim == 3 else 0, 0, 0, 0
        )
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, content in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
            file.write(
                struct.pack(">I", len(content))
                + kind
                + content
                + struct.pack(">I", zlib.crc32(kind + content))
            )


if not PILLOW:
    for name in ("PIL", "PIL.Image", "PIL.ImageDraw"):
        sys.modules[name] = types.ModuleType(name)
    parts = {"Image": Picture, "Resampling": Picture.Resampling, "fromarray": Picture}
    parts |= {"open": lambda file, formats=(): Picture(np.load(io.BytesIO(file.getvalue())))}
    for name, value in parts.items():
        setattr(sys.modules["PIL.Image"], name, value)
    sys.modules["PIL"].Image, sys.modules["PIL"].ImageDraw = (
        sys.modules["PIL.Image"],
        sys.modules["PIL.ImageDraw"],
    )


# Size and table


@dataclass(frozen=True)
class Size:
    """How much is done."""

    seconds: float
    """Of all, at most."""
    samples: int
    """Compared with the processor."""
    queries: int
    """Of RLAB in that comparison."""
    batch: int
    """Of the rates."""
    moment: float
    """Seconds of a rate."""
    images: int
    """Trained on."""
    minutes: float
    """Of training."""
    audited: int
    """Samples of fast and AutoAttack."""
    width: int
    """Of the first layer of PreActResNet-18."""


LARGE = Size(
    seconds=450,
    samples=100,
    queries=200,
    batch=256,
    moment=5,
    images=15_000,
    minutes=3,
    audited=500,
    width=64,
)
SMALL = Size(
    seconds=150,
    samples=20,
    queries=30,
    batch=8,
    moment=0.5,
    images=300,
    minutes=0.05,
    audited=20,
    width=4,
)


class Table:
    """Rows of section, subject, figure and note, which are printed as they come."""

    def __init__(self, device: torch.device, size: Size, *, is_small: bool) -> None:
        self.device, self.size, self.is_small = device, size, is_small
        self.rows: list[tuple[str, str, str, str]] = []
        self.failures = 0
        self._start = time.monotonic()

    @property
    def remaining(self) -> float:
        """Seconds left."""
        return self.size.seconds - (time.monotonic() - self._start)

    def add(self, section: str, subject: str, figure: str, note: str = "") -> None:
        """A row."""
        self.rows.append((section, subject, figure, note))
        print(
            f"{self.size.seconds - self.remaining:5.0f} s  {section}: {subject}: {figure} {note}",
            file=sys.stderr,
            flush=True,
        )

    @contextmanager
    def part(self, section: str, subject: str, needed: float = 5) -> Iterator[None]:
        """Context of a row's work: what fails becomes a row, and the rest goes on."""
        try:
            if self.remaining < needed:
                raise TimeoutError
            yield
        except TimeoutError:
            self.add(section, subject, "left out", "no time was left")
        except Exception as error:  # whatever fails is said in its row
            self.failures += 1
            traceback.print_exc()
            self.add(
                section,
                subject,
                "FAILED",
                " ".join(f"{type(error).__name__}: {error}".split())[:200],
            )

    def text(self) -> str:
        """The table in Markdown."""
        lines = ["| what | of what | figure | note |", "|---|---|---|---|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)]) + "\n"


def synchronise(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Wall time of some work."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


# Networks and data


class PreActBlock(nn.Module):
    """Two 3x3 convolutions, normalised and activated beforehand (He et al. 2016)."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(width_in), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        changes = stride != 1 or width_in != width
        self.shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        active = F.relu(self.norm1(x))
        inner: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return inner + (x if self.shortcut is None else self.shortcut(active))


class PreActResNet(nn.Module):
    """Stages of such blocks; each stage after the first halves the image."""

    def __init__(self, widths: tuple[int, ...], blocks: int, first: int) -> None:
        super().__init__()
        self.conv, width, layers = nn.Conv2d(3, first, 3, 1, 1, bias=False), first, []
        for stage, out in enumerate(widths):
            for block in range(blocks):
                layers.append(PreActBlock(width, out, 2 if stage and not block else 1))
                width = out
        self.blocks, self.norm, self.linear = (
            nn.Sequential(*layers),
            nn.BatchNorm2d(width),
            nn.Linear(width, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) in [0, 1] to (n, 10) logits."""
        logits: Tensor = self.linear(
            F.relu(self.norm(self.blocks(self.conv((x - 0.47) / 0.25)))).mean((2, 3))
        )
        return logits


def preact_resnet18(width: int) -> nn.Module:
    """PreActResNet-18 where the width is 64."""
    return PreActResNet((width, 2 * width, 4 * width, 8 * width), 2, width)


def wide_resnet28(width: int) -> nn.Module:
    """WideResNet-28-10 where the width is 10."""
    return PreActResNet((16 * width, 32 * width, 64 * width), 4, 16)


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021); ViT-B/16 where dim is 768, depth 12 and side
    224.
    """

    def __init__(self, dim: int, depth: int, side: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.place = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, max(1, dim // 64), 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False
        )
        self.linear = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, side, side) in [0, 1] to (n, 10) logits."""
        parts = self.patches(x - 0.5).flatten(2).transpose(1, 2)
        inputs = torch.cat([self.token.expand(len(x), -1, -1), parts], 1) + self.place
        logits: Tensor = self.linear(self.encoder(inputs)[:, 0])
        return logits


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The digits of scikit-learn: (n, 1, 8, 8) float32 in [0, 1], and their labels."""
    bunch = load_digits()
    return (bunch.images[:, None] / 16).astype(np.float32), bunch.target.astype(np.int64)


def digits_network(
    x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], seed: int = 0, steps: int = 150
) -> nn.Module:
    """A small network, trained on these digits."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, 1, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=0.005)
        for step in range(steps):
            rows = np.arange(step * 64, step * 64 + 64) % len(x)
            loss = F.cross_entropy(network(torch.from_numpy(x[rows])), torch.from_numpy(y[rows]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


def weights_of(result: Any, out: Path) -> Path:
    """The file of the hardened weights."""
    return next(path for path in (Path(result.weights), out / result.weights) if path.is_file())
