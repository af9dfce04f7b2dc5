"""Criteria for a part of an answer: what explainers are shown agrees with what the criterion decides."""

import numpy as np
import pytest
import torch

from brinell.core.boxes import Objects, overlaps
from brinell.core.detection import BoxForm, Scene
from brinell.core.segmentation import IGNORED
from brinell.studies.explain.region import ObjectLost, RegionChanged

ZERO = torch.zeros(8, dtype=torch.int64)


def test_a_region_changes_where_half_of_its_pixels_lose_their_class(subtests):
    for seed in range(8):
        with subtests.test(seed=seed):
            rng = torch.Generator().manual_seed(seed)
            masks = torch.randint(0, 3, (8, 4, 5), generator=rng)
            masks[torch.rand(8, 4, 5, generator=rng) < 0.6] = IGNORED
            masks[:, 0, 0] = 1
            logits = torch.randn(8, 60, generator=rng)
            criterion = RegionChanged(masks=masks, classes=3)
            margin, view = criterion.margin(logits, ZERO, logits), criterion.logits_for_attack(logits, ZERO)
            for row in range(8):
                region = masks[row] != IGNORED
                wrong = int((logits[row].reshape(3, 4, 5).argmax(0) != masks[row])[region].sum())
                assert bool(margin[row] > 0) == (2 * wrong >= int(region.sum())) == bool(view[row].argmax() == 1)
                share = 1 - wrong / int(region.sum())
                assert float(view[row].softmax(0)[0]) == pytest.approx(min(max(share, 0.01), 0.99), abs=0.501 / int(region.sum()))
            part = criterion.select(torch.tensor([3, 1]))
            assert torch.equal(part.logits_for_attack(logits[[3, 1]], ZERO[:2]), view[[3, 1]])


def test_an_object_is_lost_where_no_shown_box_of_its_class_overlaps_it(subtests):
    for seed in range(8):
        with subtests.test(seed=seed):
            rng = np.random.default_rng(seed)
            corner = rng.uniform(0, 6, (8, 6, 2))
            boxes = np.concatenate((corner, corner + rng.uniform(2, 6, (8, 6, 2))), 2)
            scores = rng.uniform(0, 1, (8, 6, 2)) ** 2
            answers = torch.from_numpy(np.concatenate((boxes, scores), 2)).float().flatten(1)
            objects = [
                Objects(boxes=np.array([[1.0, 1, 6, 6]]), labels=np.array([row % 2]), crowd=np.zeros(1, bool)) for row in range(8)
            ]
            form = BoxForm(candidates=6, classes=2)
            criterion = ObjectLost(error="missed", scene=Scene.of(objects), form=form, threshold=1.0)
            margin, view = criterion.margin(answers, ZERO, answers), criterion.logits_for_attack(answers, ZERO)
            for row, (final, picture) in enumerate(zip(form.decode(answers, 0.4), objects, strict=True)):
                overlap = overlaps(final.boxes, picture.boxes)[:, 0] >= 0.5
                match = bool((overlap & (final.labels == picture.labels[0])).any())
                assert match == bool(margin[row] < 0) == bool(view[row].argmax() == 0)
                assert match == (not criterion.is_met(margin, answers, ZERO)[row])


def test_an_object_is_found_by_its_score_and_a_box_beside_it_counts_in_part():
    form = BoxForm(candidates=1, classes=1)
    scene = Scene.of([Objects(boxes=np.array([[0.0, 0, 10, 10]]), labels=np.array([0]), crowd=np.zeros(1, bool))])
    criterion = ObjectLost(error="missed", scene=scene, form=form, threshold=1.0)

    def score_of(width, score):
        return float(criterion.score(torch.tensor([[0.0, 0, width, 10, score]])))

    assert score_of(10, 0.9) == pytest.approx(0.9) and score_of(6, 0.7) == pytest.approx(0.7)
    assert score_of(2, 0.9) == pytest.approx(0.9 * 0.2 / 0.5) and score_of(4, 0.9) == pytest.approx(0.4)
    assert score_of(10, 0.3) == pytest.approx(0.3) and score_of(10, 0.0) == 0
