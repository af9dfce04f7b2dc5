"""Criteria of detectors: margins by hand, and gradients against finite differences."""

import pytest
import torch

from _spots import VANISHING, Spots, spots
from brinell.core.boxes import ERRORS
from brinell.core.detection import BoxCriterion, BoxForm, Scene
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.threat import Threat
from brinell.distances.linf import Linf

FORM = BoxForm(candidates=4, classes=3)
PICTURES = ([(0, 0), (3, 1)], [(1, 2)], [])


def criterion(error, **settings):
    """The criterion of an error on three pictures."""
    x, objects = spots(*PICTURES)
    return torch.from_numpy(x), BoxCriterion(error=error, scene=Scene.of(objects), form=FORM, **settings)


def answers(x):
    """Flattened candidates."""
    return Spots()(x).flatten(1)


def test_a_detector_that_is_right_makes_no_error():
    for error in ERRORS:
        x, judge = criterion(error)
        assert judge.counts(answers(x)).tolist() == [0, 0, 0]
        assert not judge.is_met(judge.margin(answers(x), None, x), None).any()


def test_errors_by_hand():
    x, _ = criterion("missed")
    changed = x.clone()
    changed[0, 0, :8, :8] = 0.1  # the first object of the first picture is gone
    changed[1, 2, :8, 8:], changed[1, 0, :8, 8:] = 0.1, 0.9  # that of the second has another class
    changed[2, :, :, :] = torch.tensor([0.9, 0.1, 0.1])[:, None, None]  # four boxes in a picture without objects
    expected = {"missed": [1, 0, 0], "mislabelled": [0, 1, 0], "misplaced": [0, 0, 0], "false": [0, 0, 4]}
    for error, counts in expected.items():
        assert criterion(error)[1].counts(answers(changed)).tolist() == counts


@pytest.mark.parametrize("threshold", [0.5, 0.6, 1.0])
def test_the_margin_is_positive_exactly_from_the_share_on(threshold):
    x, judge = criterion("missed", threshold=threshold)
    for gone in range(3):
        changed = x.clone()
        for quadrant in ((slice(0, 8), slice(0, 8)), (slice(8, 16), slice(8, 16)))[:gone]:
            changed[0, :, quadrant[0], quadrant[1]] = 0.1
        margin = judge.margin(answers(changed), None, changed)
        assert bool(margin[0] > 0) == (gone / 2 >= threshold)


def test_a_picture_without_objects_is_never_missed_and_its_boxes_are_false():
    x, judge = criterion("missed")
    assert judge.margin(answers(torch.zeros_like(x)), None, x).tolist()[2] == -1
    bright = torch.full_like(x, 0.9)
    assert criterion("false", threshold=4)[1].margin(answers(bright), None, x)[2] > 0


@pytest.mark.parametrize("error", ["missed", "false", "mislabelled"])
def test_gradients_are_those_of_finite_differences(error):
    x, judge = criterion(error)
    noise = 0.05 * torch.rand(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # no two scores are equal
    x = (x + noise).requires_grad_(True)
    network = Spots().double()

    def loss(x):
        """The sum of the losses."""
        return judge.loss(None, network(x).flatten(1), None).sum()

    (gradient,) = torch.autograd.grad(loss(x), x)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step = 1e-5
    difference = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(float(difference.detach()), rel=1e-4, abs=1e-7)
    (margin_gradient,) = torch.autograd.grad(judge.margin(network(x).flatten(1), None, x).sum(), x)
    assert torch.allclose(margin_gradient, gradient)


def test_selection_keeps_rows_aligned():
    x, judge = criterion("missed")
    changed = torch.zeros_like(x)
    whole = judge.margin(answers(changed), None, x)
    for keep in (torch.tensor([2, 0]), torch.tensor([True, False, True]), slice(1, 3)):
        assert torch.equal(judge.select(keep).margin(answers(changed)[keep], None, x[keep]), whole[keep])


def test_lower_scores_of_all_boxes_are_no_success_until_the_threshold():
    """The ledger notes a success at the change that the detector's own formula gives, and not before."""
    x, judge = criterion("missed", threshold=1.0)

    class Model:
        """The detector as the ledger asks it."""

        name, classes, domain = "spots", 4 * 7, Domain(kind="image", shape=(3, 16, 16))
        from brinell.core.model import Access

        access = Access.GRADIENTS

        def predict(self, x):
            """Flattened candidates."""
            return answers(x)

    for factor, met in ((0.98, False), (1.02, True)):
        eps = torch.full((3,), VANISHING * factor)
        threat = Threat(distance=Linf(), eps=eps, domain=Model.domain, criterion=judge)
        batch = Batch(ids=torch.arange(3), x=x, y=torch.zeros(3, dtype=torch.int64))
        ledger = Ledger(Model(), batch, threat, strongest=True)
        oracle = ledger.oracle()
        assert oracle.classes == 2
        scores = oracle.scores(batch.ids, threat.project(torch.zeros_like(x), x))
        assert scores.shape == (3, 2) and ledger.fooled.tolist() == [met, met, False]
