"""Mistakes of maps and boxes: named where one was made, and silent where none was."""

import numpy as np
import torch

from brinell.core.boxes import Objects
from brinell.core.detection import BoxForm
from brinell.models._detections import mistakes_of_boxes
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


def test_mistakes_of_boxes_are_named(subtests):
    """Objects at random, each with its box and score; then what people return in place of corners,
    and labels beside theirs.
    """
    rng = np.random.default_rng(1)
    objects, candidates = [], torch.zeros(4, 20, 4 + CLASSES)
    for row in range(4):
        corner = np.stack([20.0 + 60 * np.arange(5), rng.uniform(10, 60, 5)], 1)
        boxes, labels = (
            np.concatenate([corner, corner + rng.uniform(12, 40, (5, 2))], 1),
            rng.integers(1, CLASSES - 1, 5),
        )
        objects.append(Objects(boxes=boxes, labels=labels, crowd=np.zeros(5, bool)))
        candidates[row, :5, :4] = torch.from_numpy(boxes)
        candidates[row, torch.arange(5), 4 + torch.from_numpy(labels)] = 0.9
    low, high, scores = candidates[..., :2], candidates[..., 2:4], candidates[..., 4:]
    cases = [
        (low, high, scores, ""),
        (low.flip(0), high.flip(0), scores, ""),
        ((low + high) / 2, high - low, scores, "as centre and sides: return centre - sides / 2"),
        (low, high - low, scores, "as a corner and sides: return x, y, x + width"),
        (low.flip(-1), high.flip(-1), scores, "with x and y exchanged"),
        (low, high, scores.roll(1, -1), "with the class minus 1"),
        (low, high, scores.roll(-1, -1), "with the class plus 1"),
        (low, high, scores / 5, "at scores above 0.05: end the criterion with @0.05"),
    ]
    for first, second, of_class, words in cases:
        with subtests.test(words):
            answers = torch.cat((first, second, of_class), -1)
            lines = mistakes_of_boxes(
                answers, BoxForm(candidates=20, classes=CLASSES), objects, 0.4
            )
            assert (
                not lines if not words else any(words in line for line in lines) and len(lines) <= 2
            ), lines
