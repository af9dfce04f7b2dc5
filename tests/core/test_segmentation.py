"""Criteria for maps: margins by hand, losses against their formulas, and a network whose worst case
is known.
"""

import pytest
import torch

from _helpers import distance
from _refusals import refused
from brinell import plugins
from brinell.attacks.apgd_map import PIXEL_LOSSES, balanced_cross_entropy
from brinell.core import losses
from brinell.core.criterion import MISCLASSIFIED, Worst
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.segmentation import (
    IGNORED,
    SPREAD,
    ClassGone,
    PictureIoU,
    PixelShare,
    TargetMap,
    confusion,
)
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.models._maps import MapModel
from brinell.models._torch_model import TorchModel

MASKS = torch.tensor([[[0, 1], [1, IGNORED]], [[2, 2], [2, 2]]])


def maps_of(classes, count=3):
    """Maps whose largest logit is that of the given classes."""
    return torch.nn.functional.one_hot(torch.tensor(classes), count).movedim(-1, 1).float()


PREDICTED = maps_of([[[0, 0], [1, 2]], [[2, 0], [0, 1]]])


def margin(criterion, maps=PREDICTED):
    flat = maps.flatten(1)
    return criterion.margin(flat, torch.zeros(len(flat), dtype=torch.long), flat)


def test_confusion_by_hand():
    counts = confusion(PREDICTED.argmax(1), MASKS, 3)
    assert counts[0].tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert counts[1].tolist() == [[0, 0, 0], [0, 0, 0], [2, 1, 1]]


def test_share_of_wrong_pixels_by_hand():
    # One of three valid pixels is wrong, and three of four. Three are needed in both, and half a
    # pixel decides.
    expected = torch.tensor([(1 - 3 + 0.5) / 3, 0.5 / 4])
    values = margin(PixelShare(masks=MASKS, classes=3, threshold=0.75))
    assert torch.allclose(values, expected)
    assert PixelShare(masks=MASKS, classes=3).is_met(values, values, None).tolist() == [False, True]


def test_iou_of_a_picture_by_hand():
    # IoU 1/2 and 1/2 of classes 0 and 1; IoU 1/4 of class 2.
    assert torch.allclose(
        margin(PictureIoU(masks=MASKS, classes=3, below=0.4)), torch.tensor([-0.1, 0.15])
    )


def test_a_class_is_gone_when_no_pixel_of_it_keeps_it():
    assert margin(ClassGone(masks=MASKS, classes=3, label=1))[0] < 0
    vanished = maps_of([[[1, 0], [0, 1]], [[1, 1], [1, 1]]])
    assert margin(ClassGone(masks=MASKS, classes=3, label=1), vanished)[0] > 0
    assert margin(ClassGone(masks=MASKS, classes=3, label=1), vanished)[1] < 0, (
        "a picture without the class never meets it"
    )


def test_target_map_counts_pixels_of_the_target():
    targets = torch.zeros_like(MASKS)
    assert torch.allclose(
        margin(TargetMap(masks=MASKS, classes=3, targets=targets, threshold=0.5)),
        torch.tensor([0.5 / 3, 0.125]),
    )


def test_losses_leave_out_ignored_pixels_and_work_on_classes(subtests):
    for name in sorted(PIXEL_LOSSES):
        with subtests.test(name=name):
            logits = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
            criterion = PixelShare(masks=MASKS, classes=3)
            y = torch.zeros(2, dtype=torch.long)
            values = criterion.loss(PIXEL_LOSSES[name], logits, y)
            pixels = criterion.maps(logits).movedim(1, -1)
            for picture in range(2):
                valid = MASKS[picture] != IGNORED
                logits_of_picture = pixels[picture][valid]
                logits_of_picture = (
                    logits_of_picture
                    * SPREAD
                    / (logits_of_picture.amax(1) - logits_of_picture.amin(1)).mean()
                )
                by_class = PIXEL_LOSSES[name](logits_of_picture, MASKS[picture][valid])
                assert torch.allclose(values[picture], by_class.mean(), rtol=1e-5)


