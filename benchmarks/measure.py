"""Shared parts of the benchmarks: networks and data, attacks behind a ledger, passes, options and
tables.
"""

import argparse
import itertools
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.cli import malloc as heap
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.record import Outcome, has_broken
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab import ratios

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("BRINELL_SHARED", ROOT.parent / "shared" / "data")).resolve()

# oneDNN makes a kernel for every new batch size and keeps 1024. Where samples leave, that is too
# few, and whichever of two works came first would pay for both. With all of them kept, the run that
# counts passes makes them before anything is timed.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "65536")
# Freed memory is kept, as by the command line: for us and for the peers, which share the process.
heap.keep_freed_memory()


class FullModel(nn.Module):
    """A model as one module, so that a hook on it sees every call (ART takes an nn.Sequential
    apart).
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the model."""
        logits: Tensor = self.net(x)
        return logits


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model of the shared data with the test images it belongs to."""

    name: str
    factory: str
    weights: str
    data: str
    shape: tuple[int, ...]
    eps: float
    """A budget at which some samples fall and some hold."""
    eps_text: str

    @property
    def model_spec(self) -> str:
        """The model as the command line takes it."""
        return (
            f"torch:{ROOT / 'examples' / 'models' / self.factory}?weights={SHARED / self.weights}"
        )

    @property
    def data_spec(self) -> str:
        """The data as the command line takes it."""
        return f"npz:{SHARED / self.data}"

    @property
    def domain(self) -> Domain:
        """8-bit images in [0, 1]."""
        return Domain(kind="image", shape=self.shape, levels=256)

    def module(self) -> nn.Module:
        """The model with its weights, in eval mode; its parameters ask for no gradients, for us and
        for the peers alike.
        """
        from safetensors.torch import load_file

        module = self.empty()
        module.load_state_dict(
            {name: value.float() for name, value in load_file(SHARED / self.weights).items()}
        )
        return FullModel(module).eval().requires_grad_(False)

    def empty(self) -> nn.Module:
        """The architecture with weights that nothing has trained."""
        file, _, name = self.factory.partition(":")
        module: nn.Module = getattr(import_example(f"models/{file}"), name)()
        return module

    def first(self, n: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """The first `n` test images from `start` on with their labels, right or wrong."""
        return images(self.data, slice(start, start + n))

    def samples(
        self, n: int, module: nn.Module, skip: int = 0, start: int = 0
    ) -> tuple[Tensor, Tensor]:
        """`n` test images from `start` on that the model gets right, after the first `skip` of
        them, with their labels.
        """
        x, y = self.first(2 * (skip + n) + 100, start)
        mask = is_right(module, x, y)
        if int(mask.sum()) < skip + n:
            raise SystemExit(f"{self.name} gets fewer than {skip + n} of {len(x)} images right")
        return x[mask][skip : skip + n], y[mask][skip : skip + n]


class Photographs(Subject):
    """An ImageNet network with the photographs of the shared data."""

    def samples(
        self, n: int, module: nn.Module, skip: int = 0, start: int = 0
    ) -> tuple[Tensor, Tensor]:
        """`n` photographs from `start` on that the network gets right, after the first `skip` of
        them.
        """
        from brinell.datasets.image_folder import ImageFolder

        photographs = ImageFolder(path=str(SHARED / self.data), size=self.shape[-1])()
        labels = torch.as_tensor(photographs.labels()).long()
        numbers = (
            k
            for k in range(start, len(labels))
            if is_right(module, photographs.load([k]), labels[k : k + 1])
        )
        rows = list(itertools.islice(numbers, skip, skip + n))
        return photographs.load(rows), labels[rows]


def import_example(file: str) -> Any:
    """A Python file of the examples as a module."""
    from brinell.core.user_files import import_file

    return import_file(ROOT / "examples" / file)


def images(file: str, part: slice = slice(None)) -> tuple[Tensor, Tensor]:
    """Images in [0, 1], channels first, and labels of a file of the shared data."""
    if not (SHARED / file).is_file():
        raise SystemExit(
            f"no {file} in {SHARED}: set BRINELL_SHARED to the folder of the shared data"
        )
    with np.load(SHARED / file) as arrays:
        pixels, labels = arrays["images"][part], arrays["labels"][part]
    x = (
        torch.from_numpy(pixels)
        .reshape(len(pixels), *pixels.shape[1:3], -1)
        .movedim(-1, 1)
        .float()
        .div(255)
        .contiguous()
    )
    return x, torch.from_numpy(labels.astype(np.int64))


@torch.no_grad()
def is_right(module: nn.Module, x: Tensor, y: Tensor, batch_size: int = 256) -> Tensor:
    """(n,) bool: classified correctly."""
    return torch.cat([module(part) for part in x.split(batch_size)]).argmax(1) == y


SUBJECTS = ("resnet20", "resnet4b", "cnn4_pgd")
"""Default subjects of the benchmarks."""
NETWORKS = {
    "resnet20": ("cifar10.py:resnet20", "cifar10_weights/resnet20", "0.5/255"),
    "resnet32": ("cifar10.py:resnet32", "cifar10_weights/resnet32", "0.5/255"),
    "resnet44": ("cifar10.py:resnet44", "cifar10_weights/resnet44", "0.5/255"),
    "captum_cnn": ("cifar10.py:captum_cnn", "cifar10_weights/captum_cnn_plain", "1/255"),
    "resnet4b": ("cifar10.py:resnet4b", "cifar10_robust_weights/resnet4b", "8/255"),
    "resnet2b": ("cifar10.py:resnet2b", "cifar10_robust_weights/resnet2b", "8/255"),
    "cnn_wide_kw": ("cifar10.py:cnn_wide_kw", "cifar10_robust_weights/cnn_wide_kw", "8/255"),
    "cnn4_pgd": ("mnist.py:cnn4", "mnist_weights/cnn4_pgd", "0.3"),
    "lenet5_advtrained": ("mnist.py:lenet5", "mnist_weights/lenet5_advtrained", "0.3"),
    "lenet5_clean": ("mnist.py:lenet5", "mnist_weights/lenet5_clean", "0.1"),
}
"""By name: factory, weights, and the budget in Linf at which some samples fall and some hold."""
IMAGENET = ("mcunet_144", "squeezenet1_0", "mobilenet_v1", "mobilenet_v2")


def parse_eps(text: str) -> float:
    """A budget as it is written on the command line: a number or a fraction."""
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def subject(name: str) -> Subject:
    """A network of the shared data by its short name."""
    if name in IMAGENET:
        return Photographs(
            name=f"ImageNet {name}",
            factory=f"imagenet.py:{name}",
            weights=f"imagenet_weights/{name}.safetensors",
            data="imagenet_samples",
            shape=(3, 224, 224),
            eps=1.0,
            eps_text="1",
        )
    factory, weights, eps = NETWORKS[name]
    mnist = factory.startswith("mnist")
    return Subject(
        name=f"{'MNIST' if mnist else 'CIFAR-10'} {name}",
        factory=factory,
        weights=f"{weights}.safetensors",
        data="mnist/mnist_test.npz" if mnist else "cifar10/cifar10_test.npz",
        shape=(1, 28, 28) if mnist else (3, 32, 32),
        eps=parse_eps(eps),
        eps_text=eps,
    )


# --- attacks behind a ledger
# -----------------------------------------------------------------------------------------


def open_ledger(
    model: Model, x: Tensor, y: Tensor, norm: str, eps: float | Tensor, **settings: Any
) -> Ledger:
    """A ledger over samples, each with a budget; settings as `Ledger` takes them."""
    budgets = eps if isinstance(eps, Tensor) else torch.full((len(x),), eps)
    threat = Threat(distance=plugins.build("distance", norm, {}), eps=budgets, domain=model.domain)
    return Ledger(model, Batch(ids=torch.arange(len(x)), x=x, y=y), threat, **settings)


def build_attack(spec: str) -> Any:
    """An attack as the command line names it."""
    name, path, settings = plugins.parse(spec)
    return plugins.build("attack", name, settings | ({"path": path} if path else {}))


def run_attack(attack: Any, ledger: Ledger, rng: Streams) -> Ledger:
    """The ledger after an attack."""
    attack(ledger.oracle(), ledger.batch, ledger.threat, rng)
    return ledger


def art_classifier(module: nn.Module, x: Tensor) -> Any:
    """A module as a classifier of ten classes of the Adversarial Robustness Toolbox."""
    import multiprocessing

    # It imports multiprocess, a fork of the standard library's module, and uses it in parallel runs
    # only.
    sys.modules.setdefault("multiprocess", multiprocessing)
    from art.estimators.classification import PyTorchClassifier

    shape = tuple(x.shape[1:])
    return PyTorchClassifier(
        module,
        nn.CrossEntropyLoss(),
        shape,
        nb_classes=10,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )


def is_broken(rows: Any) -> np.ndarray[Any, Any]:
    """(rows,) bool: rows of samples that are wrong untouched, or that their stage broke."""
    return np.asarray(has_broken(rows) | (rows.outcome == Outcome.MISCLASSIFIED))


# --- passes
# ------------------------------------------------------------------------------------------


@dataclass
class Passes:
    """Passes of a model: the size of each batch, and the number of gradients taken of its output."""

    batches: list[list[int]] = field(default_factory=list)
    """[inputs, gradients] of each call."""

    @property
    def forwards(self) -> int:
        """Inputs shown to the model."""
        return sum(size for size, _ in self.batches)

    @property
    def backwards(self) -> int:
        """Gradients of single inputs."""
        return sum(size * backwards for size, backwards in self.batches)


@contextmanager
def counting(module: nn.Module) -> Iterator[Passes]:
    """Record every batch that goes through `module` while the block runs."""
    passes = Passes()

    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        batch = [len(inputs[0]), 0]
        passes.batches.append(batch)
        if output.requires_grad:
            output.register_hook(lambda grad: batch.__setitem__(1, batch[1] + 1))

    handle = module.register_forward_hook(note)
    try:
        yield passes
    finally:
        handle.remove()


def replay(module: nn.Module, passes: Passes, x: Tensor, y: Tensor) -> None:
    """The same batches through the same module with nothing around them: forward, and as many input
    gradients as were taken.
    """
    for size, backwards in passes.batches:
        if backwards:
            leaf = x[:size].detach().requires_grad_()
            loss = nn.functional.cross_entropy(module(leaf), y[:size], reduction="sum")
            for remaining in reversed(range(backwards)):
                torch.autograd.grad(loss, leaf, retain_graph=remaining > 0)
        else:
            with torch.no_grad():
                module(x[:size])


# --- timing
# ------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median with the smallest and the largest value."""
    return (
        f"{statistics.median(values):.{digits}f} "
        f"({min(values):.{digits}f}-{max(values):.{digits}f})"
    )


