"""A recipe: the defences that share a batch, and perturbations of the weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import (
    BringsData,
    Defence,
    Distance,
    Distortion,
    Domain,
    Model,
    Network,
    PerturbsWeights,
    Threat,
)
from brinell.core.errors import RequestError, option
from brinell.core.oracle import Batch
from brinell.distortions._shared import suite_of
from brinell.rlab.distort import variants

DEFAULT = "pgd"
"""Defence of a recipe that names only perturbations of the weights."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One or several defences, each with its share of every batch."""

    text: str
    """Text of the recipe: `pgd`, `n-fgsm(noise=1)+distortions`, `trades+awp`."""
    parts: tuple[Defence, ...]
    """The defences, which share a batch in equal parts."""
    weights: tuple[PerturbsWeights, ...] = ()
    """Perturbations of the weights on top of the defences."""

    @classmethod
    def of(cls, text: str) -> "Recipe":
        """The recipe that a text names.

        Defences are joined by `+`, with settings as `NAME(key=value,...)` or `NAME?key=value`.
        """
        if "?" in text:
            name, path, options = plugins.parse(text)
            if "+" in name or path:
                raise RequestError(
                    f"recipe {text!r}: of several defences the settings stand in "
                    "brackets, NAME(key=value)+NAME"
                )
            defences: tuple[Any, ...] = (plugins.build("defence", name, options),)
        else:
            defences = tuple(plugins.build_list("defence", text))

        # Perturbations of weights wrap the losses of all others.
        weights = tuple(defence for defence in defences if isinstance(defence, PerturbsWeights))
        parts = tuple(defence for defence in defences if not isinstance(defence, PerturbsWeights))
        if not parts:
            parts = (plugins.build("defence", DEFAULT),)
        return cls(text=text, parts=parts, weights=weights)

    def fit(self, domain: Domain, distance: Distance) -> "Recipe":
        """The recipe for these data, if it fits.

        Defences that place distortions and name none get all that distort such data.
        """
        parts = []
        for defence in self.parts:
            name = type(defence).__name__
            domains = ", ".join(sorted(defence.domains))
            distances = ", ".join(sorted(defence.distances))

            # Data of another kind, or a budget in another norm, the defence cannot
            # take.
            if domain.kind not in defence.domains:
                raise RequestError(
                    f"recipe {self.text}: {name} is for {domains} data, and these are of kind "
                    f"{domain.kind}: choose another {option('recipe')}"
                )
            if distance.name not in defence.distances:
                raise RequestError(
                    f"recipe {self.text}: {name} works in {distances}, not in {distance.name}: "
                    f"choose another {option('recipe')} or {option('norm')}"
                )

            parts.append(_with_distortions(defence, domain))
        return replace(self, parts=tuple(parts))

    @property
    def budgeted(self) -> bool:
        """True if one of its defences takes an eps."""
        return any(part.budgeted for part in self.parts)

    def safer(self) -> str:
        """The recipe to use after catastrophic overfitting; empty if no safer one is known."""
        safer_names = [part.safer() for part in self.parts]
        if not any(safer_names):
            return ""
        # Settings behind a question mark are those of one defence, the only one.
        written = plugins.split(self.text) if "?" not in self.text else [self.text]

        # The text of each defence is kept where no safer one takes its place.
        weight_parts = [
            part
            for part in written
            if issubclass(plugins.load("defence", plugins.head(part)), PerturbsWeights)
        ]
        loss_parts = [part for part in written if part not in weight_parts] or [DEFAULT]
        parts = [safer or part for safer, part in zip(safer_names, loss_parts, strict=True)]
        return "+".join([*parts, *weight_parts])

    def overfitting_parts(self) -> "Recipe":
        """The defences that can overfit to their attack; all if none can.

        Accuracy on clean inputs or on distortions says nothing about overfitting to an attack.
        """
        parts = tuple(part for part in self.parts if part.safer())
        return replace(self, parts=parts or self.parts)

    def cost(self) -> tuple[float, float]:
        """Forwards and backwards of one sample in a step, as the defences declare them.

        Of those that share a batch it is the mean.
        """
        costs = [part.cost() for part in self.parts]
        extra = [part.cost() for part in self.weights]
        forwards = sum(cost[0] for cost in costs) / len(costs) + sum(cost[0] for cost in extra)
        backwards = sum(cost[1] for cost in costs) / len(costs) + sum(cost[1] for cost in extra)
        return forwards, backwards

    def specs(self) -> dict[int, str]:
        """Data sets of the defences that bring their own, by position of the defence."""
        return {
            index: part.spec()
            for index, part in enumerate(self.parts)
            if isinstance(part, BringsData)
        }

    def shares(self, n: int) -> list[slice]:
        """The rows of each defence in a batch of `n`; a remainder goes to the first defences."""
        count = len(self.parts)
        # Rounded up, so that every row belongs to one defence. Starts are one more than ends.
        ends = [-(-n * (index + 1) // count) for index in range(count)]
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def craft(
        self, trained: "TrainedNetwork", batch: Batch, threat: Threat, rng: torch.Generator
    ) -> Tensor:
        """(n, *shape) the training inputs, each defence on its rows, in evaluation mode."""
        with trained.evaluation_mode():
            examples = [
                part.craft(trained.predict, batch.select(rows), threat.select(rows), rng)  # type: ignore[arg-type]
                for part, rows in self._parts_with_rows(len(batch))
            ]
        return examples[0] if len(examples) == 1 else torch.cat(examples)

    def loss(self, trained: "TrainedNetwork", batch: Batch, x_adv: Tensor) -> Tensor:
        """The mean loss of a batch, each defence on its rows."""
        losses = [
            part.loss(trained.predict, batch.select(rows), x_adv[rows])  # type: ignore[arg-type]
            for part, rows in self._parts_with_rows(len(batch))
        ]
        return (losses[0] if len(losses) == 1 else torch.cat(losses)).mean()

    @contextmanager
    def perturbed_weights(
        self, trained: "TrainedNetwork", loss: Callable[[], Tensor]
    ) -> Iterator[None]:
        """Perturb the weights during a loss and its gradient; the context restores them."""
        with ExitStack() as stack:
            for defence in self.weights:
                with frozen_buffers(trained.module):
                    # The extra passes must not move the statistics of batch norm.
                    stack.enter_context(defence.perturbed(trained.parameters, loss))
            yield

    def _parts_with_rows(self, n: int) -> Iterator[tuple[Defence, slice]]:
        """The defences that get rows of a batch of `n`, with these rows."""
        for part, rows in zip(self.parts, self.shares(n), strict=True):
            if rows.stop > rows.start:
                yield part, rows


def _with_distortions(defence: Defence, domain: Domain) -> Defence:
    """The defence, with all calibrated distortions that fit where it places some and names none."""
    entries = {entry.name: entry for entry in fields(defence)}  # type: ignore[arg-type]
    field = entries.get("distortions")
    if field is None or field.metadata.get("plugin") != "distortion":
        return defence
    distortions = defence.distortions  # type: ignore[attr-defined]
    if distortions:
        variants(distortions, domain)  # refuses those that do not know such inputs
        return defence

    fitting = fitting_distortions(domain)
    if not fitting:
        raise RequestError(
            f"no distortion is known for {domain.kind} data: choose another {option('recipe')}"
        )
    return replace(defence, distortions=tuple(fitting.values()))  # type: ignore[type-var]


def fitting_distortions(domain: Domain) -> dict[str, Distortion]:
    """The calibrated distortions of inputs of a domain, by name."""
    distortions = {name: plugins.build("distortion", name) for name in plugins.names("distortion")}
    return {
        name: distortion
        for name, distortion in distortions.items()
        if suite_of(distortion) == "calibrated" and domain.kind in distortion.domains
    }


@contextmanager
def frozen_buffers(module: nn.Module) -> Iterator[None]:
    """Within the context no buffer of the network changes, such as the statistics of batch norm."""
    before = [
        (part, name, buffer, buffer.detach().clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]

    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, buffer, values in before:
                buffer.copy_(values)
                # A pass may have put another tensor in its place.
                setattr(part, name, buffer)


class TrainedNetwork:
    """A network in training, the function that returns its logits, and counts of its passes."""

    def __init__(self, module: nn.Module, predict: Network) -> None:
        self.module = module
        self._predict = predict
        self.parameters: Sequence[nn.Parameter] = [
            parameter for parameter in module.parameters() if parameter.requires_grad
        ]
        self.forwards = 0
        self.backwards = 0

    def predict(self, x: Tensor) -> Tensor:
        """(n, classes) logits.

        Each input counts as a forward, and as a backward where a gradient can be taken.
        """
        self.forwards += len(x)
        self.backwards += len(x) * torch.is_grad_enabled()
        return self._predict(x)

    @classmethod
    def of(cls, model: Model) -> "TrainedNetwork":
        """The network of a model that is in a separate session.

        All parameters learn unless some are frozen on purpose.
        """
        module = model.info.module
        if module is None:
            raise RequestError(
                f"model {model.name} holds no torch module, so that it cannot be "
                "trained: name one that does"
            )

        # A network for inference often comes with all weights frozen.
        if not any(parameter.requires_grad for parameter in module.parameters()):
            module.requires_grad_(True)
        return cls(module, model.predict)

    @contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Set the network to evaluation mode; the context restores the mode of each part."""
        training_parts = [part for part in self.module.modules() if part.training]
        try:
            for part in training_parts:
                # Set by hand: `eval()` may be overridden, and must not touch other parts.
                part.training = False
            yield
        finally:
            for part in training_parts:
                part.training = True