def test_jensen_shannon_is_that_of_the_two_distributions():
    logits, y = (
        torch.randn(5, 4, generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 1, 2, 3, 0]),
    )
    p, q = logits.softmax(1), torch.nn.functional.one_hot(y, 4).float()
    middle = (p + q) / 2
    expected = 0.5 * (torch.xlogy(p, p / middle) + torch.xlogy(q, q / middle)).sum(1)
    assert torch.allclose(PIXEL_LOSSES["jensen-shannon"](logits, y), expected, atol=1e-6)


def test_balanced_cross_entropy_turns_from_right_pixels_to_all():
    logits, y = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    entropy = losses.cross_entropy(logits, y)
    assert torch.allclose(
        balanced_cross_entropy(logits, y, 0.0), entropy * torch.tensor([1.0, 0.0])
    )
    assert torch.allclose(balanced_cross_entropy(logits, y, 1.0), entropy / 2)


CRITERIA = {
    "pixels": PixelShare(masks=MASKS, classes=3, threshold=0.5),
    "all": PixelShare(masks=MASKS, classes=3),
    "iou": PictureIoU(masks=MASKS, classes=3, below=0.4),
    "gone": ClassGone(masks=MASKS, classes=3, label=1),
    "target": TargetMap(masks=MASKS, classes=3, targets=torch.full_like(MASKS, 2), threshold=0.5),
}


def test_attacks_see_two_classes_that_judge_alike(subtests):
    for name in CRITERIA:
        for seed in range(8):
            with subtests.test(name=name, seed=seed):
                criterion, y = CRITERIA[name], torch.zeros(2, dtype=torch.long)
                for judge in (criterion, Worst(criterion)):
                    logits = (1 + 9 * (seed % 2)) * torch.randn(
                        2, 12, generator=torch.Generator().manual_seed(seed)
                    )
                    margin, view = (
                        criterion.margin(logits, y, logits),
                        judge.logits_for_attack(logits, y),
                    )
                    assert view.shape == (2, judge.classes_for_attack(12))
                    margin_of_attack = judge.for_attack().margin(view, y, view)
                    assert torch.equal(margin_of_attack > 0, criterion.is_met(margin, logits, y))
                    assert torch.equal(margin_of_attack[margin > 0], margin[margin > 0])


def test_attacks_by_scores_see_pixels_come_nearer_while_none_turns(subtests):
    """The same classes, and one pixel with a smaller lead: the margin stands still, and what an
    attack sees rises.
    """
    for name in CRITERIA:
        with subtests.test(name=name):
            criterion, y = CRITERIA[name].select(slice(0, 1)), torch.zeros(1, dtype=torch.long)
            right = 4 * torch.nn.functional.one_hot(criterion.truth, 3).movedim(-1, 1).float()
            nearer = right.clone()
            nearer[:, :, 0, 1] /= 2  # a pixel of class 1, which all criteria are about
            flat, nearer_flat = (maps.flatten(1) for maps in (right, nearer))
            assert criterion.margin(flat, y, flat) < 0
            assert torch.equal(
                criterion.margin(flat, y, flat), criterion.margin(nearer_flat, y, nearer_flat)
            )
            seen_far, seen_near = (
                criterion.logits_for_attack(logits, y)[:, 1] for logits in (flat, nearer_flat)
            )
            assert seen_near > seen_far


def test_the_gradient_of_a_margin_is_that_of_the_right_pixels():
    logits = PREDICTED.flatten(1).clone().requires_grad_()
    criterion = PixelShare(masks=MASKS, classes=3)
    (grad,) = torch.autograd.grad(
        criterion.margin(logits, torch.zeros(2, dtype=torch.long), logits).sum(), logits
    )
    grad = criterion.maps(grad)
    assert grad[0, :, 0, 0].tolist() == pytest.approx(
        [-SPREAD / 3, SPREAD / 6, SPREAD / 6], rel=1e-5
    )
    assert grad[0, :, 1, 1].abs().sum() == 0, "the ignored pixel"
    assert MISCLASSIFIED.for_attack() is MISCLASSIFIED


