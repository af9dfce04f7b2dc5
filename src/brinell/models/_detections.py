"""Answers of detectors as candidates (n, K, 4 + C): tensors, raw outputs that a function decodes,
and lists of boxes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.boxes import HIT, MOST, Objects, judge
from brinell.core.detection import BoxForm
from brinell.core.errors import RequestError, one_line
from brinell.core.user_files import hash_code, import_file, path_hint
from brinell.models._maps import explain

KEYS = ("boxes", "scores", "labels")
"""The entries of torchvision's answer for one picture."""
ROUNDING = 1e-3
"""By how much a score may leave 0 to 1."""
MOST_TURNED = 0.05
"""Share of the candidates whose corners may be in the wrong order."""
FAINT, FEWEST = 0.05, 3
"""A score above which a faint detector shows its boxes, and the fewest objects by which a
mistake is told."""
UNSUPPRESSED = 1.0
"""The limit of overlap of a model whose boxes passed its own suppression: nothing more is
dropped."""

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
    candidates = torch.zeros(len(answer), MOST, 4 + classes, device=x.device)
    for row, entry in enumerate(answer):
        boxes, scores, labels = (torch.as_tensor(entry[key]).detach().to(x.device) for key in KEYS)
        order = scores.argsort(descending=True)[:MOST]
        label = labels[order].long()
        if len(order) and not 0 <= int(label.min()) <= int(label.max()) < classes:
            raise RequestError(
                f"{name} answers the class {int(label.max())}, and the data have "
                f"classes 0 to {classes - 1}: number the "
                f"classes of the "
                "model as those of the data, without one for the background"
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

    limit = {"limit": UNSUPPRESSED} if final else {}
    return BoxForm(candidates=candidates.shape[1], classes=candidates.shape[2] - 4, **limit)


def check_corners(candidates: Tensor, side: int, name: str, shown: float) -> None:
    """Refuse boxes (n, K, 4 + C) that are no corners in pixels, by those that the model shows on real
    pictures, at scores above `shown`; what it answers where it sees nothing says nothing.
    """
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
    if side > 8 and float(boxes.abs().max()) <= 2.0:
        raise RequestError(
            f"{name} answers corners up to {float(boxes.max()):.3g}, as "
            "fractions: multiply them by the picture's sides"
        )


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


def mistakes_of_boxes(
    candidates: Tensor, form: BoxForm, objects: Sequence[Objects], shown: float
) -> list[str]:
    """Explanations of candidates (n, K, 4 + C) that miss the objects.

    They are changes by which the boxes of the candidates find far more.
    """
    first, second, scores = candidates[..., :2], candidates[..., 2:4], candidates[..., 4:]
    corners, count = candidates[..., :4], sum(picture.count for picture in objects)
    less, more, from_centre = (
        scores.roll(-1, -1),
        scores.roll(1, -1),
        torch.cat((first - second / 2, first + second / 2), -1),
    )

    # Each change: boxes, scores, the least score shown, its words, and what to do.
    changes = [
        (corners, scores, shown, "", ""),
        (
            from_centre,
            scores,
            shown,
            "as centre and sides",
            "return centre - sides / 2 and centre + sides / 2",
        ),
        (
            torch.cat((first, first + second), -1),
            scores,
            shown,
            "as a corner and sides",
            "return x, y, x + width, y + height",
        ),
        (corners[..., [1, 0, 3, 2]], scores, shown, "with x and y exchanged", "return x before y"),
        (
            corners,
            less,
            shown,
            "with the class minus 1",
            "leave out its first class, a background, or count labels from 1",
        ),
        (corners, more, shown, "with the class plus 1", "count the labels of the data from 0"),
        (
            corners,
            scores,
            FAINT,
            f"at scores above {FAINT}",
            f"end the criterion with @{FAINT}, such as missed@{FAINT}",
        ),
    ]

    shares = []
    for boxes, of_class, least, _, _ in changes if count >= FEWEST else ():
        detections = form.decode(torch.cat((boxes, of_class), -1).flatten(1), least)
        outcomes = [judge(*pair).objects for pair in zip(detections, objects, strict=True)]
        shares.append(sum(int((outcome == HIT).sum()) for outcome in outcomes) / count)

    # The first change is none.
    mended = [(share, *change[3:]) for share, change in zip(shares[1:], changes[1:], strict=False)]
    return explain(shares[0] if shares else 1.0, mended, "objects")
