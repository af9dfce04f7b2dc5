"""Remarks of an attack: from the monitors to manifest, results, page and terminal."""

import torch
from tests._helpers import Recorder, run_audit

from brinell.analysis.robust_accuracy import summarise
from brinell.core.domain import Domain
from brinell.reports.numbers import NBSP
from brinell.store.run import LAYOUT
from brinell.studies.register import write_page

DOMAIN = Domain(kind="image", shape=(1, 6, 6))
ATTACK = "rlab?patch=1&draws=4&steps=40&policy=greedy"


def _run(out, lead, **settings):
    """Twelve inputs between two classes; `lead` is how far apart, in L2, and distortions of 0.5 are
    allowed.
    """

    def logits(x):
        z = (x.flatten(1).mean(1) - 0.5 + lead / 6) * 40
        return torch.stack([z, -z], 1)

    x = torch.full((12, 1, 6, 6), 0.5)
    y = torch.zeros(12, dtype=torch.long)
    return run_audit(
        out, Recorder(logits, DOMAIN), x, y, eps="0.5", norm="l2", attack=(ATTACK,), **settings
    )


def test_much_distance_and_no_success_is_remarked(tmp_path):
    run = _run(tmp_path / "run", lead=3.0)
    [model] = summarise(run.manifest, run.rows, str(run.path)).models
    assert [(remark.attack, remark.code) for remark in model.remarks] == [
        (ATTACK, "policy"),
        (ATTACK, "distance-without-success"),
    ]
    page = write_page(run.path).read_text().replace(NBSP, " ")
    assert all(remark.text in page for remark in model.remarks)
    assert model.remarks[0].text in write_page(run.path).read_text()
    run.manifest["remarks"][model.name]["model"] = {
        "json": "what a model on another machine says of itself"
    }
    LAYOUT.save(run.path, run.manifest)
    assert (
        "odel: what a model on another machine says of itself" in write_page(run.path).read_text()
    )


def test_an_attack_that_succeeds_tells_its_policy_and_nothing_else(tmp_path):
    run = _run(tmp_path / "run", lead=0.05)
    [model] = summarise(run.manifest, run.rows, str(run.path)).models
    assert model.robust_accuracy[0].k == 0
    assert [remark.code for remark in model.remarks] == ["policy"]
