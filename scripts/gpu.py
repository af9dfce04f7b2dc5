"""Every verb, equal outcomes, rates and one hardening on the device of this machine, in one table.

    make gpu                             the device that `--device auto` takes; on a GPU at most
                                         eight minutes
    make gpu ARGS="--out gpu.md"         keeps the table
    make gpu ARGS="--device cpu"         the small form, at most two minutes of one processor

It needs torch, NumPy and what else `pip install brinell` brings but Pillow, no network and no
installed Brinell: `src` of the checkout is used. The images of CIFAR-10 come from --data, the
folder with `cifar10_train_a.npz`, `cifar10_train_b.npz` and `cifar10_test.npz`; without them
enlarged digits take their place. The reference AutoAttack runs where `autoattack` can be imported.
"""

import argparse
import copy
import platform
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_parts import LARGE, PILLOW, SMALL, Table, digits, digits_network, seconds_of, weights_of
from gpu_speed import hardening, rates
from safetensors.torch import load_file

import brinell
from brinell.core.errors import BrinellWarning
from brinell.engine.plan import choose_device
from brinell.store.run import Run
from brinell.studies import register

# Every verb


def verbs(table: Table, folder: Path) -> None:
    """Each verb once, small, on the device."""
    x, y = digits()
    network, second_network = digits_network(x, y), digits_network(x, y, seed=1)
    data, device = (x[1000:1020], y[1000:1020]), str(table.device)
    generator, text = folder / "generator.safetensors", {"eps": "0.1", "attack": "fgsm"}
    grey = {"kind": "gaussian-noise", "severity": 2}
    calls: dict[str, Callable[[Path], object]] = {
        "audit": lambda out: brinell.audit(
            network, data, eps="0.05,0.1", attack="fast", out=out, device=device
        ),
        "audit detectors": lambda out: brinell.audit(
            network,
            data,
            detector="background",
            detector_data=(x[:500], y[:500]),
            **text,
            out=out,
            device=device,
        ),
        "benchmark": lambda out: brinell.benchmark(
            network, data, samples=3, steps=5, levels="1", out=out, device=device
        ),
        "certify": lambda out: brinell.certify(
            network, data, samples=5, method="crown", **text, out=out, device=device
        ),
        "compare": lambda out: brinell.compare(
            ["digits-cnn?width=4", "digits-cnn"], samples=20, **text, out=out, device=device
        ),
        "corrupt": lambda out: brinell.corrupt(network, data, **grey, out=out, device=device),
        "explain": lambda out: brinell.explain(
            network,
            data,
            samples=3,
            method=("gradient", "occlusion"),
            steps=4,
            out=out,
            device=device,
        ),
        "harden": lambda out: brinell.harden(
            network,
            data,
            train=(x[:500], y[:500]),
            epochs=1,
            samples=10,
            **text,
            out=out,
            device=device,
        ),
        "smoothing": lambda out: brinell.certify(
            network, data, method="smoothing?draws=50&first=10", samples=3, out=out, device=device
        ),
        "transfer": lambda out: brinell.transfer(
            model=[network, second_network], data=data, eps="0.1", out=out, device=device
        ),
        "train generator": lambda out: brinell.train_generator(
            out=generator, steps=5, device=device
        ),
        "unrestricted": lambda out: brinell.unrestricted(
            network,
            "digits",
            generator=str(generator),
            per_class=1,
            steps=3,
            out=out,
            device=device,
        ),
        "doctor": lambda out: brinell.doctor(data=(x[:40], y[:40]), model=network, device=device),
        "train agent": lambda out: brinell.train_agent(
            network,
            (x[1000:1060], y[1000:1060]),
            out=folder / "agent.safetensors",
            steps=10,
            attack="rlab?steps=8",
            eps="2",
            surrogates=1,
            samples=60,
            device=device,
        ),
    }
    of_pictures = {"audit pictures", "transfer pictures"}
    if PILLOW:
        pictures, model = write_pictures(folder / "pictures")
        settings = {"data": pictures, "eps": "0.1", "attack": "sea?steps=2", "device": device}
        models = [f"{model}?name=first", f"{model}?name=second"]
        calls["audit pictures"] = lambda out: brinell.audit(model, out=out, **settings)
        calls["transfer pictures"] = lambda out: brinell.transfer(model=models, out=out, **settings)
    on_device = [verb for verb, study in register.studies().items() if "device" in study.fields()]
    for verb in dict.fromkeys((*on_device, *calls)):
        if verb not in calls:
            note = (
                "it reads pictures, and Pillow is not installed"
                if verb in of_pictures
                else "this script has no call of it"
            )
            table.add("verb", verb, "left out", note)
            continue
        with table.part("verb", verb):
            seconds = seconds_of(
                lambda verb=verb: calls[verb](folder / f"verb-{verb}"), table.device
            )
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
        "import torch\n\nclass Threshold(torch.nn.Module):\n    def "
        "forward(self, x):\n        lead = x[:, :1] - 0.5\n"
        "        return torch.cat([-lead, lead], 1)\n\ndef network(name=''):\n   "
        " return Threshold()\n"
    )
    return f"masks:{folder}", f"torch:{folder}/model.py:network"


