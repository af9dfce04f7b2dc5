"""What an audit takes beside its attacks: the processor's time until its first pass, the files that
it writes, the frames between a caller and the network, the code that a small one executes, and the
peak memory of a large one.

    python benchmarks/footprint.py [--part start files frames code memory] [--subjects resnet4b]
        [--samples 1000] [--repetitions 3]

`start` is the processor's time of `brinell audit` until its network, a file of the user, sees the
first input, and until its end.
`frames` are functions of Brinell on the stack while an attack asks the network, those before the
attack's own code apart. `code` counts functions of Brinell that are called, the modules that hold
them, and all modules that are imported, from the call to the result. `memory` is the peak of the default
audit at nine budgets, above that of a process that imports torch.
"""

import json
import resource
import sys
import tempfile
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

import measure
import torch
from torch import Tensor, nn

import brinell

GROUP = "passes"
RUNS = {"": "--part start files frames code --repetitions 1"}
PARTS = ("start", "files", "frames", "code", "memory")
OURS = f"{Path(brinell.__file__).parent}/"
IS_FUNCTION = 1
"""The flag of a code object that is the body of a function, and not of a class or a module."""


NETWORK = """
import time
from pathlib import Path

import torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        place = Path(__file__).with_suffix(".txt")
        if not place.exists():
            place.write_text(str(time.process_time()))
        return self.layer(x.flatten(1))
"""
"""A file with a network that notes the processor's time of its first input beside the file."""


class Watched(nn.Module):
    """A network of digits that says from where it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.stacks: set[tuple[str, ...]] = set()
        """The files of Brinell on the stack of each question, the caller's first."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, 10) logits."""
        frame: Any = sys._getframe()
        files = []
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        ours = [file.removeprefix(OURS) for file in reversed(files) if file.startswith(OURS)]
        self.stacks.add(tuple(ours))
        logits: Tensor = self.layer(x.flatten(1))
        return logits


def audit(model: Any, out: Path, samples: int) -> None:
    """An audit of digits with one stage."""
    brinell.audit(model, "digits", samples=samples, eps=0.3, attack="apgd-ce", out=out)


def count_code() -> dict[str, Any]:
    """Functions that an audit of one sample calls, and modules."""
    modules: set[str] = set()
    functions: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(OURS):
            return
        if code.co_name == "<module>":
            modules.add(code.co_filename)
        elif code.co_flags & IS_FUNCTION and not code.co_name.startswith("<"):
            functions.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    threading.setprofile(note)
    with tempfile.TemporaryDirectory(prefix="brinell-footprint-") as folder:
        audit("digits-cnn", Path(folder) / "run", 1)
    sys.setprofile(None)
    return {
        "modules with a called function": len({file for file, _ in functions}),
        "functions called": len(functions),
        "modules imported": len(modules),
    }


def report(part: str) -> dict[str, Any]:
    """The figures of a part, measured in this process."""
    if part == "code":
        return count_code()
    if part == "start":
        return time_start()

    model = Watched().eval()
    with tempfile.TemporaryDirectory(prefix="brinell-footprint-") as folder:
        out = Path(folder) / "run"
        if part == "files":
            audit("digits-cnn", out, 1)
            files = [path for path in out.rglob("[!.]*") if path.is_file()]
            return {"files of one sample and one stage": len(files)}
        audit(model, out, 40)
    attacking = [stack for stack in model.stacks if any(f.startswith("attacks/") for f in stack)]
    longest = max(attacking, key=len)
    before = next(place for place, f in enumerate(longest) if f.startswith("attacks/"))
    return {"frames to the network": len(longest), "frames before the attack": before}


def time_start() -> dict[str, Any]:
    """The processor's time of an audit by the command line."""
    with tempfile.TemporaryDirectory(prefix="brinell-footprint-") as folder:
        network = Path(folder) / "network.py"
        network.write_text(NETWORK, encoding="utf-8")
        line = ["-m", "brinell", "audit", "--data", "digits", "--model", f"{network}:Network"]
        line += ["--samples", "1", "--eps", "0.3", "--attack", "apgd-ce", "--out", f"{folder}/run"]
        measure.run_child([sys.executable, *line], OMP_NUM_THREADS="1")
        first = float(network.with_suffix(".txt").read_text(encoding="utf-8"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "processor s to the first pass": round(first, 2),
        "processor s of the whole audit": round(used.ru_utime + used.ru_stime, 2),
    }


def peak_memory(options: Namespace) -> dict[str, str]:
    """Peak of the default audit at nine budgets above that of torch, in GB."""
    _, torch_alone, _ = measure.run_child([sys.executable, "-c", "import torch"])
    figures = {}
    for name in options.subjects:
        subject = measure.subject(name)
        with tempfile.TemporaryDirectory(prefix="brinell-footprint-") as out:
            line = ["-m", "brinell", "audit", "--data", subject.data_spec]
            line += ["--model", subject.model_spec, "--eps", "0:8/255:9"]
            line += ["--samples", f"first:{options.samples}", "--out", f"{out}/run"]
            seconds, peak, _ = measure.run_child([sys.executable, *line], OMP_NUM_THREADS="1")
        gigabytes = (peak - torch_alone) * 2**20 / 1e9
        label = f"peak GB above torch, fast on {options.samples} of {subject.name}"
        figures[label] = f"{gigabytes:.2f} ({peak:.0f} MiB in all, {seconds:.0f} s)"
    return figures


def main() -> None:
    """Each part in a process of its own."""
    options = measure.arguments(
        __doc__,
        part=list(PARTS),
        subjects=["resnet4b"],
        samples=1000,
        repetitions=3,
        only="",
    )
    if options.only:
        torch.set_num_threads(1)
        print(json.dumps(report(options.only)))
        return

    table = measure.Table("What an audit takes beside its attacks", "what, measured")
    for part in options.part:
        if part == "memory":
            for name, text in peak_memory(options).items():
                table.add(name, text)
            continue
        line = [sys.executable, __file__, "--only", part]
        repetitions = options.repetitions if part == "start" else 1
        answers = [measure.run_child(line, OMP_NUM_THREADS="1")[2] for _ in range(repetitions)]
        measured = [json.loads(answer.splitlines()[-1]) for answer in answers]
        for name in measured[0]:
            values = [figures[name] for figures in measured]
            table.add(name, values[0] if len(values) == 1 else measure.spread(values, 2))


if __name__ == "__main__":
    main()
