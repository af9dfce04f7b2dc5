"""Samples that an audit attacks until it is decided whether it reaches a threshold, on real
networks, beside its plan of 1,000.

    OMP_NUM_THREADS=1 python benchmarks/until_decided.py --thresholds 0.3 0.6 --steps 20

Prints a table in Markdown.
"""

import tempfile
from pathlib import Path

import measure

import brinell

GROUP = "sweeps"
RUNS = {"": "--subjects cnn4_pgd --thresholds 0.2 --samples 24 --steps 2"}
COLUMNS = "model, eps, threshold, samples attacked, of, robust accuracy, decided"


def main() -> None:
    """One audit for each network and threshold."""
    options = measure.arguments(
        __doc__,
        subjects=["cnn4_pgd", "cnn_wide_kw", "resnet4b"],
        thresholds=[0.3, 0.6],
        samples=1000,
        steps=20,
    )
    table = measure.Table("Samples until a threshold is decided", COLUMNS)
    with tempfile.TemporaryDirectory(prefix="brinell-until-") as temporary:
        for name in options.subjects:
            subject = measure.subject(name)
            for threshold in options.thresholds:
                result = brinell.audit(
                    subject.model_spec,
                    subject.data_spec,
                    eps=subject.eps_text,
                    attack=f"apgd-ce?steps={options.steps}",
                    samples=options.samples,
                    until=f"robust:{threshold}",
                    out=Path(temporary) / f"{name}-{threshold}",
                    progress=False,
                )
                rate = result.robust()
                decision = "passes" if rate.low >= threshold else "undecided"
                if rate.high <= threshold:
                    decision = "fails"
                figure = f"{100 * rate.value:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
                table.add(
                    name, subject.eps_text, threshold, rate.n, options.samples, figure, decision
                )


if __name__ == "__main__":
    main()