def mean_spread(values: Sequence[float], digits: int) -> str:
    """Mean with the smallest and the largest value, where they differ."""
    mean, least, most = statistics.fmean(values), min(values), max(values)
    return f"{mean:.{digits}f}" + (
        f" ({least:.{digits}f}-{most:.{digits}f})" if least < most else ""
    )


def ratio(above: Tensor, below: Tensor) -> str:
    """Ratio of means over the same samples, with its 95 % interval."""
    return ratios.ratio_text(*ratios.ratio(above.numpy(), below.numpy()))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and processor seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def run_child(line: list[str], **environment: str) -> tuple[float, float, str]:
    """Wall seconds, peak memory in MiB and output of a process that must end well."""
    with tempfile.TemporaryFile("w+") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | environment,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds, process.returncode = time.perf_counter() - begin, os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{shlex.join(line)} ended with {process.returncode}:\n{text}")
    return seconds, usage.ru_maxrss / 1024, text


# --- what is printed
# ------------------------------------------------------------------------------------------


def machine() -> str:
    """Processor, threads and versions. No names of hosts."""
    cpu = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return (
        f"{cpu}, {os.cpu_count()} cores, {torch.get_num_threads()} torch "
        f"thread{'s'[: torch.get_num_threads() > 1]}; "
        f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}"
    )


