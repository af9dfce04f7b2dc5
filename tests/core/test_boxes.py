"""Boxes: known answers by hand, and properties that hold for every picture."""

import numpy as np

from brinell.core.boxes import (
    FALSE,
    HIT,
    IGNORED,
    MISLABELLED,
    MISPLACED,
    MISSED,
    Detections,
    Objects,
    decode,
    judge,
    match,
)


def objects(*rows):
    """Objects from (x0, y0, x1, y1, label, crowd)."""
    values = np.array(rows, dtype=np.float64).reshape(-1, 6)
    return Objects(
        boxes=values[:, :4], labels=values[:, 4].astype(np.int64), crowd=values[:, 5] > 0
    )


def detections(*rows):
    """Detections from (x0, y0, x1, y1, label, score)."""
    values = np.array(rows, dtype=np.float64).reshape(-1, 6)
    order = np.argsort(-values[:, 5], kind="stable")
    return Detections(
        boxes=values[order, :4], labels=values[order, 4].astype(np.int64), scores=values[order, 5]
    )


def random_picture(generator, objects_most=8, boxes_most=20, classes=3):
    """Objects, and detections near some of them."""
    n, m = generator.integers(0, objects_most + 1), generator.integers(0, boxes_most + 1)
    corners = generator.uniform(0, 80, (n, 2))
    boxes = np.concatenate([corners, corners + generator.uniform(5, 40, (n, 2))], 1)
    labels = generator.integers(0, classes, n)
    truth = Objects(boxes=boxes, labels=labels, crowd=generator.random(n) < 0.15)
    rows = []
    for _ in range(m):
        if n and generator.random() < 0.7:
            index = generator.integers(n)
            box, label = boxes[index] + generator.normal(0, 4, 4), labels[index]
            label = label if generator.random() < 0.7 else generator.integers(classes)
        else:
            corner = generator.uniform(0, 80, 2)
            box, label = (
                np.concatenate([corner, corner + generator.uniform(5, 40, 2)]),
                generator.integers(classes),
            )
        rows.append(
            (
                *np.concatenate([np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])]),
                label,
                generator.random(),
            )
        )
    return detections(*rows), truth


def test_outcomes_by_hand():
    truth = objects(
        (0, 0, 10, 10, 0, 0),
        (20, 0, 30, 10, 0, 0),
        (40, 0, 50, 10, 1, 0),
        (60, 0, 70, 10, 1, 0),
        (0, 50, 90, 90, 2, 1),
    )
    boxes = detections(
        (0, 0, 10, 9, 0, 0.9),  # finds the first
        (0, 0, 10, 10, 0, 0.8),  # a duplicate
        (20, 0, 30, 9, 1, 0.7),  # the second, with another class
        (44, 0, 54, 10, 1, 0.6),  # the third, overlap 6 / 14
        (90, 0, 95, 5, 1, 0.5),  # nothing
        (10, 60, 20, 70, 2, 0.4),  # in the crowd
    )
    outcomes = judge(boxes, truth)
    assert outcomes.objects.tolist() == [HIT, MISLABELLED, MISPLACED, MISSED, IGNORED]
    assert outcomes.boxes.tolist() == [HIT, FALSE, MISLABELLED, MISPLACED, FALSE, IGNORED]


def test_a_picture_without_boxes_or_objects():
    for pair in (
        (detections(), objects((0, 0, 1, 1, 0, 0))),
        (detections((0, 0, 1, 1, 0, 0.5)), objects()),
        (detections(), objects()),
    ):
        assert match(*pair)[0].shape == (10, len(pair[0]))
        assert len(judge(*pair).objects) == len(pair[1])


# Against a reference that goes box by box


def overlap(a, b, crowd=False):
    """Intersection over union of two boxes, or over the area of the first."""
    width, height = (
        max(0.0, min(a[2 + axis], b[2 + axis]) - max(a[axis], b[axis])) for axis in (0, 1)
    )
    size, second_size = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width * height / (size if crowd else size + second_size - width * height)


