"""Figures of pictures that differ in everything, against counts that are made picture by picture."""

from dataclasses import replace

import numpy as np
import pytest

from brinell.analysis.average_precision import average_precision, match_set
from brinell.analysis.pictures import BoxPictures, Maps, ious
from brinell.core.boxes import ERRORS, FALSE, Detections, Objects, judge
from brinell.engine.tasks import pack_boxes, pack_pairs

LEVELS, LEAST = 2, 0.4


def pictures_of(kind, cases):
    """The answers of cases (picture, aim, level, text)."""
    picture, aim, level, text = (list(column) for column in zip(*cases, strict=True))
    margin = np.random.default_rng(1).normal(size=len(cases))
    return kind(
        np.array(text, dtype=object),
        np.array(picture),
        np.flatnonzero(np.array(level) == 0),
        level=np.array(level),
        aim=np.array(aim, dtype=object),
        margin=np.ma.array(margin, mask=np.array(level) == 0),
        least_score=LEAST,
    )


def objects_of(rng, number):
    """`number` objects of three classes and a crowd."""
    low = rng.integers(0, 5, (number + 1, 2)).astype(float)
    boxes = np.concatenate([low, low + rng.integers(2, 4, (number + 1, 2))], 1)
    return Objects(
        boxes=boxes, labels=rng.integers(0, 3, number + 1), crowd=np.arange(number + 1) == number
    )


def detections_of(rng, objects, spoiled):
    """A box for each object, of which some are moved, of another class, or of a low score, and
    boxes of nothing."""
    boxes, labels, n = objects.boxes.copy(), objects.labels.copy(), len(objects)
    boxes += np.where(rng.random((n, 1)) < spoiled, rng.choice([1.0, 3.0], (n, 1)), 0)
    labels = np.where(rng.random(n) < spoiled / 2, (labels + 1) % 3, labels)
    scores = np.where(rng.random(n) < spoiled / 2, 0.2, 0.5) + rng.random(n) / 5
    surplus = rng.integers(0, 3)
    extra = np.array([[6.0, 6, 8, 8]])[np.zeros(surplus, int)] + rng.random((surplus, 1))
    order = np.argsort(-(scores := np.concatenate([scores, 0.3 + rng.random(surplus) / 2])))
    boxes, labels = np.concatenate([boxes, extra]), np.concatenate([labels, np.zeros(surplus, int)])
    return Detections(
        boxes=boxes[order].round(2), labels=labels[order], scores=scores[order].round(6)
    )


def test_errors_of_boxes_are_the_most_of_each_picture():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        objects = [objects_of(rng, number) for number in (2, 4, 0, 3)]
        places = [("", 0), *((error, level) for error in ("missed", "false") for level in (1, 2))]
        answers = {
            (number, aim, level): detections_of(rng, objects[number], 0.3 * level or 0.15)
            for number in range(4)
            for aim, level in places
        }
        boxes = pictures_of(
            BoxPictures,
            [
                (n, a, k, pack_boxes(found, None if k else objects[n]))
                for (n, a, k), found in answers.items()
            ],
        )

        def errors(number, aim, level, error):
            """Errors of a kind in an answer."""
            return judge(answers[number, aim, level].select_above(LEAST), objects[number]).count(
                error
            )

        def most(number, error, level):
            """The most errors of a kind, of the untouched picture and the inputs aimed at that
            kind."""
            inputs = [("", 0), *((error, smaller) for smaller in range(1, level + 1))]
            return max(errors(number, aim, step, error) for aim, step in inputs)

        assert boxes.total.tolist() == [2, 4, 0, 3]
        for level in range(LEVELS + 1):
            for error, total in (("missed", 9), ("false", 4)):
                figure = boxes.figure(error, boxes.worst(error, level))
                assert figure["value"] == pytest.approx(
                    sum(most(number, error, level) for number in range(4)) / total
                )
                assert figure["low"] is None or figure["low"] < figure["high"]
                assert figure["low"] is None or figure["low"] <= figure["value"] <= figure["high"]
            assert (boxes.least_right(level) <= boxes.right(boxes.worst("recall", level))).all()
        half, mean = average_precision(
            match_set([answers[number, "", 0] for number in range(4)], objects)
        )
        assert boxes.value("AP50", boxes.clean) == pytest.approx(half[0])
        assert boxes.value("AP", boxes.clean) == pytest.approx(mean[0])
        lost = sum(
            errors(number, "", 0, error)
            for number in range(4)
            for error in ERRORS
            if error != FALSE
        )
        assert boxes.value("recall", boxes.clean) == pytest.approx(1 - lost / 9)
        for name in ("recall", "AP50", "AP"):
            values = [boxes.value(name, boxes.worst(name, level)) for level in range(LEVELS + 1)]
            assert values == sorted(values, reverse=True)


