"""Criteria of detectors: margins by hand, and gradients against finite differences."""

import math

import numpy as np
import pytest
import torch

from _spots import VANISHING, Spots, spots
from brinell.core.boxes import ERRORS, Objects, judge
from brinell.core.criterion import MISCLASSIFIED
from brinell.core.detection import BoxCriterion, BoxForm, Scene
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.threat import Threat
from brinell.distances.linf import Linf

FORM = BoxForm(candidates=4, classes=3)
PICTURES = ([(0, 0), (3, 1)], [(1, 2)], [])


def criterion(error, **settings):
    """The criterion of an error on three pictures."""
    x, objects = spots(*PICTURES)
    return torch.from_numpy(x), BoxCriterion(
        error=error, scene=Scene.of(objects), form=FORM, **settings
    )


def answers(x):
    """Flattened candidates."""
    return Spots()(x).flatten(1)


def test_errors_by_hand():
    x, _ = criterion("missed")
    changed = x.clone()
    changed[0, 0, :8, :8] = 0.1  # the first object of the first picture is gone
    changed[1, 2, :8, 8:], changed[1, 0, :8, 8:] = 0.1, 0.9  # that of the second has another class
    changed[2, :, :, :] = torch.tensor([0.9, 0.1, 0.1])[
        :, None, None
    ]  # four boxes in a picture without objects
    expected = {
        "missed": [1, 0, 0],
        "mislabelled": [0, 1, 0],
        "misplaced": [0, 0, 0],
        "false": [0, 0, 4],
    }
    for error, counts in expected.items():
        assert criterion(error)[1].counts(answers(changed)).tolist() == counts


