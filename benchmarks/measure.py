"""Shared parts of the benchmarks: models and data, passes counted by hooks, paired timing, and tables."""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from brinell.cli import malloc as heap
from brinell.core.domain import Domain

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("BRINELL_SHARED", ROOT.parent / "shared" / "data")).resolve()

# oneDNN makes a kernel for every new batch size and keeps 1024. Where samples leave, that is too few, and whichever of two works
# came first would pay for both. With all of them kept, the run that counts passes makes them before anything is timed.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "65536")
# Freed memory is kept, as by the command line: for us and for the peers, which share the process.
heap.keep_freed_memory()


class FullModel(nn.Module):
    """A model as one module, so that a hook on it sees every call (ART takes an nn.Sequential apart)."""

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
        return f"torch:{ROOT / 'examples' / 'models' / self.factory}?weights={SHARED / self.weights}"

    @property
    def data_spec(self) -> str:
        """The data as the command line takes it."""
        return f"npz:{SHARED / self.data}"

    @property
    def domain(self) -> Domain:
        """8-bit images in [0, 1]."""
        return Domain(kind="image", shape=self.shape, levels=256)

    def module(self) -> nn.Module:
        """The model with its weights, in eval mode; its parameters ask for no gradients, for us and for the peers alike."""
        from safetensors.torch import load_file

        from brinell.core.user_files import import_file

        file, _, name = self.factory.partition(":")
        module: nn.Module = getattr(import_file(ROOT / "examples" / "models" / file), name)()
        module.load_state_dict(load_file(SHARED / self.weights))
        return FullModel(module).eval().requires_grad_(False)

    def samples(self, n: int, module: nn.Module) -> tuple[Tensor, Tensor]:
        """The first `n` test images that the model gets right, with their labels."""
        with np.load(SHARED / self.data) as arrays:
            images, labels = arrays["images"][: 2 * n + 100], arrays["labels"][: 2 * n + 100]
        x = torch.from_numpy(images).reshape(len(images), *images.shape[1:3], -1).movedim(-1, 1).float().div(255).contiguous()
        y = torch.from_numpy(labels.astype(np.int64))
        with torch.no_grad():
            right = torch.cat([module(part) for part in x.split(256)]).argmax(1) == y
        if int(right.sum()) < n:
            raise SystemExit(f"{self.name} gets fewer than {n} of {len(x)} images right")
        return x[right][:n], y[right][:n]


SUBJECTS = {
    "resnet20": Subject(
        name="CIFAR-10 resnet20",
        factory="cifar10.py:resnet20",
        weights="cifar10_weights/resnet20.safetensors",
        data="cifar10/cifar10_test.npz",
        shape=(3, 32, 32),
        eps=0.5 / 255,
        eps_text="0.5/255",
    ),
    "resnet4b": Subject(
        name="CIFAR-10 resnet4b",
        factory="cifar10.py:resnet4b",
        weights="cifar10_robust_weights/resnet4b.safetensors",
        data="cifar10/cifar10_test.npz",
        shape=(3, 32, 32),
        eps=8 / 255,
        eps_text="8/255",
    ),
    "cnn4_pgd": Subject(
        name="MNIST cnn4_pgd",
        factory="mnist.py:cnn4",
        weights="mnist_weights/cnn4_pgd.safetensors",
        data="mnist/mnist_test.npz",
        shape=(1, 28, 28),
        eps=0.3,
        eps_text="0.3",
    ),
}
"""Default subjects of the benchmarks."""

MORE_SUBJECTS = {
    "resnet32": ("CIFAR-10 resnet32", "cifar10.py:resnet32", "cifar10_weights/resnet32", 0.5 / 255, "0.5/255"),
    "resnet44": ("CIFAR-10 resnet44", "cifar10.py:resnet44", "cifar10_weights/resnet44", 0.5 / 255, "0.5/255"),
    "captum_cnn": ("CIFAR-10 captum_cnn", "cifar10.py:captum_cnn", "cifar10_weights/captum_cnn_plain", 1 / 255, "1/255"),
    "resnet2b": ("CIFAR-10 resnet2b", "cifar10.py:resnet2b", "cifar10_robust_weights/resnet2b", 8 / 255, "8/255"),
    "cnn_wide_kw": ("CIFAR-10 cnn_wide_kw", "cifar10.py:cnn_wide_kw", "cifar10_robust_weights/cnn_wide_kw", 8 / 255, "8/255"),
    "lenet5_advtrained": ("MNIST lenet5_advtrained", "mnist.py:lenet5", "mnist_weights/lenet5_advtrained", 0.3, "0.3"),
    "lenet5_clean": ("MNIST lenet5_clean", "mnist.py:lenet5", "mnist_weights/lenet5_clean", 0.1, "0.1"),
}


def subject(name: str) -> Subject:
    """A network of the shared data by its short name."""
    if name in SUBJECTS:
        return SUBJECTS[name]
    title, factory, weights, eps, text = MORE_SUBJECTS[name]
    mnist = factory.startswith("mnist")
    return Subject(
        name=title,
        factory=factory,
        weights=f"{weights}.safetensors",
        data="mnist/mnist_test.npz" if mnist else "cifar10/cifar10_test.npz",
        shape=(1, 28, 28) if mnist else (3, 32, 32),
        eps=eps,
        eps_text=text,
    )


