"""Mistakes of maps and boxes: named where one was made, and silent where none was."""

import numpy as np
import pytest
import torch

from brinell.core.boxes import Objects
from brinell.core.detection import BoxForm
from brinell.core.errors import RequestError
from brinell.models._detections import check_corners, corner_forms, mistakes_of_boxes
from brinell.models._maps import mistakes_of_maps

CLASSES = 8


def test_mistakes_of_maps_are_named(subtests):
    """Masks of blocks; a tenth of the pixels is wrong anyway, and some count for nothing."""
    rng = np.random.default_rng(0)
    blocks = (
        torch.from_numpy(rng.integers(1, CLASSES - 1, (5, 3, 3)))
        .repeat_interleave(4, 1)
        .repeat_interleave(4, 2)
    )
    wrong = torch.from_numpy(rng.random(blocks.shape) < 0.1)
    truth = torch.where(wrong, torch.from_numpy(rng.integers(0, CLASSES, blocks.shape)), blocks)
    masks = blocks.clone()
    masks[0, :2] = 255
    cases = [
        (truth, ""),
        (torch.from_numpy(rng.integers(0, CLASSES, blocks.shape)), ""),
        (truth + 1, "with its class minus 1"),
        ((truth - 1).clamp_min(0), "with its class plus 1"),
        (torch.tensor([7, 2, 1, 3, 6, 5, 4, 0])[truth], "in another order"),
        (truth.transpose(1, 2), "height and width exchanged: return logits.transpose(2, 3)"),
        (torch.full_like(truth, 2), "it answers class 2 in every pixel"),
    ]
    for predicted, words in cases:
        with subtests.test(words):
            lines = mistakes_of_maps(predicted, masks, CLASSES + 1)
            assert (
                not lines if not words else any(words in line for line in lines) and len(lines) <= 2
            ), lines


def draw_pictures(rng, classes, sides):
    """Pictures with objects at random, and a detector's candidates: a box for each, some of them
    misplaced, and faint boxes anywhere.
    """
    height, width = sides
    objects, candidates = [], torch.zeros(6, 60, 4 + classes)
    for row in range(6):
        low = rng.uniform(0, 0.7, (8, 2)) * (width, height)
        high = low + rng.uniform(0.1, 0.3, (8, 2)) * (width, height)
        boxes, labels = np.concatenate([low, high], 1), rng.integers(0, classes, 8)
        objects.append(Objects(boxes=boxes, labels=labels, crowd=rng.random(8) < 0.1))
        seen = boxes + rng.normal(scale=0.01 * width, size=boxes.shape)
        candidates[row, :8, :4] = torch.from_numpy(seen)
        candidates[row, torch.arange(8), 4 + torch.from_numpy(labels)] = 0.9
        corner = rng.uniform(0, 0.7, (52, 2)) * (width, height)
        anywhere = np.concatenate([corner, corner + 0.2 * width], 1)
        candidates[row, 8:, :4] = torch.from_numpy(anywhere)
        candidates[row, 8:, 4:] = torch.from_numpy(rng.uniform(0, 0.02, (52, classes)))
    return objects, candidates


def given(boxes, form):
    """Corners in pixels as people give them in a form: what `form.apply` undoes."""
    low, high = boxes[..., :2], boxes[..., 2:]
    if "as centre and sides" in form.titles:
        boxes = torch.cat(((low + high) / 2, high - low), -1)
    if "as a corner and sides" in form.titles:
        boxes = torch.cat((low, high - low), -1)
    plain = [title for title in form.titles if "corner" not in title and "centre" not in title]
    if any("fractions" in title or "pixels" in title for title in plain):
        (factors,) = [
            f.apply(torch.ones(4))
            for f in corner_forms(*SIDES)
            if f.titles == tuple(title for title in plain if "exchanged" not in title)
        ]
        boxes = boxes / factors
    return boxes[..., [1, 0, 3, 2]] if "with x and y exchanged" in form.titles else boxes


SIDES = (96, 160)


def test_forms_of_boxes_are_named_whatever_is_mixed_up(subtests):
    """Corners in a form that is drawn, classes that are shifted, and one class or several; sound
    detectors are left alone.
    """
    rng = np.random.default_rng(2)
    forms = list(corner_forms(*SIDES))
    for _ in range(30):
        classes = int(rng.choice([1, 2, 5, 20]))
        objects, candidates = draw_pictures(rng, classes, SIDES)
        form = forms[rng.integers(len(forms))] if rng.random() < 0.8 else forms[0]
        shift = int(rng.choice([0, 1])) if classes > 2 else 0
        padding = torch.zeros(6, int(rng.integers(0, 40)), 4 + classes)
        boxes = given(candidates[..., :4], form)
        answers = torch.cat((boxes, candidates[..., 4:].roll(shift, -1)), -1)
        answers = torch.cat((answers, padding), 1)
        with subtests.test(str((classes, form.titles, shift))):
            assert torch.allclose(form.apply(boxes), candidates[..., :4], atol=1e-3)
            if form.titles:
                with pytest.raises(RequestError) as caught:
                    check_corners(answers, objects, SIDES, "net", 0.4)
                text = str(caught.value)
                assert all(words in text for words in (*form.titles, *form.lines))
            else:
                check_corners(answers, objects, SIDES, "net", 0.4)
                output = BoxForm(candidates=answers.shape[1], classes=classes)
                text = "".join(mistakes_of_boxes(answers, output, objects, 0.4))
            assert ("with the class minus 1" in text) == bool(shift)
            if not form.titles and not shift:
                faint = torch.cat((answers[..., :4], answers[..., 4:] / 8), -1)
                (line,) = mistakes_of_boxes(faint, output, objects, 0.4)
                assert not text and "end the criterion with @0.05" in line
