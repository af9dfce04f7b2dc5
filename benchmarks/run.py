"""All benchmarks, one after another, by group; each can be run by itself, with fewer models or repetitions: see its --help.

    python benchmarks/run.py [--only passes sweeps ...] [--reference CHECKOUT] [--out FILE]

    passes     what our loops cost over bare passes, and beside other libraries; memory; precision; layout
    sweeps     nine budgets beside nine runs; runs that were killed
    reference  our cascades beside the reference AutoAttack and other ensembles; needs --reference
    agents     RLAB, its peers and its agents
    kinds      ONNX, photographs, heartbeats, clips, a model behind a server
    epsilon    distances between all samples; a learned distance

All of them take hours on two cores. docs/ holds gathered figures, each with its own command; --out keeps those of this run.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import measure

GROUPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "passes": (("overhead",), ("layout",), ("batches",), ("memory",), ("precision",)),
    "sweeps": (("sweep",), ("sweep", "--attack", "fast"), ("kill",)),
    "reference": (("autoattack", "--reference", "{reference}"), ("ensembles", "--reference", "{reference}"), ("masked",)),
    "agents": (
        ("black_box", "--attacks", "rlab?patch=2", "square"),
        *(
            ("rlab", "--study", study)
            for study in ("patch", "dual", "agents", "filters", "map", "probes", "fill", "free", "equal", "reach")
        ),
        ("agents",),
    ),
    "kinds": (
        ("onnx_target",),
        ("imagenet",),
        *(("ecg", "--study", study) for study in ("network", "free", "curves")),
        *(("video", "--study", study) for study in ("free", "equal")),
        ("http_server",),
    ),
    "epsilon": (("distances",), ("metric",)),
}
"""Group to the benchmarks in it, each with its arguments."""
CLIPS = (
    ("examples/train_video.py", "{shared}/video/asl_gesture_clips.npz", "--out", "runs/gestures"),
    ("examples/train_video.py", "{shared}/video/davis_clips.npz", "--out", "runs/davis", "--hold-out", "1", "--mirror"),
)
"""What makes the networks that `video` attacks."""


def run(script: str, more: Sequence[str]) -> tuple[int, str]:
    """One script in a process of its own, its output shown as it comes."""
    line = [sys.executable, "-u", "-W", "ignore", str(measure.ROOT / script), *more]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=measure.ROOT)
    assert process.stdout is not None
    lines = []
    for text in process.stdout:
        print(text, end="", flush=True)
        lines.append(text)
    return process.wait(), "".join(lines)


def main() -> int:
    """Run them all; a failing one is reported and the others still run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="groups; the others are left out")
    parser.add_argument("--reference", default="", help="working tree of the reference AutoAttack")
    parser.add_argument("--out", type=Path, help="write the tables there, too")
    options = parser.parse_args()
    parts, failed = [], []
    for group in options.only:
        for name, *more in prepared(group, options.reference):
            code, output = run(name, more)
            parts.append(output)
            if code:
                failed.append(name)
                print(f"\n{name} {' '.join(more)} ended with {code}.", flush=True)
            if options.out:
                options.out.write_text("".join(parts), encoding="utf-8")
    return int(bool(failed))


def prepared(group: str, reference: str) -> list[list[str]]:
    """The scripts of a group with their arguments; a group that lacks what it needs is told and left out."""
    if group == "reference" and not reference:
        print("\nLeft out: reference, for want of --reference CHECKOUT.", flush=True)
        return []
    lines = [[f"benchmarks/{name}.py", *more] for name, *more in GROUPS[group]]
    if group == "kinds" and not (measure.ROOT / "runs" / "davis").exists():
        lines = [*map(list, CLIPS), *lines]
    return [[word.format(reference=reference, shared=measure.SHARED) for word in line] for line in lines]


if __name__ == "__main__":
    sys.exit(main())
