"""Figures and pages of pictures that differ in everything, against counts that are made picture by picture."""

import json

import numpy as np
import pytest

from approval import approve, page_text
from brinell.analysis.average_precision import average_precision, match_set
from brinell.core.boxes import ERRORS, FALSE, Detections, Objects, judge
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.table import Folder
from brinell.studies.answer_text import pack_answer, pack_pairs
from brinell.studies.dense import analysis, detection_analysis, detection_page, segmentation_page, terminal
from brinell.studies.dense.records import CERTIFIED, CLEAN, Answers, inputs_path
from brinell.studies.dense.segmentation_analysis import Candidates, ious, miou

SAMPLES, LEVELS, LEAST = (4, 7, 9, 12), (0.1, 0.25), 0.4
MANIFEST = {
    "request": {"norm": "linf", "criterion": None, "least_score": LEAST, "lipschitz": None},
    "levels": list(LEVELS),
    "names": [f"{name}.png" for name in ("fir", "oak", "elm", "ash")],
    "group": 2,
    "models": [{"name": "net", "notes": ["a note of the model"]}],
    "checks": [{"code": "gradient", "passed": False, "text": "the gradient is zero"}],
}


def folder_of(path, task, table, **facts):
    """A folder whose pictures are noise of their own."""
    rng = np.random.default_rng(0)
    for group in range(2):
        arrays = {}
        for sample in SAMPLES[2 * group : 2 * group + 2]:
            arrays[f"picture-{sample}"] = rng.integers(0, 256, (3, 8, 8)).astype(np.uint8)
            for name in ("mask", "before", "after"):
                arrays[f"{name}-{sample}"] = rng.integers(0, 3, (8, 8)).astype(np.uint8)
        write_arrays(path / inputs_path(group), arrays)
    return Folder(path=path, manifest=MANIFEST | {"task": task} | facts, rows=rows.concatenate(table))


# Boxes


def objects_of(rng, number):
    """`number` objects of three classes and a crowd."""
    low = rng.integers(0, 5, (number + 1, 2)).astype(float)
    boxes = np.concatenate([low, low + rng.integers(2, 4, (number + 1, 2))], 1)
    return Objects(boxes=boxes, labels=rng.integers(0, 3, number + 1), crowd=np.arange(number + 1) == number)


def detections_of(rng, objects, spoiled):
    """A box for each object, of which some are moved, of another class, or of a low score, and boxes of nothing."""
    boxes, labels, n = objects.boxes.copy(), objects.labels.copy(), len(objects)
    boxes += np.where(rng.random((n, 1)) < spoiled, rng.choice([1.0, 3.0], (n, 1)), 0)
    labels = np.where(rng.random(n) < spoiled / 2, (labels + 1) % 3, labels)
    scores = np.where(rng.random(n) < spoiled / 2, 0.2, 0.5) + rng.random(n) / 5
    surplus = rng.integers(0, 3)
    extra = np.array([[6.0, 6, 8, 8]])[np.zeros(surplus, int)] + rng.random((surplus, 1))
    order = np.argsort(-(scores := np.concatenate([scores, 0.3 + rng.random(surplus) / 2])))
    boxes, labels = np.concatenate([boxes, extra]), np.concatenate([labels, np.zeros(surplus, int)])
    return Detections(boxes=boxes[order].round(2), labels=labels[order], scores=scores[order].round(6))


