"""Signs in the records that a robust accuracy is too good to be true."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from brinell.analysis.results import WarningResult
from brinell.core.intervals import wilson
from brinell.core.record import Outcome, Records

NOTABLE = 0.002
"""Share of all samples that a black-box attack may break after the gradient attacks: the reference AutoAttack's figure."""


def signs_in(records: Records, manifest: Mapping[str, Any], model: str) -> list[WarningResult]:
    """Warnings that follow from what the attacks of one model found.

    An attack without gradients that breaks, at the largest eps, what gradient attacks left standing is the classic sign of
    gradient masking. It is raised when the lower end of the interval of its share exceeds 0.2 points, so that a single
    sample of a small set raises no alarm.
    """
    mine = records.model == model
    n = int((mine & (records.attack == "clean")).sum())
    found: list[WarningResult] = []
    gradient = False
    for stage in manifest["stages"]:
        if stage["access"] == "gradients":
            gradient = True
        elif gradient and n:
            top = np.isclose(records.eps, max(manifest["eps"]))
            fooled = np.isin(records.outcome, [str(Outcome.FOOLED), str(Outcome.FOOLED_BELOW)])
            k = int((mine & top & fooled & (records.attack == stage["name"])).sum())
            interval = wilson(k, n)
            if interval is not None and interval.low > NOTABLE:
                text = (
                    f"{stage['name']}, which sees no gradients, broke {k} of {n} samples that the gradient attacks left "
                    "standing: gradients may be masked, and the robust accuracy too high; add steps to it, or an adaptive attack"
                )
                found.append(WarningResult(code="black-box-better", text=text, model=model))
    return found