class Table:
    """A Markdown table that is printed line by line as results come in, with the command that makes
    it again.
    """

    def __init__(self, title: str, columns: str | Sequence[str], note: str = "") -> None:
        print(f"\n## {title}\n\n`{command()}` on {machine()}\n")
        if note:
            print(note + "\n")
        names = (
            [name.strip() for name in columns.split(",")] if isinstance(columns, str) else columns
        )
        print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names), flush=True)

    def add(self, *cells: object) -> None:
        """One line."""
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def command() -> str:
    """How this run is repeated; folders of other people's sources are called CHECKOUT."""
    words = [
        "CHECKOUT" if word.startswith("/") and Path(word).is_dir() else word
        for word in sys.argv[1:]
    ]
    spec, script = sys.modules["__main__"].__spec__, Path(sys.argv[0])
    if spec is not None and spec.name.startswith("benchmarks."):
        return shlex.join(["python", "-m", spec.name.removesuffix(".__main__"), *words])
    return shlex.join(["python", f"benchmarks/{script.name}", *words])


def arguments(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """The command line of a benchmark: an option for each default.

    A list takes several values, a tuple one of its own (the first by default), False is a switch,
    and a type has no default.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {"threads": 1, **defaults}.items():
        settings: dict[str, Any] = {"default": default, "type": type(default)}
        if isinstance(default, list):
            settings |= {"nargs": "+", "type": type(default[0]) if default else str}
        elif isinstance(default, tuple):
            settings = {"default": default[0], "choices": default}
        elif isinstance(default, type):
            settings = {"type": default}
        elif default is False:
            settings = {"action": "store_true"}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return options


def brinell(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command line tool of this very environment, started in a process group of its own."""
    settings: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    line = [sys.executable, "-m", "brinell", *arguments]
    return subprocess.Popen(line, start_new_session=True, env=os.environ | environment, **settings)
