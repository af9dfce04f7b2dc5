"""What brinell smooth costs over the bare passes of the network on batches of the same size, in processor time.

    python benchmarks/smooth.py [--subject cnn4_pgd] [--draws 10000] [--repetitions 5]

One image, one thread; both are timed in turn, so a busy machine slows both. The data and the weights are those in BRINELL_SHARED.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import measure
import torch

import brinell

BATCH = 1000


def main() -> None:
    """Print seconds of both, and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subject", default="cnn4_pgd")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subject = measure.subject(arguments.subject)
    net = subject.module()
    x, _ = subject.samples(1, net)
    ratios = []
    for _ in range(arguments.repetitions + 1):
        batch = x.expand(BATCH, *x.shape[1:]).contiguous()
        start = time.process_time()
        with torch.no_grad():
            for _ in range((arguments.draws + 100) // BATCH):
                net(batch)
            net(batch[:100])
        bare = time.process_time() - start
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            brinell.smooth(
                subject.model_spec,
                subject.data_spec,
                samples=1,
                draws=arguments.draws,
                batch_size=BATCH,
                out=Path(folder) / "run",
            )
            ours = time.process_time() - start
        ratios.append((bare, ours, ours / bare))
    bare, ours, ratio = (statistics.median(column) for column in zip(*ratios[1:], strict=True))
    lowest, highest = (end(r for *_, r in ratios[1:]) for end in (min, max))
    figures = f"bare {bare:.2f} s, smooth {ours:.2f} s, ratio {ratio:.2f} ({lowest:.2f} to {highest:.2f})"
    print(f"{subject.name}, {arguments.draws} draws: {figures}")


if __name__ == "__main__":
    main()
