"""What a verification costs beside its run, and how many rows come out differently on other
processors.

    python benchmarks/verify.py --samples 200 --attack fast standard

Each run is made once with one thread and verified in fresh processes: without a replay, with 5 % of
its attacked samples, and then on other machines, which are played by this one with another number
of threads and with older instructions of the processor. The verifier must not know that it is the
same machine: the manifest of a copy states another version of numpy.
"""

import json
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

import measure

from brinell.store.run import LAYOUT

GROUP = "checks"
RUNS = {"": "--subjects resnet2b --samples 10 --attack fgsm"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
MACHINES = {
    "two threads": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "no vector instructions": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}


def run_command(*words: str, **environment: str) -> tuple[float, str]:
    """Processor seconds and standard output of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = measure.brinell(*words, **ONE_THREAD | environment)
    output, _ = process.communicate()
    if process.returncode not in (0, 1, 4):
        raise SystemExit(output)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before.ru_utime, output


def verify(folder: Path, replay: int, **environment: str) -> tuple[float, dict[str, Any]]:
    """Processor seconds and answer of a verification that replays so many samples."""
    words = ("--trust", str(folder), "verify", str(folder), "--json", "--replay", str(replay))
    seconds, output = run_command(*words, **environment)
    return seconds, json.loads(output[output.index("{") :])


def main() -> None:
    """Make the runs and print a table."""
    options = measure.arguments(
        __doc__,
        subjects=["resnet2b", "resnet20", "resnet44"],
        attack=["fast"],
        samples=200,
        share=0.05,
    )
    columns = (
        "model | attack | run, s | replay of 5 %, s | share | rows that differ on another machine"
    ).split(" | ")
    table = measure.Table("Verification beside its run", columns)
    with tempfile.TemporaryDirectory() as work:
        for subject in map(measure.subject, options.subjects):
            eps = subject.eps_text if subject.eps > 1 / 255 else "1/255"
            for attack in options.attack:
                folder = Path(work) / f"{subject.name}-{attack}"
                words = [
                    "--model",
                    subject.model_spec,
                    "--data",
                    subject.data_spec,
                    "--eps",
                    eps,
                    "--attack",
                    attack,
                ]
                run, _ = run_command(
                    "audit", *words, "--samples", str(options.samples), "--out", str(folder)
                )
                least, _ = verify(folder, 0)
                count = max(1, round(options.share * options.samples))
                cost, answer = verify(folder, count)
                assert answer["status"] == "proved", answer
                copy = Path(shutil.copytree(folder, f"{folder}-copy"))
                manifest = LAYOUT.read(copy)
                manifest["versions"]["numpy"] = "1.0.0"
                LAYOUT.save(copy, manifest)
                run_command("report", str(copy))
                differences = []
                for label, environment in MACHINES.items():
                    _, elsewhere = verify(copy, 4 * count, **environment)
                    differences.append(
                        f"{label}: {elsewhere['deviations']} of "
                        f"{elsewhere['replayed']}, {elsewhere['status']}"
                    )
                seconds = (f"{run:.1f}", f"{cost - least:.1f}", f"{(cost - least) / run:.0%}")
                table.add(subject.name, attack, *seconds, "; ".join(differences))


if __name__ == "__main__":
    main()
