"""Every verb, equal outcomes, rates and one hardening on the device of this machine, in one table.

    make gpu                             the device that `--device auto` takes; on a GPU at most eight minutes
    make gpu ARGS="--out gpu.md"         keeps the table
    make gpu ARGS="--device cpu"         the small form, at most two minutes of one processor

It needs torch, NumPy and what else `pip install brinell` brings but Pillow, no network and no installed Brinell: `src` of the
checkout is used.
The images of CIFAR-10 come from --data, the folder with `cifar10_train_a.npz`, `cifar10_train_b.npz` and `cifar10_test.npz`;
without them enlarged digits take their place. The reference AutoAttack runs where `autoattack` can be imported.
"""

import argparse
import copy
import enum
import importlib.util
import io
import os
import platform
import resource
import struct
import sys
import tempfile
import time
import traceback
import types
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples" / "models")]

import numpy as np  # noqa: E402 - the checkout comes first

PILLOW = importlib.util.find_spec("PIL") is not None


class Picture:
    """Pixels that are written as PNG, for the pages of the verbs where Pillow is not installed. JPEG loses nothing here."""

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
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2 if self.pixels.ndim == 3 else 0, 0, 0, 0)
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, content in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)))


if not PILLOW:
    for name in ("PIL", "PIL.Image", "PIL.ImageDraw"):
        sys.modules[name] = types.ModuleType(name)
    parts = {"Image": Picture, "Resampling": Picture.Resampling, "fromarray": Picture}
    parts |= {"open": lambda file, formats=(): Picture(np.load(io.BytesIO(file.getvalue())))}
    for name, value in parts.items():
        setattr(sys.modules["PIL.Image"], name, value)
    sys.modules["PIL"].Image, sys.modules["PIL"].ImageDraw = sys.modules["PIL.Image"], sys.modules["PIL.ImageDraw"]

import torch  # noqa: E402
from cifar10 import resnet20  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import brinell  # noqa: E402
from brinell import plugins  # noqa: E402
from brinell.core.domain import Domain  # noqa: E402
from brinell.core.errors import BrinellWarning  # noqa: E402
from brinell.core.ledger import Ledger  # noqa: E402
from brinell.core.oracle import Batch  # noqa: E402
from brinell.core.record import BROKEN  # noqa: E402
from brinell.core.streams import Streams  # noqa: E402
from brinell.core.threat import Threat  # noqa: E402
from brinell.engine.plan import choose_device  # noqa: E402
from brinell.models._torch_model import TorchModel  # noqa: E402
from brinell.store.run import Run  # noqa: E402
from brinell.studies import register  # noqa: E402

DATA = (
    ROOT / "shared/data/cifar10",
    ROOT.parent / "shared/data/cifar10",
    Path(os.environ.get("BRINELL_SHARED", ".")) / "cifar10",
)
"""Where the images of CIFAR-10 are looked for."""
CHUNK = 100
"""Samples of AutoAttack at once, between which the time is looked at."""
TINY = 1e-5
"""A budget that fools nobody, so that batches stay full."""
EPS = 8 / 255


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


LARGE = Size(seconds=470, samples=100, queries=200, batch=256, moment=5, images=15_000, minutes=3, audited=500, width=64)
SMALL = Size(seconds=150, samples=20, queries=30, batch=8, moment=0.5, images=300, minutes=0.05, audited=20, width=4)


