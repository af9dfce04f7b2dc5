"""A reject class changes the criterion; an undeclared one is noted."""

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _helpers import batch_of, distance, plan_of, workspace
from _refusals import refused
from brinell.cli import run as cli
from brinell.core import losses
from brinell.core.criterion import NotRejected
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel

TWO = Domain(kind="vector", shape=(2,))
LINE = np.stack([np.linspace(0.05, 0.45, 30), np.full(30, 0.5)], 1).astype(np.float32)
CLASS = np.zeros(30, dtype=np.int64)


class Guarded(nn.Module):
    """Class 0 below 0.5 of the first value, the reject class from there to `until`, and class 1
    beyond."""

    def __init__(self, until=0.7):
        super().__init__()
        self.until = until

    def forward(self, x):
        x0 = x[:, 0]
        return 20 * torch.stack(
            [0.5 - x0, x0 - self.until, torch.minimum(x0 - 0.5, self.until - x0)], 1
        )


CRITERION = NotRejected(2)


def test_margins_by_hand():
    logits = torch.tensor([[3.0, 1.0, 2.0], [1.0, 0.0, 5.0], [1.0, 4.0, 2.0], [0.0, 4.0, 6.0]])
    y = torch.zeros(4, dtype=torch.long)
    assert CRITERION.margin(logits, y, logits).tolist() == [-2.0, -5.0, 2.0, -2.0]
    attack_logits = CRITERION.logits_for_attack(logits, y)
    assert attack_logits[:, :2].tolist() == [[3.0, 1.0], [5.0, 0.0], [2.0, 4.0], [6.0, 4.0]]
    assert (attack_logits[:, 2] < attack_logits[:, :2].amin(1)).all(), (
        "the reject class leads nowhere"
    )
    torch.testing.assert_close(
        CRITERION.margin(attack_logits, y, attack_logits), CRITERION.margin(logits, y, logits)
    )


def test_the_gradient_goes_through_the_class_that_holds():
    logits = torch.tensor([[1.0, 0.0, 5.0]], requires_grad=True)
    y = torch.zeros(1, dtype=torch.long)
    (grad,) = torch.autograd.grad(CRITERION.loss(losses.margin, logits, y).sum(), logits)
    assert grad.tolist() == [[0.0, 1.0, -1.0]]


def test_a_class_that_is_not_there_is_refused():
    for reject, classes in [(3, 3), (-1, 3), (1, 2)]:
        with pytest.raises(RequestError, check=refused("core.criterion.NotRejected.check")):
            NotRejected(reject).check(classes)


def test_the_ledger_shows_and_judges_by_it():
    batch = batch_of(LINE[:1], [0])
    threat = Threat(distance=distance("linf"), eps=torch.ones(1), domain=TWO, criterion=CRITERION)
    ledger = Ledger(TorchModel(Guarded(), TWO), batch, threat)
    oracle, rejected, fooled = (
        ledger.oracle(),
        torch.tensor([[0.6, 0.5]]),
        torch.tensor([[0.9, 0.5]]),
    )
    assert oracle.labels(batch.ids, rejected).tolist() == [0] and not ledger.fooled.any()
    assert oracle.gradient(batch.ids, rejected).logits.argmax(1).tolist() == [0]
    assert oracle.differences(batch.ids, rejected, torch.tensor([[1]])).lead.tolist()[0][0] < 0
    assert oracle.scores(batch.ids, fooled).argmax(1).tolist() == [1] and ledger.fooled.all()
    assert ledger.best.answer.argmax(1).tolist() == [1]


def audit(out, until=0.7, y=CLASS, **options):
    settings = {"eps": "0.2,0.5", "attack": ("apgd-ce?steps=20", "square?steps=60"), "queries": 200}
    return brinell.audit(Guarded(until), (LINE, y), out=out, **(settings | options)).models[0]


@pytest.mark.parametrize("class_spec", ["last"])
def test_rejected_inputs_are_no_success(tmp_path, class_spec):
    """At 0.2 class 1 begins out of reach of 0.45; at 0.5 it is within reach of 0.2 and more."""
    result = audit(tmp_path / "run", reject_class=class_spec)
    reach = int((LINE[:, 0] + 0.5 < 0.7).sum())
    assert [rate.k for rate in result.robust_accuracy] == [
        30,
        reach,
    ] and result.clean_accuracy.k == 30
    assert result.criterion == "misclassified and not rejected"
    assert any(
        "0 of 30 clean inputs (0.0 %) are rejected" in remark.text for remark in result.remarks
    )
    assert brinell.verify(result.folder, Guarded(), (LINE, CLASS)).passed


def test_undeclared_it_counts_and_is_told(tmp_path):
    result = audit(tmp_path / "run", y=np.where(np.arange(30) < 29, 0, 1))
    assert result.robust_accuracy[0].k < 20


def test_a_class_more_than_the_data_has_is_told():
    def notes(y, **request):
        plan = plan_of(TorchModel(Guarded(), TWO), LINE, y, eps="0.2", attack="fgsm", **request)
        return [note for note in plan.notes if "rejects inputs" in note]

    (note,) = notes(np.arange(30) % 2)
    assert "3 classes apart, and the data has 2" in note and "reject" in note
    assert not notes(np.arange(30) % 2, reject_class="last") and not notes(np.zeros(30, int))


def test_clean_inputs_that_are_rejected_are_not_correct(tmp_path):
    result = audit(
        tmp_path / "run", y=np.where(np.arange(30) < 10, 0, 1), reject_class="last", until=0.99
    )
    assert result.clean_accuracy.k == 10


def test_what_makes_no_sense_is_refused(tmp_path_factory, capsys):
    for words, line in [
        (["--reject-class", "7"], "name one beside"),
        (["--reject-class", "lost"], "did you mean 'last'"),
        (["--targeted", "1"], ""),
    ]:
        tmp_path = tmp_path_factory.mktemp("row")
        work = workspace(tmp_path)
        command = [
            "audit",
            "--data",
            f"npz:{work / 'data.npz'}",
            "--eps",
            "0.1",
            "--attack",
            "fgsm",
            "--out",
            str(tmp_path / "run"),
        ]
        arguments = words if line else [*words, "--reject-class", "2"]
        assert (
            cli(
                [
                    *command,
                    "--model",
                    f"torch:{work / 'model.py'}:parabola?args=classes=3",
                    *arguments,
                ]
            )
            == 2
        )
        assert (line or "leave it out") in capsys.readouterr().err