def reference_match(boxes, truth, least):
    """For each box the object that it takes, or -1."""
    free, partners = set(np.flatnonzero(~truth.crowd)), []
    for box, label in zip(boxes.boxes, boxes.labels, strict=True):
        partner = -1
        for candidates in (sorted(free), np.flatnonzero(truth.crowd)):
            ratios = {
                k: overlap(box, truth.boxes[k], truth.crowd[k])
                for k in candidates
                if truth.labels[k] == label
                and overlap(box, truth.boxes[k], truth.crowd[k]) >= least
            }
            if ratios:
                partner = max(ratios, key=ratios.__getitem__)
                break
        free.discard(partner)
        partners.append(partner)
    return partners


def reference_outcomes(boxes, truth):
    """Outcomes of objects and of boxes."""
    partners = reference_match(boxes, truth, 0.5)
    of_object = [IGNORED if crowd else MISSED for crowd in truth.crowd]
    of_box = [FALSE if k < 0 else IGNORED if truth.crowd[k] else HIT for k in partners]
    for number, k in enumerate(partners):
        if of_box[number] == HIT:
            of_object[k] = HIT
    for error, equal_labels, least, most in (
        (MISLABELLED, False, 0.5, 2.0),
        (MISPLACED, True, 0.1, 0.5),
    ):
        for number, (box, label) in enumerate(zip(boxes.boxes, boxes.labels, strict=True)):
            ratios = {
                k: overlap(box, truth.boxes[k])
                for k, outcome in enumerate(of_object)
                if outcome == MISSED and (truth.labels[k] == label) == equal_labels
            }
            rivals = {k: ratio for k, ratio in ratios.items() if least <= ratio < most}
            if of_box[number] == FALSE and rivals:
                of_box[number] = of_object[max(rivals, key=rivals.__getitem__)] = error
    return of_object, of_box


def test_matches_and_outcomes_are_those_of_the_reference():
    generator = np.random.default_rng(2)
    for _ in range(60):
        boxes, truth = random_picture(generator)
        outcomes = judge(boxes, truth)
        assert (outcomes.objects.tolist(), outcomes.boxes.tolist()) == reference_outcomes(
            boxes, truth
        )
        partners, ignored = match(boxes, truth, (0.3, 0.5, 0.75))
        for level, least in enumerate((0.3, 0.5, 0.75)):
            expected = reference_match(boxes, truth, least)
            assert partners[level].tolist() == expected
            assert ignored[level].tolist() == [k >= 0 and bool(truth.crowd[k]) for k in expected]
        assert truth.count == sum(not crowd for crowd in truth.crowd)
        assert [outcomes.count(error) for error in (MISSED, FALSE)] == [
            outcomes.objects.tolist().count(MISSED),
            outcomes.boxes.tolist().count(FALSE),
        ]


def test_suppression_and_decoding_are_those_of_the_reference():
    generator = np.random.default_rng(3)
    for _ in range(30):
        corners = generator.uniform(0, 30, (20, 2))
        candidates = np.concatenate(
            [corners, corners + generator.uniform(5, 25, (20, 2)), generator.random((20, 3)) ** 3],
            1,
        )
        remaining = []
        for row in sorted(candidates, key=lambda row: -max(row[4:])):
            label, score = int(row[4:].argmax()), max(row[4:])
            clash = any(
                label == second and overlap(row[:4], box) > 0.3 for box, second, _ in remaining
            )
            if score > 0.2 and not clash and len(remaining) < 6:
                remaining.append((row[:4], label, score))
        boxes = decode(candidates, least=0.2, limit=0.3, most=6)
        assert boxes.labels.tolist() == [label for _, label, _ in remaining]
        assert boxes.scores.tolist() == [score for *_, score in remaining]
        assert np.array_equal(boxes.boxes, np.array([box for box, *_ in remaining]).reshape(-1, 4))
        selection = boxes.select_above(0.5)
        assert selection.scores.tolist() == [score for *_, score in remaining if score >= 0.5]
    best = decode(np.array([[0, 0, 1, 1, 0.5, 0.5]]))
    assert best.labels.tolist() == [0] and len(decode(np.array([[0, 0, 1, 1, 0.001]]))) == 0
