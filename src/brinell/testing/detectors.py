"""The rules that every detector keeps. `check_detector` names the first one that is broken."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Detector, Domain, Kind, Streams, Suspicion
from brinell.core.errors import ContractError
from brinell.testing.form import check_form, check_settings, demand, generator_states
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


class _Problem(NamedTuple):
    """Clean inputs, their classes, and a model that is right about all of them."""

    x: Tensor
    labels: Tensor
    model: LinearModel


class _Closed(LinearModel):
    """The same model without gradients, as one behind a server is."""

    def predict(self, x: Tensor) -> Tensor:
        """Logits without a gradient."""
        return super().predict(x).detach()


def check_detector(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over a detector, on bright bands before a black background, one position of the band for each class.

    Args:
        plugin: the detector's class.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("access", "domains"), SYNONYMS)
    if not isinstance(plugin.access, Access):
        raise ContractError(f"{plugin.__name__}: access must be LABELS, SCORES or GRADIENTS")
    detector: Detector = plugin(**settings)
    check_settings(detector)
    for kind in (kind for kind in KINDS if kind in detector.domains):
        for rule in _RULES:
            rule(detector, kind)


def _problem(kind: Kind, model: type[LinearModel] = LinearModel, access: Access = Access.GRADIENTS) -> _Problem:
    """A model with clean inputs and labels."""
    domain = Domain(kind=kind, shape=SHAPES[kind])
    length = domain.shape[-1]
    bands = torch.nn.functional.one_hot(torch.arange(length) * CLASSES // length).T.float()
    shapes = bands.reshape(CLASSES, *[1] * (len(domain.shape) - 1), length).expand(CLASSES, *domain.shape)
    labels = torch.arange(ROWS) % CLASSES
    x = shapes[labels] * (0.9 + 0.1 * Streams.of(0, torch.arange(ROWS)).uniform(*domain.shape))
    return _Problem(x, labels, model(shapes.flatten(1) - 0.5, torch.zeros(CLASSES), domain, access))


def _demand(detector: Detector, kind: Kind, holds: bool, rule: str) -> None:
    demand(f"detector {type(detector).__name__}", holds, f"{rule} (on {kind} inputs)")


def _fitted(detector: Detector, kind: Kind, problem: _Problem) -> Suspicion:
    try:
        return detector.fit(problem.x, problem.labels, problem.model)
    except Exception as error:
        name = type(detector).__name__
        raise ContractError(f"detector {name} failed with {type(error).__name__}: {error} (on {kind} inputs)") from error


def _answers_properly(detector: Detector, kind: Kind) -> None:
    """Check shape and type of the scores."""
    problem = _problem(kind)
    score = _fitted(detector, kind, problem)(problem.x[:SHOWN])
    _demand(detector, kind, score.shape == (SHOWN,), f"answers shape {tuple(score.shape)} to {SHOWN} inputs")
    _demand(detector, kind, bool(torch.isfinite(score).all()), "answers NaN or infinity")


def _leaves_all_as_it_was(detector: Detector, kind: Kind) -> None:
    """Check that inputs, weights and generators are unchanged."""
    problem, clean = _problem(kind), _problem(kind)
    before = generator_states()
    _fitted(detector, kind, problem)(problem.x[:SHOWN])
    _demand(detector, kind, generator_states() == before, "drew from a global random generator")
    equal = torch.equal(problem.x, clean.x) and torch.equal(problem.labels, clean.labels)
    _demand(detector, kind, equal, "wrote into what it was given")
    _demand(detector, kind, problem.model.digest() == clean.model.digest(), "changed the weights of the model")


def _repeats_itself(detector: Detector, kind: Kind) -> None:
    """Check that scores repeat."""
    problem = _problem(kind)
    first, two = (_fitted(detector, kind, problem)(problem.x[:SHOWN]) for _ in range(2))
    _demand(detector, kind, torch.equal(first, two), "gave two scores to the same inputs")


def _does_not_mind_its_company(detector: Detector, kind: Kind) -> None:
    """Check that scores do not depend on the batch."""
    problem = _problem(kind)
    suspicion = _fitted(detector, kind, problem)
    single = torch.cat([suspicion(x[None]) for x in problem.x[:SHOWN]])
    equal = torch.allclose(single, suspicion(problem.x[:SHOWN]), rtol=1e-3, atol=1e-4)
    _demand(detector, kind, equal, "gave other scores when the batch was split")


def _scores_changed_inputs_higher(detector: Detector, kind: Kind) -> None:
    problem = _problem(kind)
    suspicion = _fitted(detector, kind, problem)
    noise = Streams.of(1, torch.arange(ROWS)).uniform(*problem.x.shape[1:])
    noisy = (problem.x + NOISE * (2 * noise - 1)).clamp(0, 1)
    higher = float(suspicion(noisy).mean()) > float(suspicion(problem.x).mean())
    _demand(detector, kind, higher, "scores noisy inputs no higher than clean ones")


def _leads_back_to_the_inputs(detector: Detector, kind: Kind) -> None:
    """Check that scores have a gradient."""
    problem = _problem(kind)
    leaf = problem.x[:SHOWN].clone().requires_grad_()
    score = _fitted(detector, kind, problem)(leaf)
    (gradient,) = torch.autograd.grad(score.sum(), leaf) if score.requires_grad else (None,)
    finite = gradient is not None and bool(torch.isfinite(gradient).all())
    _demand(detector, kind, finite, "has no finite input gradient, which an adaptive attack follows")


def _keeps_to_its_access(detector: Detector, kind: Kind) -> None:
    """Check that the detector uses only its declared access."""
    if detector.access < Access.GRADIENTS:
        problem = _problem(kind, _Closed, detector.access)
        try:
            detector.fit(problem.x, problem.labels, problem.model)(problem.x[:SHOWN])
        except RuntimeError as error:
            _demand(detector, kind, False, f"needs more of the model than it declares: {error}")


_RULES: tuple[Callable[[Detector, Kind], None], ...] = (
    _answers_properly,
    _leaves_all_as_it_was,
    _repeats_itself,
    _does_not_mind_its_company,
    _scores_changed_inputs_higher,
    _leads_back_to_the_inputs,
    _keeps_to_its_access,
)
