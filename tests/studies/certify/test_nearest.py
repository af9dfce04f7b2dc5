"""The counterexamples of an audit that proofs begin with."""

from types import SimpleNamespace

import numpy as np

from brinell.studies.certify.run import _nearest


def test_the_nearest_input_of_all_stages_is_taken():
    sizes = {"fgsm": {1: [0.3, 0.2], 2: [0.4]}, "pgd": {1: [0.25], 2: [0.1, np.nan], 3: [0.5]}}
    rows = [
        (stage, sample, size)
        for stage, table in sizes.items()
        for sample, values in table.items()
        for size in values
    ]
    stages, samples, linf = (np.array(column) for column in zip(*rows, strict=True))
    records = SimpleNamespace(attack=stages, sample_id=samples, linf=linf, l2=linf[::-1])
    run = SimpleNamespace(
        manifest={"request": {"norm": "linf"}, "stages": [{"name": "fgsm"}, {"name": "pgd"}]},
        rows=records,
        stored=lambda model, stage: set(sizes[stage]),
        adversarial=lambda model, stage, ids: {sample: (stage, sample) for sample in ids},
    )
    assert _nearest(run, "net") == {1: ("fgsm", 1), 2: ("pgd", 2), 3: ("pgd", 3)}
