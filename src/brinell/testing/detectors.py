"""The rules that every detector keeps. `check_detector` names the first one that is broken."""

from typing import Any

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Detector, Domain, Kind, Streams
from brinell.testing.form import check_form, check_settings, contained, demand, generator_states
from brinell.testing.linear import SHAPES, LinearModel

CLASSES, ROWS = 3, 60
SHOWN = 6
"""Inputs that are scored; `fit` sees all."""
NOISE = 0.3
"""The largest change of a value of a noisy input, as a share of the range."""
SYNONYMS = {
    "seed": "nothing: a detector draws no random numbers",
    "threshold": "the study, which sets it by the rate of false alarms",
    "fpr": "the study, which sets it by the rate of false alarms",
}


class _Closed(LinearModel):
    """A model without gradients, as one behind a server is."""

    def predict(self, x: Tensor) -> Tensor:
        """Logits without a gradient."""
        return super().predict(x).detach()


def check_detector(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over a detector, on bright bands before a black background.

    The band of each class has another position.

    Args:
        plugin: the detector's class.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("access", "domains"), SYNONYMS)
    detector: Detector = plugin(**settings)
    check_settings(detector)

    # Only the kinds that it declares: a detector of images need not know signals.
    for kind in (kind for kind in KINDS if kind in detector.domains):
        _check(detector, kind)


def _check(detector: Detector, kind: Kind) -> None:
    """Run the rules on one kind of input."""
    name = f"detector {type(detector).__name__}"
    place = f" (on {kind} inputs)"

    def rule(holds: bool, text: str) -> None:
        """Demand a rule."""
        demand(name, holds, f"{text}{place}")

    x, labels, model = _problem(kind)
    clean = (x.clone(), labels.clone(), model.digest())

    part = x[:SHOWN]
    states = generator_states()
    with contained(name, place):
        suspicion = detector.fit(x, labels, model)
        score = suspicion(part)
        second = detector.fit(x, labels, model)(part)

    rule(generator_states() == states, "drew from a global random generator")
    equal = torch.equal(x, clean[0]) and torch.equal(labels, clean[1])
    rule(equal, "wrote into what it was given")
    rule(model.digest() == clean[2], "changed the weights of the model")

    rule(score.shape == (SHOWN,), f"answers shape {tuple(score.shape)} to {SHOWN} inputs")
    rule(bool(torch.isfinite(score).all()), "answers NaN or infinity")
    rule(torch.equal(score, second), "gave two scores to the same inputs")
    # A score must not depend on the company of an input.
    single = torch.cat([suspicion(row[None]) for row in part])
    equal = torch.allclose(single, score, rtol=1e-3, atol=1e-4)
    rule(equal, "gave other scores when the batch was split")

    # Noise is the least that a detector must notice.
    noise = Streams.of(1, torch.arange(ROWS)).uniform(*x.shape[1:])
    noisy = (x + NOISE * (2 * noise - 1)).clamp(0, 1)
    is_higher = float(suspicion(noisy).mean()) > float(suspicion(x).mean())
    rule(is_higher, "scores noisy inputs no higher than clean ones")

    leaf = part.clone().requires_grad_()
    score = suspicion(leaf)
    (gradient,) = torch.autograd.grad(score.sum(), leaf) if score.requires_grad else (None,)
    finite = gradient is not None and bool(torch.isfinite(gradient).all())
    rule(finite, "has no finite input gradient, which an adaptive attack follows")

    if detector.access < Access.GRADIENTS:
        x, labels, model = _problem(kind, _Closed, detector.access)
        try:
            detector.fit(x, labels, model)(x[:SHOWN])
        except RuntimeError as error:
            rule(False, f"needs more of the model than it declares: {error}")


def _problem(
    kind: Kind, model: type[LinearModel] = LinearModel, access: Access = Access.GRADIENTS
) -> tuple[Tensor, Tensor, LinearModel]:
    """Clean inputs, their classes, and a model that is right about all of them."""
    domain = Domain(kind=kind, shape=SHAPES[kind])
    length = domain.shape[-1]
    bands = torch.nn.functional.one_hot(torch.arange(length) * CLASSES // length).T.float()
    shapes = bands.reshape(CLASSES, *[1] * (len(domain.shape) - 1), length)
    shapes = shapes.expand(CLASSES, *domain.shape)

    labels = torch.arange(ROWS) % CLASSES
    brightness = Streams.of(0, torch.arange(ROWS)).uniform(*domain.shape)
    x = shapes[labels] * (0.9 + 0.1 * brightness)
    return x, labels, model(shapes.flatten(1) - 0.5, torch.zeros(CLASSES), domain, access)
