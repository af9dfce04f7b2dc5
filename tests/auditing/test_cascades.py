"""Stages by name, and stages that are kept to the samples near the boundary."""

import numpy as np
import pytest

from _helpers import Recorder, audited, cells_of, threshold
from brinell.auditing.cascade import CASCADES, PRESETS, build_stages
from brinell.core.errors import RequestError
from brinell.core.record import Outcome

E, S, A, M, P = (
    Outcome.FOOLED_BEFORE,
    Outcome.SURVIVED,
    Outcome.SURVIVED_ABOVE,
    Outcome.MISCLASSIFIED,
    Outcome.SPARED,
)

LEVELS = [0.05, 0.1, 0.15, 0.2]
# Margins 0.12, 0.02, 0.30, wrong from the start, 0.19.
X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)


def outcomes(folder, *attacks):
    """What the last attack made of each sample at each budget."""
    run = audited(folder, Recorder(threshold(0.5)), X, Y, eps="0.05,0.1,0.15,0.2", attack=attacks)
    cells = cells_of(run.records())
    return [[cells["recorder", attacks[-1], sample, level] for level in LEVELS] for sample in range(len(X))]


@pytest.mark.parametrize("name", [*CASCADES, *PRESETS])
def test_every_name_builds(name):
    stages = build_stages((name,))
    assert [stage.name for stage in stages] == list(CASCADES.get(name, (name,)))


def test_the_standard_cascade_is_the_published_one():
    ce, targeted, fab, square = (stage.settings() for stage in build_stages(("standard",)))
    assert (ce["loss"], ce["steps"], ce["restarts"], ce["targets"]) == ("ce", 100, 1, 0)
    assert (targeted["loss"], targeted["steps"], targeted["restarts"], targeted["targets"]) == ("dlr", 100, 1, 9)
    assert (fab["steps"], fab["restarts"], fab["targets"]) == (100, 1, 9)
    assert (square["steps"], square["p_init"], square["rescale_schedule"]) == (5000, 0.8, False)


def test_a_stage_is_spared_what_is_far_from_the_boundary(tmp_path):
    """FGSM leaves a part of each clean margin: 0.02 of 0.12, 0.1 of 0.3, 0.04 of 0.19, at the largest budget it failed at."""
    near = outcomes(tmp_path / "near", "fgsm", "bim?steps=3&within=0.2")
    assert near == [[A, S, E, E], [E, E, E, E], [P, P, P, P], [M, M, M, M], [P, P, P, E]]
    wide = outcomes(tmp_path / "wide", "fgsm", "bim?steps=3&within=0.34")
    assert wide == [[A, S, E, E], [E, E, E, E], [A, A, A, S], [M, M, M, M], [A, A, S, E]]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "nan"])
def test_within_is_a_share(value):
    with pytest.raises(RequestError, match="share of the clean margin"):
        build_stages((f"fgsm?within={value}",))
