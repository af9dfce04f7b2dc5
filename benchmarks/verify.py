"""What a verification costs beside its run, and how many rows come out differently on other processors.

    python benchmarks/verify.py --samples 200 --attack fast standard

Each run is made once with one thread and verified in fresh processes: without a replay, with 5 % of its attacked samples, and
then on other machines, which are played by this one with another number of threads and with older instructions of the processor.
The verifier must not know that it is the same machine: the manifest of a copy states another version of numpy.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from brinell.store.run import LAYOUT

SHARED = Path(os.environ.get("BRINELL_SHARED", Path(__file__).parents[2] / "shared" / "data"))
MODELS = {
    "resnet2b": ("8/255", "cifar10_robust_weights"),
    "resnet20": ("1/255", "cifar10_weights"),
    "resnet44": ("1/255", "cifar10_weights"),
}
OTHERS = {
    "two threads": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "no vector instructions": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}


def run_command(words: list[str], **environment: str) -> tuple[float, str]:
    """Processor seconds and standard output of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "brinell", *words], env={**os.environ, **threads, **environment}, capture_output=True, text=True
    )
    if done.returncode not in (0, 1, 4):
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, done.stdout


def verify(folder: Path, *words: str, **environment: str) -> tuple[float, dict[str, object]]:
    """Processor seconds and answer of a verification."""
    seconds, text = run_command(["verify", str(folder), "--trust", str(folder), "--json", *words], **environment)
    return seconds, json.loads(text)


def main() -> None:
    """Make the runs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--attack", nargs="+", default=["fast"])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.05)
    arguments = parser.parse_args()
    file = Path(__file__).parents[1] / "examples" / "models" / "cifar10.py"
    print(
        "| model | attack | run, s | replay of 5 %, s | share | rows that differ on another machine |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as work:
        for name in arguments.models:
            eps, weights = MODELS[name]
            for attack in arguments.attack:
                folder = Path(work) / f"{name}-{attack}"
                spec = f"torch:{file}:{name}?weights={SHARED / weights / f'{name}.safetensors'}"
                data = f"npz:{SHARED / 'cifar10' / 'cifar10_test.npz'}"
                words = ["--model", spec, "--data", data, "--eps", eps, "--samples", str(arguments.samples), "--attack", attack]
                run, _ = run_command(["audit", *words, "--out", str(folder)])
                least, answer = verify(folder, "--replay", "0")
                count = max(1, round(arguments.share * int(str(answer["successes"])) / 0.6))
                cost, answer = verify(folder, "--replay", str(count))
                assert answer["status"] == "proved", answer
                copy = Path(shutil.copytree(folder, f"{folder}-copy"))
                manifest = LAYOUT.read(copy)
                manifest["versions"]["numpy"] = "1.0.0"
                LAYOUT.save(copy, manifest)
                run_command(["report", str(copy)])
                differences = []
                for other, environment in OTHERS.items():
                    _, elsewhere = verify(copy, "--replay", str(4 * count), **environment)
                    differences.append(f"{other}: {elsewhere['deviations']} of {elsewhere['replayed']}, {elsewhere['status']}")
                print(
                    f"| {name} | {attack} | {run:.1f} | {cost - least:.1f} | {(cost - least) / run:.0%} | "
                    + "; ".join(differences)
                    + " |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
