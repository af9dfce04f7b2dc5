"""Answers of detectors as candidates (n, K, 4 + C): tensors, raw outputs that a function decodes,
and lists of boxes.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.boxes import HIT, MATCH, MOST, Objects, judge, overlaps
from brinell.core.checks import ERROR_RATE, exact_test
from brinell.core.detection import UNSUPPRESSED, BoxForm
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array
from brinell.core.user_files import hash_code, import_file, path_hint

KEYS = ("boxes", "scores", "labels")
"""The entries of torchvision's answer for one picture."""
ROUNDING = 1e-3
"""By how much a score may leave 0 to 1."""
MOST_TURNED = 0.05
"""Share of the candidates whose corners may be in the wrong order."""
FAINT = 0.05
"""A score above which a faint detector shows its boxes."""
FAR_MORE = 10
"""A detector is faint if it finds so many times the objects by boxes above `FAINT`."""

Decoder = Callable[[Any], Any]
"""The raw output of a network to candidates (n, K, 4 + C): corners in pixels, then a score from
0 to 1 for each class."""


def open_decoder(text: str) -> tuple[Decoder, str]:
    """The function that `decode=FILE.py:FUNCTION` names, and a hash of its file."""
    source, _, name = text.rpartition(":")
    file = Path(source).expanduser()
    if not source or not file.is_file():
        raise RequestError(
            f"decode={text} names no function of a file: write "
            f"decode=FILE.py:FUNCTION{path_hint(file) if source else ''}"
        )

    function = getattr(import_file(file), name, None)
    if not callable(function):
        raise RequestError(
            f"{file} has no function {name!r}: name one that turns the raw output "
            "into boxes and scores"
        )
    # The digest of a model covers the function that reads its answers.
    return function, f"{hash_code(file)} {name}"


class Decoded(nn.Module):
    """A network with the function that decodes its raw output."""

    def __init__(self, network: nn.Module, decode: Decoder) -> None:
        super().__init__()
        self.network, self._decode = network, decode

    def forward(self, x: Tensor) -> Any:
        """The function's form of the network's answer."""
        return self._decode(self.network(x))


def is_box_list(answer: Any) -> bool:
    """True for torchvision's form: a dict of boxes, scores and labels for each picture."""
    return (
        isinstance(answer, list | tuple)
        and len(answer) > 0
        and all(
            isinstance(entry, Mapping) and all(key in entry for key in KEYS) for entry in answer
        )
    )


def pad_boxes(answer: Sequence[Mapping[str, Any]], classes: int, x: Tensor, name: str) -> Tensor:
    """(n, MOST, 4 + classes): lists of final boxes as candidates, the best first.

    Each has the score of its class alone.
    """
    # Lists of several lengths are padded with boxes of score 0, which no threshold lets through.
    candidates = torch.zeros(len(answer), MOST, 4 + classes, device=x.device)
    for row, entry in enumerate(answer):
        boxes, scores, labels = (torch.as_tensor(entry[key]).detach().to(x.device) for key in KEYS)
        # Sorted, so that cutting the list drops the least certain boxes.
        order = scores.argsort(descending=True)[:MOST]
        label = labels[order].long()
        if len(order) and not 0 <= int(label.min()) <= int(label.max()) < classes:
            raise RequestError(
                f"{name} answers the class {int(label.max())}, and the data have "
                f"classes 0 to {classes - 1}: number them as those of the data, without one for "
                "the background, such as by labels - 1"
            )

        place = torch.arange(len(order), device=x.device)
        candidates[row, place, :4] = boxes[order].reshape(-1, 4).float()
        candidates[row, place, 4 + label] = scores[order].float()
    return candidates


def box_form(candidates: Any, n: int, name: str, *, final: bool = False) -> BoxForm:
    """The form of a detector's answers, after a check of those to n inputs."""
    if (
        not isinstance(candidates, Tensor)
        or candidates.ndim != 3
        or len(candidates) != n
        or candidates.shape[2] < 5
    ):
        shape = (
            tuple(candidates.shape)
            if isinstance(candidates, Tensor)
            else f"a {type(candidates).__name__}"
        )
        raise RequestError(
            f"{name} answers {n} pictures with {shape}: return (n, candidates, 4 "
            "+ classes), corners in pixels and then a score "
            "for each class, or name a function that does so by decode=FILE.py:FUNCTION"
        )

    scores = candidates[..., 4:].detach()
    if not bool(torch.isfinite(candidates.detach()).all()):
        raise RequestError(
            f"{name} answers candidates with NaN or infinity: look for an overflow in it"
        )
    if not _are_scores(scores):
        # A common mistake: the layout of YOLO, with the candidates along the last axis.
        turned = candidates.detach().transpose(1, 2)
        remedy = (
            "the candidates are along its last axis: return answer.transpose(1, 2)"
            if turned.shape[2] > 4 and _are_scores(turned[..., 4:])
            else "return scores from 0 to 1 after the four corners, such as those of "
            "a sigmoid, or (n, classes) logits of a "
            "classifier"
        )
        raise RequestError(
            f"{name} answers with shape {tuple(candidates.shape)}, as a detector "
            f"does, and scores from {float(scores.min()):.3g} "
            f"to {float(scores.max()):.3g}: {remedy}"
        )

    # Final boxes were suppressed by the model itself.
    limit = {"limit": UNSUPPRESSED} if final else {}
    return BoxForm(candidates=candidates.shape[1], classes=candidates.shape[2] - 4, **limit)


