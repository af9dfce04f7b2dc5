"""Quantised adversarial examples in an audit whose budget is not a whole number of levels."""

import numpy as np
import torch

from _helpers import Recorder, asked_elsewhere, run_audit, verify
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.domain import Domain
from brinell.core.record import has_broken
from brinell.engine.plan import make_plan
from brinell.engine.request import Request

IMAGE = Domain(kind="image", shape=(1, 4, 4), levels=256)


def mean_above(threshold):
    """Class 1 where the mean is above: every value counts alike, and the Linf margin is the
    distance of the mean.
    """

    def logits(x):
        z = 100 * (x.flatten(1).mean(1) - threshold)
        return torch.stack([-z, z], 1)

    return logits


def run_at(folder, eps, threshold=0.4, **request):
    x = np.full((20, 1, 4, 4), 80 / 255, np.float32)
    x[10:] = 78 / 255
    return run_audit(
        folder,
        Recorder(mean_above(threshold), IMAGE),
        x,
        np.zeros(20, int),
        attack="fgsm",
        eps=eps,
        **request,
    )


def test_what_is_broken_stays_broken_once_it_is_rounded_inside_eps(tmp_path_factory):
    """102/255 is 0.4: 22 and 24 levels away, well within 25.5.

    Rounded to 26, it would be outside of 0.1.
    """
    for eps in ["0.1", "0.3", "26/255"]:
        tmp_path = tmp_path_factory.mktemp("row")
        run = run_at(tmp_path / "run", eps)
        result = summarise_model(run.manifest, run.rows, "run", "recorder")
        assert result.robust_accuracy[-1].k == 0 == result.quantised_robust_accuracy[-1].k
        records = run.rows
        fooled = has_broken(records)
        assert np.ma.filled(records.quantised_within[fooled], False).all() and fooled.sum() == 20


def test_what_needs_the_last_half_level_is_told_to_be_lost(tmp_path):
    """78 + 25.5 levels reach 103.2, and 78 + 25 do not; at the next larger eps the nearest levels
    count.
    """
    run = run_at(tmp_path / "run", "0.1,26/255", threshold=103.2 / 255)
    result = summarise_model(run.manifest, run.rows, "run", "recorder")
    assert [rate.k for rate in result.robust_accuracy] == [0, 0]
    assert [rate.k for rate in result.quantised_robust_accuracy] == [10, 0]


def test_every_forward_of_it_is_counted_and_verified(tmp_path):
    x = np.full((20, 1, 4, 4), 80 / 255, np.float32)
    x[10:] = 78 / 255

    class Shared(Recorder):
        """Its copies count with it."""

        def __deepcopy__(self, memo):
            return self

    model = Shared(mean_above(103.2 / 255), IMAGE)
    run = run_audit(tmp_path / "run", model, x, np.zeros(20, int), attack="fgsm", eps="0.1,26/255")
    records = run.rows
    forwards = int((records.forwards + records.judge_forwards).sum())
    assert (
        model.queries + asked_elsewhere(run)
        == forwards + run.manifest["probes"]["recorder"]["forwards"]
    )
    from brinell.datasets._memory import from_arrays

    data = from_arrays(x, np.zeros(20, int), domain=IMAGE)
    plan = make_plan(Request(**run.manifest["request"]), dataset=data, models=(model,))
    verification = verify(run, plan)
    problems = [
        problem
        for problem in verification.problems
        if not problem.location.startswith(("tables/", "report.html"))
    ]  # no page was made
    assert not problems and "each of 20 stored adversarial inputs" in " ".join(
        verification.verified_claims
    )