def test_a_model_of_another_size_is_refused():
    with pytest.raises(RequestError, check=refused("core.segmentation.MapCriterion.check")):
        PixelShare(masks=MASKS, classes=3).check(10)


OTHER_ATTACKS = ("pgd?steps=3", "square?steps=20", "rlab?steps=20&patch=2&distortions=signed-patch")


@pytest.mark.parametrize(
    "name", [*(f"apgd-map?steps=5&loss={loss}" for loss in sorted(PIXEL_LOSSES)), *OTHER_ATTACKS]
)
def test_the_scale_of_logits_changes_no_attacked_figure(name):
    """Powers of two round nothing, so that inputs, margins and costs are the same to the last bit."""
    count = 2 + len(name) % 2
    domain, gen = Domain(kind="image", shape=(3, 6, 6)), torch.Generator().manual_seed(0)
    weights, x = torch.randn(count, 3, 3, 3, generator=gen), torch.rand(2, 3, 6, 6, generator=gen)
    masks = torch.nn.functional.conv2d(x, weights, padding=1).argmax(1)
    spec = plugins.parse(name)
    attack = plugins.build("attack", spec.name, spec.options)
    outcomes = []
    for scale in (2.0**-6, 1.0, 2.0**6):
        network = torch.nn.Conv2d(3, count, 3, padding=1, bias=False).requires_grad_(False)
        network.weight.copy_(scale * weights)
        batch = Batch(ids=torch.arange(2), x=x, y=torch.zeros(2, dtype=torch.long))
        criterion = PixelShare(masks=masks, classes=count)
        threat = Threat(
            distance=distance("linf"),
            eps=torch.full((2,), 0.05),
            domain=domain,
            criterion=criterion,
        )
        ledger = Ledger(
            MapModel(TorchModel(network, domain)), batch, threat, reach=2.0, strongest=True
        )
        attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, batch.ids))
        assert (ledger.best.margin > -1).all(), "the attack turns pixels"
        outcomes.append((ledger.best.margin, ledger.best.strongest))
    for margins, inputs in outcomes[1:]:
        assert torch.equal(margins, outcomes[0][0]) and torch.equal(inputs, outcomes[0][1])


def test_the_ledger_computes_a_margin_once_for_each_gradient(monkeypatch):
    computed = []
    original = PixelShare.margin
    monkeypatch.setattr(
        PixelShare, "margin", lambda *values: computed.append(1) or original(*values)
    )
    domain = Domain(kind="image", shape=(3, 2, 2))
    model = MapModel(TorchModel(torch.nn.Conv2d(3, 3, 1), domain))
    batch = Batch(
        ids=torch.arange(2), x=torch.full((2, 3, 2, 2), 0.5), y=torch.zeros(2, dtype=torch.long)
    )
    criterion = PixelShare(masks=MASKS, classes=3)
    threat = Threat(
        distance=distance("linf"), eps=torch.full((2,), 0.1), domain=domain, criterion=criterion
    )
    answer = (
        Ledger(model, batch, threat, batch_size=1)
        .oracle()
        .gradient(batch.ids, batch.x, losses.margin)
    )
    assert len(computed) == 2, "one for each of two batches"
    maps = model.predict(batch.x).detach()
    assert torch.equal(
        losses.margin(answer.logits, batch.y), original(criterion, maps, batch.y, batch.x)
    )


def test_descriptions_hold_the_settings_and_no_masks():
    assert CRITERIA["pixels"].describe() == {"name": "pixels", "classes": 3, "threshold": 0.5}
    assert CRITERIA["iou"].describe() == {"name": "iou", "classes": 3, "below": 0.4}
    assert CRITERIA["gone"].describe() == {"name": "gone", "classes": 3, "label": 1, "share": 0.0}
    assert CRITERIA["target"].describe() == {"name": "target", "classes": 3, "threshold": 0.5}