def check_corners(
    candidates: Tensor,
    objects: Sequence[Objects],
    sides: tuple[int, ...],
    name: str,
    shown: float,
) -> None:
    """Refuse boxes (n, K, 4 + C) that are no corners in pixels, by the objects of n real pictures,
    or by what the model shows there at scores above `shown`; what it answers where it sees nothing
    says nothing.
    """
    # With the objects of real pictures the right form is found by how the boxes lie on them.
    corners = better_corners(candidates, objects, sides)
    if corners.titles:
        mended = torch.cat((corners.apply(candidates[..., :4]), candidates[..., 4:]), -1)
        form = BoxForm(candidates=candidates.shape[1], classes=candidates.shape[2] - 4)
        further = mistakes_of_boxes(mended, form, objects, shown)
        raise RequestError(
            f"{name} answers boxes {', '.join(corners.titles)}, by which they lie on the objects "
            f"of {len(objects)} pictures: {', then '.join(corners.lines)}"
            + "".join(f"; and then {line}" for line in further[:1])
        )
    # Without it, only boxes that the model itself believes in say anything about their form.
    boxes = candidates[..., :4][candidates[..., 4:].amax(-1) > shown]
    if not len(boxes):
        return

    turned = float((boxes[:, 2:] < boxes[:, :2]).any(-1).float().mean())
    if turned > MOST_TURNED:
        raise RequestError(
            f"{name} answers boxes of which {100 * turned:.0f} % are no corners x0, y0, x1, y1, "
            "since x1 < x0 or y1 < y0: if they are centre and sides, return centre - sides / 2 "
            "and centre + sides / 2; if a corner and sides, return x, y, x + width, y + height"
        )
    if max(sides) > 8 and float(boxes.abs().max()) <= 2.0:
        raise RequestError(
            f"{name} answers corners up to {float(boxes.max()):.3g}, as "
            "fractions: multiply them by the picture's sides"
        )