# --- passes ----------------------------------------------------------------------------------------------------------


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
    """The same batches through the same module with nothing around them: forward, and as many input gradients as were taken."""
    for size, backwards in passes.batches:
        if backwards:
            leaf = x[:size].detach().requires_grad_()
            loss = nn.functional.cross_entropy(module(leaf), y[:size], reduction="sum")
            for remaining in reversed(range(backwards)):
                torch.autograd.grad(loss, leaf, retain_graph=remaining > 0)
        else:
            with torch.no_grad():
                module(x[:size])


# --- timing ----------------------------------------------------------------------------------------------------------


@dataclass
class Timing:
    """Seconds of one work on two clocks: the wall's, and the processor's for its own thread."""

    wall: float = 0.0
    cpu: float = 0.0


class Work(NamedTuple):
    """Something to time, and the module whose forward passes mark its steps."""

    module: nn.Module
    run: Callable[[], object]


def in_turns(works: dict[str, Work], threads: int) -> dict[str, Timing]:
    """Run all works together, one step of each in turn, and time each by itself.

    A step ends where the work's module is called again. Only one work runs at a time and only its clock runs with it, so a
    machine that is slow for a while is slow for all of them alike.
    """
    turns = _Turns(list(works))
    runners = [threading.Thread(target=turns.take_part, args=(name, work, threads)) for name, work in works.items()]
    for runner in runners:
        runner.start()
    turns.start()
    for runner in runners:
        runner.join()
    if turns.errors:
        raise turns.errors[0]
    return turns.timings


class _Turns:
    """State of turns: the work whose turn it is, and the seconds of each. Only the current work may change it."""

    def __init__(self, names: list[str]) -> None:
        self.timings = {name: Timing() for name in names}
        self.errors: list[BaseException] = []
        self._waiting = list(names)
        self._signals = {name: threading.Semaphore(0) for name in names}
        self._began = (0.0, 0.0)

    def start(self) -> None:
        self._signals[self._waiting[0]].release()

    def take_part(self, name: str, work: Work, threads: int) -> None:
        torch.set_num_threads(threads)
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            # All on one core: two cores of a shared machine need not be equally fast.
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        handle = work.module.register_forward_pre_hook(lambda *_: self._hand_on(name))
        self._wait(name)
        try:
            work.run()
        except BaseException as error:
            self.errors.append(error)
        self._stop(name)
        handle.remove()
        following = self._after(name)
        self._waiting.remove(name)
        if following != name:
            self._signals[following].release()

    def _hand_on(self, name: str) -> None:
        following = self._after(name)
        if following == name:
            return
        self._stop(name)
        self._signals[following].release()
        self._wait(name)

    def _after(self, name: str) -> str:
        return self._waiting[(self._waiting.index(name) + 1) % len(self._waiting)]

    def _wait(self, name: str) -> None:
        self._signals[name].acquire()
        self._began = (time.perf_counter(), time.thread_time())

    def _stop(self, name: str) -> None:
        self.timings[name].wall += time.perf_counter() - self._began[0]
        self.timings[name].cpu += time.thread_time() - self._began[1]


def repeated(works: dict[str, Work], repetitions: int, threads: int) -> dict[str, list[Timing]]:
    """All works in turns, `repetitions` times, each time another one first."""
    times: dict[str, list[Timing]] = {name: [] for name in works}
    for repetition in range(repetitions):
        names = list(works)
        first = repetition % len(names)
        timings = in_turns({name: works[name] for name in names[first:] + names[:first]}, threads)
        for name in names:
            times[name].append(timings[name])
    return times


def ratios(above: Sequence[Timing], below: Sequence[Timing], clock: str = "wall") -> list[float]:
    """The one over the other, repetition by repetition."""
    return [getattr(a, clock) / getattr(b, clock) for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median with the smallest and the largest value."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


# --- what is printed -------------------------------------------------------------------------------------------------


def machine() -> str:
    """Processor, threads and versions. No names of hosts."""
    cpu = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return (
        f"{cpu}, {os.cpu_count()} cores, {torch.get_num_threads()} torch thread{'s'[: torch.get_num_threads() > 1]}; "
        f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}"
    )


class Table:
    """A Markdown table that is printed line by line as results come in."""

    def __init__(self, title: str, command: str, columns: Sequence[str], note: str = "") -> None:
        print(f"\n## {title}\n\n`{command}` on {machine()}\n")
        if note:
            print(note + "\n")
        print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)

    def add(self, *cells: object) -> None:
        """One line."""
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def arguments(doc: str, **defaults: Any) -> argparse.Namespace:
    """The command line of a benchmark: one option for each default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="torch threads (one: a busy neighbour disturbs least)")
    for name, default in defaults.items():
        kind = {"nargs": "+"} if isinstance(default, list) else {"type": type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **kind)
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    return parsed


def command(options: argparse.Namespace, *names: str) -> str:
    """How this run is repeated."""
    words = [f"python benchmarks/{Path(sys.argv[0]).name}"]
    for name in ("threads", *names):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return " ".join(words)


def brinell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line tool of this very environment, its output captured."""
    tool = Path(sys.executable).with_name("brinell")
    return subprocess.run([str(tool), *arguments], capture_output=True, text=True, **options)