class Boxes:
    """Random answers: `answers` by picture, attack and level."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.objects = [objects_of(rng, number) for number in (2, 4, 0, 3)]
        self.answers, self.rows = {}, []
        for number, sample in enumerate(SAMPLES):
            for attack, level in [(CLEAN, 0), *((f"{error}/pgd", level) for error in ("missed", "false") for level in (1, 2))]:
                boxes = detections_of(rng, self.objects[number], 0.15 if attack == CLEAN else 0.3 * level)
                self.answers[number, attack.partition("/")[0], level] = boxes
                self.rows.append(
                    rows.build(
                        Answers,
                        1,
                        sample_id=sample,
                        attack=attack,
                        eps=(0.0, *LEVELS)[level],
                        outcome="open",
                        margin=rng.normal(),
                        forwards=rng.integers(1, 100),
                        backwards=rng.integers(1, 100),
                        seconds=rng.random(),
                        answer=pack_answer(boxes, self.objects[number] if attack == CLEAN else None),
                    )
                )

    def count(self, number, aim, level, error):
        """Errors of a kind in an answer."""
        return judge(self.answers[number, aim, level].select_above(LEAST), self.objects[number]).count(error)

    def most(self, number, error, level):
        """The most errors of a kind, of the untouched picture and the inputs aimed at that kind."""
        inputs = [(CLEAN, 0), *((error, smaller) for smaller in range(1, level + 1))]
        return max(self.count(number, aim, step, error) for aim, step in inputs)

    def misses(self, number, aim, level):
        """Objects that an answer does not find."""
        return sum(self.count(number, aim, level, error) for error in ERRORS if error != FALSE)


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_boxes_are_the_most_of_each_picture(seed, tmp_path):
    boxes = Boxes(seed)
    result = analysis.summarise(folder_of(tmp_path, "detection", boxes.rows, data={"name": "d", "classes": list("abc")}))
    counts = [2, 4, 0, 3]
    assert (result.n, result.objects, result.with_objects, result.criterion) == (4, 9, 3, "missed+false")
    for level in range(3):
        for error, total in (("missed", 9), ("false", 4)):
            figure = getattr(result.errors, error)[level]
            assert figure.value == pytest.approx(sum(boxes.most(number, error, level) for number in range(4)) / total)
            assert figure.eps == (0.0, *LEVELS)[level] and figure.low <= figure.value <= figure.high
        for number, picture in enumerate(result.pictures):
            assert (picture.sample, picture.name, picture.objects) == (SAMPLES[number], MANIFEST["names"][number], counts[number])
    clean = [boxes.answers[number, CLEAN, 0] for number in range(4)]
    half, mean = average_precision(match_set(clean, boxes.objects))
    assert (result.ap50[0].value, result.ap[0].value) == pytest.approx((half[0], mean[0]))
    assert result.recall[0].value == pytest.approx(1 - sum(boxes.misses(number, CLEAN, 0) for number in range(4)) / 9)
    assert [picture.losses[0] for picture in result.pictures] == [boxes.misses(number, CLEAN, 0) for number in range(4)]
    assert len({tuple(picture.losses) for picture in result.pictures}) > 2
    table = rows.concatenate(boxes.rows)
    for aim in result.aims:
        index = [text.startswith(aim.error) for text in table.attack] & (table.eps == aim.eps)
        costs = [getattr(table, name)[index].sum() for name in ("forwards", "backwards", "seconds")]
        assert [aim.forwards, aim.backwards, aim.seconds] == pytest.approx(costs)
        if aim.error != CLEAN:
            level = LEVELS.index(aim.eps) + 1
            assert getattr(aim, aim.error) == sum(boxes.most(number, aim.error, level) for number in range(4))
        assert aim.recall == pytest.approx(1 - (aim.missed + aim.mislabelled + aim.misplaced) / 9)


def test_what_is_shown_of_boxes(tmp_path):
    table = Boxes(5).rows
    facts = {"data": {"name": "d", "classes": ["red", "green", "blue", "grey"]}, "attacks": ["missed/pgd", "false/pgd"]}
    folder = folder_of(tmp_path, "detection", table, **facts)
    result = detection_analysis.summarise(folder)
    texts = ["\n".join(terminal.lines(result)), page_text(detection_page.render(folder)), json.dumps(result.payload(), indent=1)]
    approve("dense-boxes", "\n\n".join(texts))


# Masks


class Masks:
    """Random counts of pixels by picture, attack and level; the last picture has none."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.true = np.array([[40, 13, 0], [11, 30, 23], [5, 0, 50], [0, 0, 0]])
        self.counts, self.rows = {}, []
        for number, sample in enumerate(SAMPLES):
            cases = [(CLEAN, 0), *((attack, level) for attack in ("pgd", "apgd-map", CERTIFIED) for level in (1, 2))]
            for attack, level in cases if number < 3 else [cases[0], *cases[-2:]]:
                share = 0.1 if attack == CLEAN else 0.35 * level
                counts = np.stack(
                    [rng.multinomial(n, self.turned(k, share * rng.random())) for k, n in enumerate(self.true[number])]
                )
                if attack != CERTIFIED:
                    self.counts[number, attack, level] = counts
                wrong = int(counts.sum() - counts.trace())
                self.rows.append(
                    rows.build(
                        Answers,
                        1,
                        sample_id=sample,
                        attack=attack,
                        eps=(0.0, *LEVELS)[level],
                        outcome=rng.choice(["open", "met"]),
                        margin=rng.normal(),
                        forwards=rng.integers(1, 100),
                        backwards=rng.integers(1, 100),
                        seconds=rng.random(),
                        valid=int(counts.sum()),
                        wrong=wrong,
                        answer="" if attack == CERTIFIED else pack_pairs(counts),
                    )
                )

    def turned(self, k, share):
        """Probabilities of the predicted classes of class k."""
        p = np.full(3, share / 3)
        p[k] += 1 - share
        return p

    def fewest(self, number, level):
        """The fewest right pixels of a picture within a budget."""
        return min(c.trace() for (n, _, step), c in self.counts.items() if n == number and step <= level)