@pytest.mark.parametrize("error", ["missed", "false", "mislabelled"])
def test_gradients_are_those_of_finite_differences(error):
    x, judge = criterion(error)
    noise = 0.05 * torch.rand(
        x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )  # no two scores are equal
    x = (x + noise).requires_grad_(True)
    network = Spots().double()

    def loss(x):
        """The sum of the losses."""
        return judge.loss(None, network(x).flatten(1), None).sum()

    (gradient,) = torch.autograd.grad(loss(x), x)
    direction = torch.randn(
        x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    step = 1e-5
    difference = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(
        float(difference.detach()), rel=1e-4, abs=1e-7
    )
    (margin_gradient,) = torch.autograd.grad(judge.margin(network(x).flatten(1), None, x).sum(), x)
    assert torch.allclose(margin_gradient, gradient)


def test_selection_keeps_rows_aligned():
    x, judge = criterion("missed")
    changed = torch.zeros_like(x)
    margins = judge.margin(answers(changed), None, x)
    for keep in (torch.tensor([2, 0]), torch.tensor([True, False, True]), slice(1, 3)):
        assert torch.equal(
            judge.select(keep).margin(answers(changed)[keep], None, x[keep]), margins[keep]
        )


def test_lower_scores_of_all_boxes_are_no_success_until_the_threshold():
    """The ledger notes a success at the change that the detector's own formula gives, and not
    before."""
    x, judge = criterion("missed", threshold=1.0)

    class Model:
        """The detector as the ledger asks it."""

        name, classes, domain = "spots", 4 * 7, Domain(kind="image", shape=(3, 16, 16))
        from brinell.core.model import Access

        access = Access.GRADIENTS

        def predict(self, x):
            """Flattened candidates."""
            return answers(x)

    for factor, success in ((0.98, False), (1.02, True)):
        eps = torch.full((3,), VANISHING * factor)
        threat = Threat(distance=Linf(), eps=eps, domain=Model.domain, criterion=judge)
        batch = Batch(ids=torch.arange(3), x=x, y=torch.zeros(3, dtype=torch.int64))
        ledger = Ledger(Model(), batch, threat, strongest=True)
        oracle = ledger.oracle()
        assert oracle.classes == 2
        scores = oracle.scores(batch.ids, threat.project(torch.zeros_like(x), x))
        assert scores.shape == (3, 2) and ledger.fooled.tolist() == [success, success, False]


# Against a reference that goes candidate by candidate


def random_scene(seed):
    """Answers (3, 5 * 7) about three pictures with few objects, a crowd among them, and none in the
    last."""
    rng = np.random.default_rng(seed)
    objects = []
    for count in (3, 2, 0):
        corner = rng.uniform(0, 8, (count, 2))
        boxes = np.concatenate((corner, corner + rng.uniform(4, 8, (count, 2))), 1)
        crowd = np.arange(count) == 2
        objects.append(
            Objects(boxes=boxes.reshape(-1, 4), labels=rng.integers(0, 3, count), crowd=crowd)
        )
    corner = rng.uniform(0, 8, (3, 5, 2))
    boxes = np.concatenate((corner, corner + rng.uniform(4, 8, (3, 5, 2))), 2)
    boxes[0, :2] = objects[0].boxes[:2] + rng.normal(0, 1, (2, 4))
    answers = np.concatenate((boxes, rng.uniform(0, 1, (3, 5, 3))), 2)
    return torch.from_numpy(answers).float(), objects


def overlap(a, b):
    width, height = (
        max(0.0, min(a[2 + axis], b[2 + axis]) - max(a[axis], b[axis])) for axis in (0, 1)
    )
    size, second_size = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width * height / (size + second_size - width * height)


def reference(candidates, picture, error, least):
    """Loss and hint of an error in one picture, from the definitions."""
    real = [k for k in range(len(picture)) if not picture.crowd[k]]
    rows = []
    for candidate in candidates:
        box, shares = candidate[:4], candidate[4:]
        for k in real:
            label = picture.labels[k]
            rival = max(share for index, share in enumerate(shares) if index != label)
            rows.append((k, overlap(box, picture.boxes[k]), shares[label], rival))
    best = [max(candidate[4:]) for candidate in candidates]
    ratios_of_boxes = [
        [overlap(candidate[:4], picture.boxes[k]) for k in real] for candidate in candidates
    ]
    count = max(1, len(real))

    def share(values):
        """The mean over objects of the largest value of each."""
        return sum(max([value for j, value in values if j == k], default=0.0) for k in real) / count

    if error == "missed":
        loss = -sum(
            score
            for score, ratios in zip(best, ratios_of_boxes, strict=True)
            if any(r >= 0.4 for r in ratios)
        )
        loss -= sum(true for _, ratio, true, _ in rows if ratio >= 0.1)
        return loss / count, 1 - share([(k, true) for k, ratio, true, _ in rows if ratio >= 0.1])
    if error == "false":
        away = [
            score
            for score, ratios in zip(best, ratios_of_boxes, strict=True)
            if all(r < 0.5 for r in ratios)
        ]
        hint = sum(score for score in away if score <= least) / min(10, len(best)) / least
        return sum(away) / 100, min(hint, 1.0)
    if error == "mislabelled":
        loss = sum(rival - true for _, ratio, true, rival in rows if ratio >= 0.4) / count
        return loss, share([(k, rival) for k, ratio, _, rival in rows if ratio >= 0.5])
    loss = sum(true for _, ratio, true, _ in rows if 0.1 <= ratio < 0.5)
    loss -= sum(true for _, ratio, true, _ in rows if ratio >= 0.5)
    loss -= sum(ratio * true for _, ratio, true, _ in rows if ratio >= 0.4)
    return loss / count, share([(k, true) for k, ratio, true, _ in rows if 0.1 <= ratio < 0.5])


def test_losses_counts_and_margins_are_those_of_the_reference():
    form = BoxForm(candidates=5, classes=3)
    for seed in range(8):
        answers, objects = random_scene(seed)
        flat = answers.flatten(1)
        boxes = form.decode(flat, 0.5)
        for error in ERRORS:
            judge_of = BoxCriterion(
                error=error, scene=Scene.of(objects), form=form, least_score=0.5, threshold=0.6
            )
            counts = [judge(*pair).count(error) for pair in zip(boxes, objects, strict=True)]
            pairs = [
                reference(*pair, error, 0.5) for pair in zip(answers.tolist(), objects, strict=True)
            ]
            assert judge_of.counts(flat).tolist() == counts
            assert judge_of.loss(None, flat, None).tolist() == pytest.approx(
                [loss for loss, _ in pairs], abs=1e-4
            )
            expected = []
            for (_, hint), count, picture in zip(pairs, counts, objects, strict=True):
                errors = count + 0.01 + 0.98 * min(max(hint, 0.0), 1.0)
                needed = max(1, math.ceil(0.6 * picture.count))
                value = (errors - needed) / picture.count if picture.count else -1.0
                expected.append(errors - 0.6 if error == "false" else value)
            margin = judge_of.margin(flat, None, None)
            assert margin.tolist() == pytest.approx(expected, abs=1e-4), (seed, error)
            assert judge_of.is_met(margin, None, None).tolist() == [value > 0 for value in expected]
            assert torch.equal(
                judge_of.logits_for_attack(flat, None), torch.stack((0 * margin, margin), 1)
            )
            assert judge_of.attackable.tolist() == [True, True, error == "false"]


def test_a_model_of_another_form_is_refused():
    judge_of = criterion("missed")[1]
    judge_of.check(4 * 7)
    for classes in (27, 4 * 3):
        with pytest.raises(RequestError, match=f"answers {classes} numbers"):
            judge_of.check(classes)
    assert judge_of.describe() == {
        "name": "detection",
        "error": "missed",
        "least_score": 0.4,
        "threshold": 0.5,
    }
    assert judge_of.classes_for_attack(28) == 2 and judge_of.for_attack() is MISCLASSIFIED
