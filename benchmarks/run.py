"""All benchmarks, one after another, by group; each can be run by itself, with fewer models or repetitions: see its --help.

    python benchmarks/run.py [--only passes sweeps ...] [--reference CHECKOUT] [--adversarial-library CHECKOUT]
                             [--out FILE] [--quick]

    passes     overhead over bare passes, and comparison with other libraries; memory; precision; layout
    sweeps     nine budgets compared with nine runs; runs that were killed
    reference  our cascades, the reference AutoAttack and other ensembles, and on broken defences; needs --reference
    agents     RLAB, its peers and its agents
    hardening  what a minute of training buys; the recipes at equal cost
    kinds      ONNX, photographs, heartbeats, clips, a model behind a server
    epsilon    distances between all samples; a learned distance

All of them take hours on two cores; --quick only shows that each of them runs, in a quarter of an hour. docs/ holds gathered
figures, each with its own command; --out keeps those of this run.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import measure

REFERENCE = "--reference {reference}"
GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "passes": (
        ("overhead", "--subjects cnn4_pgd --norms linf --steps 5 --repetitions 1 --n-hold 32 --n-fall 32"),
        ("layout", "--repetitions 3"),
        ("batches", "--subjects cnn4_pgd --samples 20 --points 2"),
        ("memory", "--subjects cnn4_pgd --samples 200 400 --repetitions 1 --default-threads 1"),
        ("minimal {library}", "--subjects cnn4_pgd --samples 2 --steps 4 --searches 2 --seeds 0"),
        ("precision", "--subjects cnn4_pgd --samples 40 --repetitions 1"),
        ("idle", "--subjects digits-cnn:linf:0.1 --samples 10"),
    ),
    "sweeps": (
        ("sweep", "--subjects cnn4_pgd --samples 20 --points 3 --repetitions 1"),
        ("sweep --attack fast", "--subjects cnn4_pgd --samples 10 --points 3 --repetitions 1"),
        ("kill", "--samples 60 --trials 2"),
        ("kill_shards", "--samples 60 --kills 2 --trials 2"),
        ("kill_shards --store s3 --failing 20", "--samples 60 --kills 2 --trials 2"),
        ("shards", "--samples 200 --repetitions 1"),
    ),
    "reference": (
        (f"autoattack {REFERENCE}", "--subjects cnn4_pgd --samples 10"),
        (f"ensembles {REFERENCE}", "--subjects cnn4_pgd --samples 4"),
        ("defences", "--samples 6 --names none one-channel-numpy"),
    ),
    "agents": (
        ("black_box --attacks rlab?patch=2 square", "--samples 6 --seeds 0 --budgets 100"),
        ("rlab --study patch", "--samples 2 --seeds 0"),
        ("rlab --study dual", "--samples 2 --seeds 0"),
        ("rlab --study agents", "--samples 2 --seeds 0 --minutes 0.05 --inputs 64"),
        ("rlab --study distortions", "--samples 2 --seeds 0 --minutes 0.05 --inputs 64"),
        ("rlab --study map", "--samples 2 --seeds 0 --minutes 0.05 --inputs 64"),
        ("rlab --study probes", "--samples 4 --seeds 0 --published 1"),
        ("rlab --study fill", "--samples 10 --seeds 0"),
        ("rlab --study free", "--samples 2 --seeds 0"),
        ("rlab --study equal", "--samples 2 --seeds 0"),
        ("rlab --study spend", "--samples 2 --seeds 0 --minutes 0.05 --inputs 64"),
        ("rlab --study reach", "--samples 1 --seeds 0"),
        ("rlab --study peers", "--seeds 2 --only PPO --tasks CartPole-v1"),
    ),
    "kinds": (
        ("onnx_model", "--n 8 --repetitions 1"),
        ("imagenet", "--networks squeezenet1_0 --patches 32 --photographs 2 --queries 20"),
        ("corruptions --cifar {shared}/cifar10/cifar10_test.npz", "--images 5"),
        ("transfer --repetitions 3", "--samples 8 --repetitions 1"),
        ("explain", "--network mcunet_144 --images 2 --methods rlab?questions=32 grad-cam centre"),
        ("explain_quantus", "--samples 4 --methods gradient"),
        ("ecg --study network", ""),
        ("ecg --study free", "--samples 6"),
        ("ecg --study curves", "--samples 6"),
        ("video --study free", "--clips 2"),
        ("video --study equal", "--clips 2 --budget 40 --eps 40"),
        ("http_server", "--subjects digits --samples 40 --steps 10 --repetitions 1"),
    ),
    "hardening": (
        ("harden", "--case mnist-60 --samples 20 --attack fgsm"),
        ("harden --overhead", ""),
        ("recipes", "--subjects digits --recipes before n-fgsm rlab --seeds 0 --samples 20 --attack fgsm"),
    ),
    "epsilon": (
        ("distances", "--n 2000 --subset 500 --repetitions 1"),
        ("metric", "--models cnn4_pgd --samples 10 --reference 2000 --steps 5"),
    ),
}
"""Group to the benchmarks in it, each with its arguments, and with what makes it quick."""
CLIPS = (
    ("examples/train_video.py {shared}/video/asl_gesture_clips.npz --out runs/gestures", ""),
    ("examples/train_video.py {shared}/video/davis_clips.npz --out runs/davis --hold-out 1 --mirror", ""),
)
"""Commands that train the networks that `video` attacks."""


def run(script: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Runs one script, or a package by its folder, in a separate process, and prints its output line by line."""
    package = (measure.ROOT / script).with_suffix("").is_dir()
    place = ["-m", script.removesuffix(".py").replace("/", ".")] if package else [str(measure.ROOT / script)]
    line = [sys.executable, "-u", "-W", "ignore", *place, *arguments]
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
    parser.add_argument(
        "--quick", action="store_true", help="a few samples of one network each: whether they run, not what they say"
    )
    parser.add_argument("--reference", default="", help="working tree of the reference AutoAttack")
    parser.add_argument("--adversarial-library", default="", help="working tree of that peer, for the minimal attacks")
    parser.add_argument("--out", type=Path, help="write the tables there, too")
    options = parser.parse_args()
    parts, failed = [], []
    for group in options.only:
        for name, *arguments in prepared(group, options.reference, options.adversarial_library, quick=options.quick):
            began = time.perf_counter()
            code, output = run(name, arguments)
            parts.append(output)
            print(f"\n{name}: {time.perf_counter() - began:.0f} s", flush=True)
            if code:
                failed.append(" ".join([name, *arguments]))
            if options.out:
                options.out.write_text("".join(parts), encoding="utf-8")
    for line in failed:
        print(f"\nFailed: {line}", flush=True)
    return int(bool(failed))


def prepared(group: str, reference: str, library: str, *, quick: bool) -> list[list[str]]:
    """The scripts of a group with their arguments; prints and omits scripts with a missing requirement."""
    lines = [
        (f"benchmarks/{words.replace(words.split()[0], words.split()[0] + '.py', 1)}", small) for words, small in GROUPS[group]
    ]
    if not reference and any(REFERENCE in words for words, _ in lines):
        print("\nLeft out for want of --reference CHECKOUT: the comparisons with the reference AutoAttack.", flush=True)
        lines = [line for line in lines if REFERENCE not in line[0]]
    if group == "kinds" and not (measure.ROOT / "runs" / "davis").exists():
        lines = [*CLIPS, *lines]
    peer = f"--adversarial-library {library}" if library else ""
    filled = [f"{words} {small}" if quick else words for words, small in lines]
    return [line.format(reference=reference, library=peer, shared=measure.SHARED).split() for line in filled]


if __name__ == "__main__":
    sys.exit(main())