# Outcomes equal to the processor's


def outcomes(table: Table, folder: Path) -> None:
    """Outcomes on the device beside those on the processor."""
    x, y = digits()
    n, network = table.size.samples, digits_network(x, y)
    data, devices = (x[1000 : 1000 + n], y[1000 : 1000 + n]), (str(table.device), "cpu")
    remark = " (the device is the processor)" if table.device.type == "cpu" else ""

    def compare(name: str, rows: Callable[[str, Path], dict[Any, Any]], note: str = "") -> None:
        """A row: on how many samples the two differ."""
        with table.part("equal to the processor", name):
            first, second = (
                rows(device, folder / f"{name}-{number}") for number, device in enumerate(devices)
            )
            differing = {key[0] for key in first if first[key] != second[key]} | {
                key[0] for key in first.keys() ^ second.keys()
            }
            table.add(
                "equal to the processor",
                name,
                f"{len(differing)} of {n} samples differ",
                note + remark,
            )

    def audited(**settings: Any) -> Callable[[str, Path], dict[Any, Any]]:
        """The smallest budgets that break, by sample and attack."""

        def rows(device: str, out: Path) -> dict[Any, Any]:
            brinell.audit(network, data, out=out, device=device, **settings)
            records = Run.open(out).rows
            keys = zip(records.sample_id.tolist(), records.attack.tolist(), strict=True)
            return dict(zip(keys, records.broken.tolist(), strict=True))

        return rows

    def proven(device: str, out: Path) -> dict[Any, Any]:
        """Budgets of proofs, by sample."""
        settings = {"method": "crown", "eps": "0.005,0.01,0.02", "attack": "fgsm"}
        result = brinell.certify(network, data, **settings, out=out, device=device)
        return {(rate.eps,): rate.k for rate in result.certified}

    def hardened(device: str, out: Path) -> dict[Any, Any]:
        """Classes of the hardened network, by sample."""
        settings = {"eps": "0.1", "epochs": 1, "samples": 10, "attack": "fgsm", "recipe": "n-fgsm"}
        result = brinell.harden(
            network, data, train=(x[:900], y[:900]), out=out, device=device, **settings
        )
        module = copy.deepcopy(network)
        module.load_state_dict(load_file(weights_of(result, out)))
        return {
            (sample,): int(answer)
            for sample, answer in enumerate(module(torch.from_numpy(data[0])).argmax(1))
        }

    compare("fast", audited(attack="fast", eps="0.05,0.1"), "outcomes at two budgets")
    compare(
        "rlab",
        audited(attack="rlab", eps="1, 2", norm="l2", queries=table.size.queries),
        f"{table.size.queries} queries",
    )
    compare("certify", proven, "largest budget proven by crown")
    compare("harden", hardened, "classes after one epoch of n-fgsm")


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
        table.add(
            "device",
            "Pillow",
            "not installed",
            "the distortion jpeg changes nothing, and pages have plain pictures",
        )
    form = "small form" if table.is_small else "full form"
    table.add(
        "device",
        str(device),
        text,
        f"{form}, torch {torch.__version__}, Python {platform.python_version()}, {date.today()}",
    )


def peak(table: Table) -> None:
    """The most memory that was in use."""
    if table.device.type == "cuda":
        used = torch.cuda.max_memory_allocated(table.device) / 2**30
        table.add("memory", str(table.device), f"{used:.2f} GiB at most")
    unit = 1 if sys.platform == "darwin" else 1024
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    table.add(
        "memory",
        "process",
        f"{host:.2f} GiB at most",
        f"{time.process_time():.0f} s of the processor",
    )


def main() -> int:
    """Print the table; 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps or auto")
    parser.add_argument("--data", type=Path, help="the folder of the CIFAR-10 archives")
    parser.add_argument("--out", type=Path, help="a file for the table")
    parser.add_argument(
        "--seconds", type=float, help="time for all of it in place of eight minutes"
    )
    parser.add_argument("--small", action="store_true", help="the small form on a GPU, too")
    options = parser.parse_args()
    try:
        device = choose_device(options.device)
    except brinell.BrinellError as error:
        raise SystemExit(f"error: {error}") from None
    warnings.simplefilter("ignore", BrinellWarning)
    size = SMALL if options.small or device.type == "cpu" else LARGE
    table = Table(
        device, replace(size, seconds=options.seconds or size.seconds), is_small=size is SMALL
    )
    describe(table)
    with tempfile.TemporaryDirectory(prefix="brinell-gpu-") as name:
        folder = Path(name)
        for work in (
            lambda: verbs(table, folder),
            lambda: outcomes(table, folder),
            lambda: rates(table),
            lambda: hardening(table, folder, options.data),
        ):
            with table.part("script", "a section"):
                work()
    peak(table)
    print(table.text(), end="")
    if options.out is not None:
        options.out.write_text(table.text())
    return int(table.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