# Networks


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
        self.blocks, self.norm, self.linear = nn.Sequential(*layers), nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) in [0, 1] to (n, 10) logits."""
        logits: Tensor = self.linear(F.relu(self.norm(self.blocks(self.conv((x - 0.47) / 0.25)))).mean((2, 3)))
        return logits


def preact_resnet18(width: int) -> nn.Module:
    """PreActResNet-18 where the width is 64."""
    return PreActResNet((width, 2 * width, 4 * width, 8 * width), 2, width)


def wide_resnet28(width: int) -> nn.Module:
    """WideResNet-28-10 where the width is 10."""
    return PreActResNet((16 * width, 32 * width, 64 * width), 4, 16)


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021); ViT-B/16 where dim is 768, depth 12 and side 224."""

    def __init__(self, dim: int, depth: int, side: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.place = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, max(1, dim // 64), 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)
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


def digits_network(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], seed: int = 0, steps: int = 150) -> nn.Module:
    """A small network, trained on these digits."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=0.005)
        for step in range(steps):
            rows = np.arange(step * 64, step * 64 + 64) % len(x)
            loss = F.cross_entropy(network(torch.from_numpy(x[rows])), torch.from_numpy(y[rows]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


# The table


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
        print(f"{self.size.seconds - self.remaining:5.0f} s  {section}: {subject}: {figure} {note}", file=sys.stderr, flush=True)

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
            self.add(section, subject, "FAILED", " ".join(f"{type(error).__name__}: {error}".split())[:200])

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


# Every verb


def verbs(table: Table, folder: Path) -> None:
    """Each verb once, small, on the device."""
    x, y = digits()
    network, other = digits_network(x, y), digits_network(x, y, seed=1)
    data, device = (x[1000:1020], y[1000:1020]), str(table.device)
    generator, text = folder / "generator.safetensors", {"eps": "0.1", "attack": "fgsm"}
    grey = {"kind": "gaussian-noise", "severity": 2}
    calls: dict[str, Callable[[Path], object]] = {
        "audit": lambda out: brinell.audit(network, data, eps="0.05,0.1", attack="fast", out=out, device=device),
        "benchmark": lambda out: brinell.benchmark(network, data, samples=3, steps=5, levels="1", out=out, device=device),
        "certify": lambda out: brinell.certify(network, data, samples=5, method="crown", **text, out=out, device=device),
        "corrupt": lambda out: brinell.corrupt(network, data, **grey, out=out, device=device),
        "explain": lambda out: brinell.explain(
            network, data, samples=3, method=("gradient", "occlusion"), steps=4, out=out, device=device
        ),
        "harden": lambda out: brinell.harden(
            network, data, train=(x[:500], y[:500]), epochs=1, samples=10, **text, out=out, device=device
        ),
        "smooth": lambda out: brinell.smooth(network, data, samples=3, draws=50, first=10, out=out, device=device),
        "study": lambda out: brinell.study(model=[network, other], data=data, draws=100, **text, out=out, device=device),
        "transfer": lambda out: brinell.transfer(model=[network, other], data=data, eps="0.1", out=out, device=device),
        "train-generator": lambda out: brinell.train_generator(out=generator, width=4, steps=5, rate=0.004, device=device),
        "unrestricted": lambda out: brinell.unrestricted(
            network, "digits", generator=str(generator), per_class=1, steps=3, out=out, device=device
        ),
        "train-agent": lambda out: brinell.train_agent(
            network, (x[1000:1060], y[1000:1060]), out=folder / "agent.safetensors", steps=10, fits=3, episode_steps=8, eps="2",
            surrogates=1, surrogate_steps=5, samples=60, probes=2, slots=8, device=device,
        ),
    }  # fmt: skip
    dense = {"dense", "dense-transfer"}
    if PILLOW:
        pictures, model = write_pictures(folder / "pictures")
        calls["dense"] = lambda out: brinell.dense(model, pictures, eps="0.1", attack="sea?steps=2", out=out, device=device)
        calls["dense-transfer"] = lambda out: brinell.dense_transfer(
            [f"{model}?name=first", f"{model}?name=second"], pictures, eps="0.1", attack="sea?steps=2", out=out, device=device
        )
    for verb in [verb for verb, study in register.studies().items() if "device" in study.fields()]:
        if verb not in calls:
            note = "it reads pictures, and Pillow is not installed" if verb in dense else "this script has no call of it"
            table.add("verb", verb, "left out", note)
            continue
        with table.part("verb", verb):
            seconds = seconds_of(lambda verb=verb: calls[verb](folder / f"verb-{verb}"), table.device)
            table.add("verb", verb, "runs", f"{seconds:.1f} s")


def write_pictures(folder: Path) -> tuple[str, str]:
    """Pictures with masks, and a network that finds the masks: the specs of both."""
    from PIL import Image

    x = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3)).astype(np.uint8)
    for name, content in (("images", x), ("masks", (x[..., 0] > 127).astype(np.uint8))):
        (folder / name).mkdir(parents=True)
        for number, picture in enumerate(content):
            Image.fromarray(picture).save(folder / name / f"{number}.png")
    (folder / "model.py").write_text(
        "import torch\n\nclass Threshold(torch.nn.Module):\n    def forward(self, x):\n        lead = x[:, :1] - 0.5\n"
        "        return torch.cat([-lead, lead], 1)\n\ndef network(name=''):\n    return Threshold()\n"
    )
    return f"masks:{folder}", f"torch:{folder}/model.py:network"


# Outcomes equal to the processor's


def outcomes(table: Table, folder: Path) -> None:
    """Outcomes on the device beside those on the processor."""
    x, y = digits()
    n, network = table.size.samples, digits_network(x, y)
    data, devices = (x[1000 : 1000 + n], y[1000 : 1000 + n]), (str(table.device), "cpu")
    same = " (the device is the processor)" if table.device.type == "cpu" else ""

    def compare(name: str, rows: Callable[[str, Path], dict[Any, Any]], note: str = "") -> None:
        """A row: on how many samples the two differ."""
        with table.part("equal to the processor", name):
            first, second = (rows(device, folder / f"{name}-{number}") for number, device in enumerate(devices))
            differing = {key[0] for key in first if first[key] != second[key]} | {key[0] for key in first.keys() ^ second.keys()}
            table.add("equal to the processor", name, f"{len(differing)} of {n} samples differ", note + same)

    def audited(**settings: Any) -> Callable[[str, Path], dict[Any, Any]]:
        """Outcomes of an audit, by sample, attack and budget."""

        def rows(device: str, out: Path) -> dict[Any, Any]:
            brinell.audit(network, data, out=out, device=device, **settings)
            records = Run.open(out).records()
            keys = zip(records.sample_id.tolist(), records.attack.tolist(), records.eps.tolist(), strict=True)
            return dict(zip(keys, records.outcome.tolist(), strict=True))

        return rows

    def proven(device: str, out: Path) -> dict[Any, Any]:
        """Budgets of proofs, by sample."""
        brinell.certify(network, data, method="crown", eps="0.005,0.01,0.02", attack="fgsm", out=out, device=device)
        study = register.load("certify")
        return {(int(sample),): budget for sample, budget in study.resolve(study.proven)(out).items()}

    def hardened(device: str, out: Path) -> dict[Any, Any]:
        """Classes of the hardened network, by sample."""
        settings = {"eps": "0.1", "epochs": 1, "samples": 10, "attack": "fgsm", "recipe": "n-fgsm"}
        result = brinell.harden(network, data, train=(x[:900], y[:900]), out=out, device=device, **settings)
        module = copy.deepcopy(network)
        module.load_state_dict(load_file(weights_of(result, out)))
        return {(sample,): int(answer) for sample, answer in enumerate(module(torch.from_numpy(data[0])).argmax(1))}

    compare("fast", audited(attack="fast", eps="0.05,0.1"), "outcomes at two budgets")
    compare("rlab", audited(attack="rlab", eps="1, 2", norm="l2", queries=table.size.queries), f"{table.size.queries} queries")
    compare("certify", proven, "largest budget proven by crown")
    compare("harden", hardened, "classes after one epoch of n-fgsm")


def weights_of(result: Any, out: Path) -> Path:
    """The file of the hardened weights."""
    return next(path for path in (Path(result.weights), out / result.weights) if path.is_file())


# Rates


def rates(table: Table) -> None:
    """Passes a second of attacks beside bare passes."""
    batch, device = table.size.batch, table.device
    small = table.is_small
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        vit = (ViT(64, 2, 32, 8), 32) if small else (ViT(768, 12, 224, 16), 224)
        networks: dict[str, tuple[nn.Module, int, int]] = {
            "ResNet-20": (resnet20(), 32, batch),
            "WideResNet-28-1" if small else "WideResNet-28-10": (wide_resnet28(1 if small else 10), 32, batch),
            "ViT of width 64" if small else "ViT-B/16": (*vit, batch // 4),
        }
    for name, (network, side, n) in networks.items():
        with table.part("rate", name, needed=6 * table.size.moment):
            rates_of(table, name, network.eval(), side, max(n, 2), device)


def rates_of(table: Table, name: str, network: nn.Module, side: int, n: int, device: torch.device) -> None:
    """Rows of one network."""
    domain = Domain(kind="image", shape=(3, side, side))
    model = TorchModel(network, domain, name=name)
    x = torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1)).to(device)
    with model.info.session(device):
        with torch.no_grad():
            y = model.predict(x).argmax(1)

        def forward() -> None:
            with torch.no_grad():
                network(x)

        def both() -> None:
            leaf = x.clone().requires_grad_()
            torch.autograd.grad(F.cross_entropy(network(leaf), y), leaf)

        bare = {}
        for kind, work in (("forward", forward), ("forward and backward", both)):
            bare[kind] = pace_of(work, table.size.moment / 2, device) / n
            table.add("rate", f"{name}, bare {kind} passes", f"{1 / bare[kind]:.0f} a second", f"float32, batch {n}")
        for attack, pace in (("apgd", bare["forward and backward"]), ("square", bare["forward"]), ("rlab", bare["forward"])):
            steps = int(np.clip(table.size.moment / (pace * n), 5, 1000))
            attack_rate(table, model, x, y, attack, steps, bare)


def pace_of(work: Callable[[], object], moment: float, device: torch.device) -> float:
    """Seconds of some work, repeated for a moment."""
    work()  # the first calls choose kernels
    times = max(3, round(moment / seconds_of(work, device)))
    return seconds_of(lambda: [work() for _ in range(times)], device) / times


class TimeOverError(Exception):
    """An attack has run for long enough."""


def attack_rate(table: Table, model: TorchModel, x: Tensor, y: Tensor, name: str, steps: int, bare: dict[str, float]) -> None:
    """A row: the rate of an attack of so many steps, as a share of bare passes."""
    n, device = len(x), x.device
    settings = {"loss": "ce"} if name == "apgd" else {}
    attack = plugins.build("attack", name, settings | {"steps": str(steps)})
    threat = Threat(
        distance=plugins.build("distance", "linf", {}), eps=torch.full((n,), TINY, device=device), domain=model.domain
    )
    batch = Batch(ids=torch.arange(n, device=device), x=x, y=y)

    counts, deadline = [0, 0], float("inf")

    def count(forwards: int, backwards: int) -> None:
        """Count passes; ends the attack after its time."""
        counts[:] = counts[0] + forwards, counts[1] + backwards
        if time.monotonic() > deadline:
            raise TimeOverError

    def run(queries: int) -> None:
        """One run of the attack."""
        ledger = Ledger(model, batch, threat, access=attack.access, batch_size=n, queries=queries, on_pass=count)
        with suppress(TimeOverError):
            copy.deepcopy(attack)(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, torch.arange(n, device=device)))

    run(3)
    counts[:] = [0, 0]
    deadline = time.monotonic() + 2 * table.size.moment
    seconds = seconds_of(lambda: run(steps + 1), device)
    forwards, backwards = counts
    plain = backwards * bare["forward and backward"] + (forwards - backwards) * bare["forward"]
    note = f"{forwards} forwards, {backwards} backwards in {seconds:.1f} s"
    table.add("rate", f"{model.name}, {name}", f"{forwards / seconds:.0f} a second, {plain / seconds:.2f} of bare passes", note)


# One hardening


def images(size: Size, data: Path | None) -> tuple[str, tuple[Any, Any], tuple[Any, Any]]:
    """Name, training images and test images."""
    folder = next((folder for folder in ((data,) if data else DATA) if (folder / "cifar10_test.npz").is_file()), None)
    if folder is None and data is not None:
        raise SystemExit(f"error: {data} holds no cifar10_test.npz: name the folder that does, or leave --data out")
    if folder is None:
        x, y = digits()
        x = np.repeat(np.kron(x, np.ones((1, 1, 4, 4), np.float32)), 3, 1)
        arrays, name = [(x[:1200], y[:1200]), (x[1200:], y[1200:])], "enlarged digits (no CIFAR-10 here: --data)"
    else:
        archives = [np.load(folder / f"cifar10_{part}.npz") for part in ("train_a", "train_b", "test")]
        arrays = [(part["images"].transpose(0, 3, 1, 2).astype(np.float32) / 255, part["labels"]) for part in archives]
        name = "CIFAR-10"
    x, y = (np.concatenate(columns)[: size.images] for columns in zip(*arrays[:-1], strict=True))
    x_test, y_test = arrays[-1]
    rows = np.sort(np.concatenate([np.flatnonzero(y_test == label)[: size.audited // 10] for label in range(10)]))
    return f"{name}, {len(x)} images", (x, y.astype(np.int64)), (x_test[rows], y_test[rows].astype(np.int64))


def hardening(table: Table, folder: Path, data: Path | None) -> None:
    """PreActResNet-18 trained by N-FGSM; then fast, and the reference AutoAttack where it is at hand."""
    name, train, test = images(table.size, data)
    device, n = table.device, len(test[0])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network = preact_resnet18(table.size.width)
    subject = f"PreActResNet-18 of width {table.size.width}"
    result: Any = None
    with table.part("harden", subject, needed=60 * table.size.minutes / 3):
        minutes = min(table.size.minutes, max(0.01, (table.remaining - 90) / 60))
        out = folder / "hardened"
        settings: dict[str, Any] = {
            "recipe": "n-fgsm",
            "eps": "8/255",
            "minutes": minutes,
            "batch_size": min(128, len(train[0]) // 4),
        }
        settings |= {"attack": "fgsm", "budgets": "8/255", "samples": min(100, n), "augment": "shift-flip", "validation": 100}
        result = brinell.harden(network, test, train=train, out=out, device=str(device), **settings)
        pace = result.forwards / result.seconds
        note = f"{name}, {result.steps} steps in {result.seconds:.0f} s, {pace:.0f} forwards a second"
        table.add("harden", subject, f"{minutes:.1f} minutes of n-fgsm", note)
        network.load_state_dict(load_file(weights_of(result, out)))
    if result is None:
        return
    network = network.eval().to(device)
    x, y = (torch.from_numpy(part).to(device) for part in test)
    with torch.no_grad():
        clean = int((network(x).argmax(1) == y).sum())
    fast, broken = 0.0, set[int]()
    with table.part("harden", "fast", needed=10):
        run = folder / "fast"
        fast = seconds_of(lambda: brinell.audit(network, test, eps="8/255", attack="fast", out=run, device=str(device)), device)
        records = Run.open(run).records()
        broken = {int(sample) for sample, outcome in zip(records.sample_id, records.outcome, strict=True) if outcome in BROKEN}
        note = f"{clean} right without an attack; {fast:.1f} s with checks and page"
        table.add("harden", "fast", f"{n - len(broken)} of {n} robust", note)
    if importlib.util.find_spec("autoattack") is None:
        table.add("harden", "reference AutoAttack", "left out", "autoattack is not installed")
        return
    with table.part("harden", "reference AutoAttack", needed=30):
        from autoattack import AutoAttack

        reference = AutoAttack(network, norm="Linf", eps=EPS, version="standard", device=str(device), verbose=False)
        robust, total, last, m = 0, 0.0, 0.0, 0
        for part, labels in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
            if table.remaining < last:
                break
            synchronise(device)
            start = time.perf_counter()
            answers = reference.run_standard_evaluation(part, labels, bs=CHUNK)
            with torch.no_grad():
                robust += int((network(answers).argmax(1) == labels).sum())
            last = time.perf_counter() - start
            total, m = total + last, m + len(part)
        ratio = f"; fast takes {fast / n / (total / m):.3f} of its time a sample" if fast else ""
        same = m - sum(sample < m for sample in broken)
        table.add("harden", "reference AutoAttack", f"{robust} of {m} robust, by fast {same}", f"{total:.1f} s{ratio}")


# All of it


def describe(table: Table) -> None:
    """What was seen."""
    device = table.device
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        text = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    else:
        text = f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    if not PILLOW:
        table.add("device", "Pillow", "not installed", "the distortion jpeg changes nothing, and pages have plain pictures")
    form = "small form" if table.is_small else "full form"
    table.add(
        "device", str(device), text, f"{form}, torch {torch.__version__}, Python {platform.python_version()}, {date.today()}"
    )


def peak(table: Table) -> None:
    """The most memory that was in use."""
    if table.device.type == "cuda":
        used = torch.cuda.max_memory_allocated(table.device) / 2**30
        table.add("memory", str(table.device), f"{used:.2f} GiB at most")
    unit = 1 if sys.platform == "darwin" else 1024
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    table.add("memory", "process", f"{host:.2f} GiB at most", f"{time.process_time():.0f} s of the processor")


def main() -> int:
    """Print the table; 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps or auto")
    parser.add_argument("--data", type=Path, help="the folder of the CIFAR-10 archives")
    parser.add_argument("--out", type=Path, help="a file for the table")
    parser.add_argument("--seconds", type=float, help="time for all of it in place of eight minutes")
    parser.add_argument("--small", action="store_true", help="the small form on a GPU, too")
    options = parser.parse_args()
    try:
        device = choose_device(options.device)
    except brinell.BrinellError as error:
        raise SystemExit(f"error: {error}") from None
    warnings.simplefilter("ignore", BrinellWarning)
    size = SMALL if options.small or device.type == "cpu" else LARGE
    table = Table(device, replace(size, seconds=options.seconds or size.seconds), is_small=size is SMALL)
    describe(table)
    with tempfile.TemporaryDirectory(prefix="brinell-gpu-") as name:
        folder = Path(name)
        for work in (
            lambda: verbs(table, folder), lambda: outcomes(table, folder), lambda: rates(table),
            lambda: hardening(table, folder, options.data),
        ):  # fmt: skip
            with table.part("script", "a section"):
                work()
    peak(table)
    print(table.text(), end="")
    if options.out is not None:
        options.out.write_text(table.text())
    return int(table.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