@pytest.mark.parametrize("seed", range(3))
def test_pixels_that_stay_right_are_the_fewest_of_each_picture(seed, tmp_path):
    masks = Masks(seed)
    folder = folder_of(
        tmp_path, "segmentation", masks.rows, data={"name": "d", "classes": list("abcd")}, attacks=["pgd", "apgd-map"]
    )
    result = analysis.summarise(folder)
    valid = masks.true.sum(1)
    for level, figure in enumerate(result.pixel_accuracy):
        right = [masks.fewest(number, level) for number in range(4)]
        assert figure.value == pytest.approx(sum(right) / valid.sum())
        for number, picture in enumerate(result.pictures):
            share = right[number] / valid[number] if valid[number] else None
            assert (picture.sample, picture.name) == (SAMPLES[number], MANIFEST["names"][number])
            assert picture.accuracy[level] == (share if share is None else pytest.approx(share))
    clean = sum(masks.counts[number, CLEAN, 0] for number in range(4))
    iou = [clean[k, k] / (clean[k].sum() + clean[:, k].sum() - clean[k, k]) for k in range(3)]
    assert [figures.iou[0] for figures in result.per_class] == pytest.approx(iou)
    assert result.miou[0].value == pytest.approx(np.mean(iou)) and ious(clean) == pytest.approx(iou)
    assert [(c.class_, c.name, c.pixels, c.pictures) for c in result.per_class] == [
        (k, "abc"[k], masks.true[:, k].sum(), (masks.true[:, k] > 0).sum()) for k in range(3)
    ]
    for attack in result.attacks:
        level = LEVELS.index(attack.eps) + 1
        counts = [masks.counts[number, attack.attack, level] for number in range(3)]
        assert attack.pixel_accuracy == pytest.approx(sum(c.trace() for c in counts) / valid.sum()) and attack.pictures == 3
    values = [figure.value for figure in result.miou]
    assert values == sorted(values, reverse=True)
    candidates = Candidates(folder.rows, LEVELS)
    for level, indices in enumerate(candidates.lowest_miou()):
        start = miou(candidates.counts[candidates.most_wrong()[level]].sum(0))
        assert miou(candidates.counts[indices].sum(0)) <= start + 1e-12 and candidates.picture[indices].tolist() == [0, 1, 2, 3]


def test_what_is_shown_of_masks(tmp_path):
    request = MANIFEST["request"] | {"lipschitz": 1.5, "criterion": "pixels:0.5"}
    facts = {"data": {"name": "d", "classes": ["sky", "road", "tree", "car"]}, "attacks": ["pgd", "apgd-map"], "request": request}
    folder = folder_of(tmp_path, "segmentation", Masks(5).rows, **facts)
    result = analysis.summarise(folder)
    texts = [
        "\n".join(terminal.lines(result)),
        page_text(segmentation_page.render(folder)),
        json.dumps(result.payload(), indent=1),
    ]
    approve("dense-masks", "\n\n".join(texts))
