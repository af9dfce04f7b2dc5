"""Draws that randomised smoothing needs until a named radius is decided, beside a fixed plan.

    OMP_NUM_THREADS=1 python benchmarks/smoothing_draws.py --cases cnn_wide_kw:0.25:0.25

A case is a network, the noise and the radius. Prints a table in Markdown: the share of samples that
is certified at the radius by a fixed number of draws and by draws that end early, each with its
interval, and the draws of both, those that choose the class included.
"""

import measure
import numpy as np
import torch

from brinell.core.intervals import wilson
from brinell.models._torch_model import TorchModel
from brinell.studies.certify.smoothing import Smoothing, counter

GROUP = "proofs"
RUNS = {"": "--cases cnn_wide_kw:0.25:0.25 --samples 2 --draws 100"}
COLUMNS = (
    "model, sigma, radius, samples, certified by the fixed plan, certified early, decided otherwise, "
    "draws of the fixed plan, mean draws early, largest, ratio"
)


def share(values: np.ndarray) -> str:
    """A share in percent with its interval."""
    interval = wilson(int(values.sum()), len(values))
    assert interval is not None
    return f"{100 * values.mean():.0f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def main() -> None:
    """Both plans on the first samples of each case."""
    options = measure.arguments(
        __doc__,
        cases=["cnn_wide_kw:0.25:0.25", "resnet20:0.06:0.06"],
        samples=20,
        draws=10_000,
        batch_size=200,
    )
    table = measure.Table("Draws until a radius is decided", COLUMNS)
    for case in options.cases:
        name, sigma, radius = case.split(":")
        subject = measure.subject(name)
        model = TorchModel(subject.module(), subject.domain, name=name)
        count = counter(model, subject.domain, torch.device("cpu"), options.batch_size)
        x, labels = subject.first(options.samples)

        certified, draws = {}, {}
        for early in (False, True):
            method = Smoothing(sigma=float(sigma), draws=options.draws, early=early)
            bounds = [
                method.bound(count, image, 0, sample, (float(radius),))
                for sample, image in enumerate(x)
            ]
            certified[early] = np.array(
                [
                    method.radius(bound.low) >= float(radius) and bound.prediction == int(label)
                    for bound, label in zip(bounds, labels, strict=True)
                ]
            )
            draws[early] = np.array([bound.draws for bound in bounds])

        table.add(
            name,
            sigma,
            radius,
            len(x),
            share(certified[False]),
            share(certified[True]),
            int((certified[False] != certified[True]).sum()),
            int(draws[False].mean()),
            round(draws[True].mean()),
            int(draws[True].max()),
            f"{draws[False].sum() / draws[True].sum():.1f}",
        )


if __name__ == "__main__":
    main()