def test_lower_scores_of_all_boxes_change_recall_and_not_ap():
    rng = np.random.default_rng(0)
    objects = [objects_of(rng, number) for number in (2, 3)]
    found = [detections_of(rng, picture, 0.2) for picture in objects]
    faint = [replace(boxes, scores=boxes.scores / 10) for boxes in found]
    plain, lower = (
        pictures_of(
            BoxPictures,
            [(n, "", 0, pack_boxes(boxes, objects[n])) for n, boxes in enumerate(group)],
        )
        for group in (found, faint)
    )
    assert lower.value("AP50", lower.clean) == plain.value("AP50", plain.clean) > 0
    assert lower.value("recall", lower.clean) == 0


def test_pixels_that_stay_right_are_the_fewest_of_each_picture():
    true = np.array([[40, 13, 0], [11, 30, 23], [5, 0, 50], [0, 0, 0]])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        counts = {}
        for number in range(4):
            for aim, level in (
                [("", 0), *((attack, level) for attack in "ab" for level in (1, 2))]
                if number < 3
                else [("", 0)]
            ):
                share = 0.35 * level * rng.random() or 0.1
                rows = [
                    rng.multinomial(n, np.full(3, share / 3) + (1 - share) * np.eye(3)[k])
                    for k, n in enumerate(true[number])
                ]
                counts[number, aim, level] = np.stack(rows)
        maps = pictures_of(
            Maps,
            [
                (number, aim, level, pack_pairs(value))
                for (number, aim, level), value in counts.items()
            ],
        )
        values = []
        for level in range(LEVELS + 1):
            right = [
                min(
                    c.trace() for (n, _, step), c in counts.items() if n == number and step <= level
                )
                for number in range(4)
            ]
            assert maps.least_right(level).tolist() == right
            figure = maps.figure("pixel accuracy", maps.worst("pixel accuracy", level))
            assert (
                figure["value"] == pytest.approx(sum(right) / true.sum())
                and figure["low"] is None  # four pictures are too few for an interval
            )
            index = maps.worst("mean IoU", level)
            values.append(maps.value("mean IoU", index))
            assert maps.picture[index].tolist() == [0, 1, 2, 3]
            assert values[-1] <= maps.value("mean IoU", maps.worst("pixel accuracy", level)) + 1e-12
        clean = sum(counts[number, "", 0] for number in range(4))
        iou = [clean[k, k] / (clean[k].sum() + clean[:, k].sum() - clean[k, k]) for k in range(3)]
        labels, of_classes = maps.class_values(maps.clean)
        assert (
            labels.tolist() == [0, 1, 2]
            and of_classes == pytest.approx(iou)
            and ious(clean) == pytest.approx(iou)
        )
        assert values[0] == pytest.approx(np.mean(iou)) and values == sorted(values, reverse=True)
        assert [maps.class_sizes(k).tolist() for k in range(3)] == true.T.tolist()


def test_inputs_of_smaller_budgets_count_at_larger_ones():
    """Candidates of a set are exchanged only where that lowers its mean IoU, so it never rises."""
    texts = [
        (0, "", 0, "[[0,0,10]]"),
        (1, "", 0, "[[1,1,10]]"),
        (0, "a", 1, "[[0,0,4],[0,1,6]]"),
        (1, "a", 1, "[[1,1,5],[1,0,5]]"),
        (0, "a", 2, "[[0,0,8],[0,1,2]]"),
        (1, "a", 2, "[[1,1,9],[1,0,1]]"),
    ]
    maps = pictures_of(Maps, texts)
    assert [maps.right(maps.worst("pixel accuracy", level)).sum() for level in range(3)] == [
        20,
        9,
        9,
    ]
    values = [maps.value("mean IoU", maps.worst("mean IoU", level)) for level in range(3)]
    assert values[0] == 1 and values[1] == values[2] == pytest.approx((4 / 15 + 5 / 16) / 2)