CORNERS: dict[str, tuple[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = {
    "": ("", lambda first, second: (first, second)),
    "as centre and sides": (
        "return centre - sides / 2 and centre + sides / 2",
        lambda centre, sides: (centre - sides / 2, centre + sides / 2),
    ),
    "as a corner and sides": (
        "return x, y, x + width, y + height",
        lambda corner, sides: (corner, corner + sides),
    ),
}
"""The pairs of numbers that people return in place of two corners: what to do, and the corners."""
NETWORKS = (300, 320, 416, 512, 640, 800)
"""Usual sides of the pictures that detectors work on inside."""
MOST_MATCHED = 300
"""Candidates of a picture, those of the highest scores, that may be of an object."""


class CornerForm(NamedTuple):
    """A form in which people return corners."""

    titles: tuple[str, ...]
    """What is changed, in words; empty for corners in pixels."""
    lines: tuple[str, ...]
    """What to do about each."""
    apply: Callable[[Tensor], Tensor]
    """The corners in pixels of boxes (..., 4) in this form."""


def corner_forms(height: int, width: int) -> Iterator[CornerForm]:
    """The forms of corners in pictures of a size, composed of a unit, an order of the axes and a
    pair; the usual ones first.
    """
    units = {
        ("", ""): (1.0, 1.0),
        ("as fractions", f"multiply by {width} and {height}"): (width, height),
    }
    # Networks often answer in pixels of the square that they were trained on.
    for side in NETWORKS:
        words = f"in pixels of {side} x {side}", f"multiply by {width}/{side} and {height}/{side}"
        units[words] = width / side, height / side

    choices = itertools.product(CORNERS.items(), (False, True), units.items())
    for (pair, (line, corners)), is_turned, (unit, factors) in choices:
        turn = ("with x and y exchanged", "return x before y") if is_turned else ("", "")
        parts = [part for part in (turn, unit, (pair, line)) if part[0]]
        titles, lines = tuple(title for title, _ in parts), tuple(line for _, line in parts)
        yield CornerForm(titles, lines, partial(_corners, corners, is_turned, factors))


def _corners(
    corners: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    is_turned: bool,
    factors: tuple[float, float],
    boxes: Tensor,
) -> Tensor:
    """Boxes (..., 4) as corners in pixels."""
    # Two pairs of x and y, which may be exchanged, and have the same factors.
    boxes = boxes[..., [1, 0, 3, 2]] if is_turned else boxes
    boxes = boxes * boxes.new_tensor(factors * 2)
    return torch.cat(corners(boxes[..., :2], boxes[..., 2:]), -1)


def better_corners(
    candidates: Tensor, objects: Sequence[Objects], sides: tuple[int, ...]
) -> CornerForm:
    """The form in which candidates (n, K, 4 + C) lie on more objects of n pictures of these sides,
    by a paired exact test; that of corners in pixels if no other is better.
    """
    # Corners in pixels come first, whose form has no title; of equal ones the simplest wins.
    forms = sorted(corner_forms(*sides), key=lambda form: len(form.titles))
    likely = candidates[..., 4:].amax(-1).topk(min(MOST_MATCHED, candidates.shape[1])).indices
    boxes = candidates[..., :4].gather(1, likely[..., None].expand(-1, -1, 4))
    hits = np.array([_lie_on(form.apply(boxes), objects) for form in forms])
    best = int(hits.sum(1).argmax())
    return forms[best if is_more(hits[best], hits[0], ERROR_RATE / len(forms)) else 0]


def _lie_on(boxes: Tensor, objects: Sequence[Objects]) -> Array:
    """(m,) bool: for each object of n pictures whether one of its boxes (n, K, 4) matches it."""
    shares = [
        overlaps(rows, picture.boxes[~picture.crowd]).max(0, initial=0.0)
        for rows, picture in zip(boxes.double().cpu().numpy(), objects, strict=True)
    ]
    return np.asarray(np.concatenate(shares) >= MATCH)


def _are_scores(scores: Tensor) -> bool:
    """True for numbers from 0 to 1, up to rounding."""
    return bool((scores >= -ROUNDING).all()) and bool((scores <= 1 + ROUNDING).all())


def decode_raw(decode: Decoder, raw: Tensor, name: str) -> Any:
    """The decoded answer of a network that gives no gradients."""
    try:
        return decode(raw)
    except Exception as error:
        raise RequestError(
            f"the decode function of {name} fails on {tuple(raw.shape)} "
            f"({type(error).__name__}: {one_line(error)})"
        ) from None


SHIFTS = {
    0: ("as given", ""),
    -1: (
        "with the class minus 1",
        "leave out its first class, a background, or count labels from 1",
    ),
    1: ("with the class plus 1", "count the labels of the data from 0"),
}
"""Numbers added to the classes of boxes, in words, and what to do."""
SHOWN_AT = (
    f"at scores above {FAINT}",
    f"end the criterion with @{FAINT}, such as missed@{FAINT}",
)
"""Fainter boxes in words, and what to do."""


def mistakes_of_boxes(
    candidates: Tensor, form: BoxForm, objects: Sequence[Objects], shown: float
) -> list[str]:
    """Explanations of candidates (n, K, 4 + C) that miss the objects, whose corners are right.

    They are changes of classes and scores by which the boxes find far more, by a paired exact test.
    """
    corners, scores = candidates[..., :4], candidates[..., 4:]

    def find(shift: int, least: float) -> Array:
        """(m,) bool: the objects that are found by shifted classes and by scores above
        the least.
        """
        answers = torch.cat((corners, scores.roll(shift, -1)), -1).flatten(1)
        pairs = zip(form.decode(answers, least), objects, strict=True)
        return np.concatenate([judge(*pair).objects == HIT for pair in pairs])

    # The answers as they are come first, with no change.
    hits, changes = [find(0, shown)], [list[tuple[str, str]]()]
    for shift, words in SHIFTS.items():
        clear, faint = find(shift, shown), find(shift, min(shown, FAINT))
        # Any detector finds some more by fainter boxes.
        is_faint = bool(faint.sum() > FAR_MORE * clear.sum())
        hits.append(faint if is_faint else clear)
        changes.append([words] * (shift != 0) + [SHOWN_AT] * is_faint)

    counts = np.array([part.sum() for part in hits])
    best = int(counts.argmax())
    # The best of several changes: their number divides the error rate (Bonferroni).
    if counts[best] < 2 * counts[0] or not is_more(hits[best], hits[0], ERROR_RATE / len(hits)):
        return []
    titles, lines = (" and ".join(texts) for texts in zip(*changes[best], strict=True))
    total = sum(picture.count for picture in objects)
    return [f"it finds {counts[0]} of {total} objects, and {counts[best]} {titles}: {lines}"]


def is_more(hits: Array, base_hits: Array, rate: float) -> bool:
    """True if more of the same objects are hit (m,) bool than by others, by a paired exact test."""
    # Objects that both hit, or neither, say nothing; of the others each side gets half by chance.
    wins, defeats = int((hits & ~base_hits).sum()), int((base_hits & ~hits).sum())
    return exact_test(wins, wins + defeats, 0.5, rate)[0]
