"""A recipe: the defences that share a batch, and what changes the weights while their losses are minimised."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import BringsData, Defence, Distance, Domain, Model, Network, PerturbsWeights, Threat
from brinell.core.errors import RequestError, option
from brinell.core.oracle import Batch
from brinell.distortions._published import Published
from brinell.rlab.variants import variants

ALONE = "pgd"
"""What is learned where a recipe names nothing but what changes the weights."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train: one defence or several, each with its share of every batch."""

    text: str
    """As it is written: `pgd`, `n-fgsm(noise=1)+distortions`, `trades+awp`."""
    parts: tuple[Defence, ...]
    """The defences, which share a batch in equal parts."""
    weights: tuple[PerturbsWeights, ...] = ()
    """What changes the weights on top of them."""

    @classmethod
    def of(cls, text: str) -> "Recipe":
        """The recipe that a text names: defences joined by `+`, with settings as `NAME(key=value,...)` or `NAME?key=value`.

        Raises:
            RequestError: no such defence or setting, or nothing that a network could learn from.
        """
        if "?" in text:
            name, path, options = plugins.parse(text)
            if "+" in name or path:
                raise RequestError(f"recipe {text!r}: of several defences the settings stand in brackets, NAME(key=value)+NAME")
            found: tuple[Any, ...] = (plugins.build("defence", name, options),)
        else:
            found = plugins.parts("defence", text)
        weights = tuple(one for one in found if isinstance(one, PerturbsWeights))
        parts = tuple(one for one in found if not isinstance(one, PerturbsWeights))
        if not parts:
            parts = (plugins.build("defence", ALONE, {}),)
        return cls(text=text, parts=parts, weights=weights)

    def fitted(self, domain: Domain, distance: Distance) -> "Recipe":
        """The recipe for these data, if it fits: defences that place distortions and name none get all that distort these."""
        parts = []
        for one in self.parts:
            name = type(one).__name__
            if domain.kind not in one.domains:
                raise RequestError(
                    f"recipe {self.text}: {name} is for {', '.join(sorted(one.domains))} data, and these are of kind "
                    f"{domain.kind}: choose another {option('recipe')}"
                )
            if distance.name not in one.distances:
                raise RequestError(
                    f"recipe {self.text}: {name} works in {', '.join(sorted(one.distances))}, not in {distance.name}: choose "
                    f"another {option('recipe')} or {option('norm')}"
                )
            parts.append(_with_distortions(one, domain))
        return replace(self, parts=tuple(parts))

    @property
    def budgeted(self) -> bool:
        """Whether any of its defences takes an eps."""
        return any(one.budgeted for one in self.parts)

    def safer(self) -> str:
        """The recipe to go on with after catastrophic overfitting; empty where none is known to be safer."""
        names = [one.safer() for one in self.parts]
        if not any(names):
            return ""
        own = plugins.split(self.text) if "?" not in self.text else [self.text]
        on_top = [one for one in own if issubclass(plugins.load("defence", plugins.head(one)), PerturbsWeights)]
        learned = [one for one in own if one not in on_top] or [ALONE]
        return "+".join([*(safer or one for safer, one in zip(names, learned, strict=True)), *on_top])

    def prone(self) -> "Recipe":
        """The defences that can overfit to their own attack, without those that share the batch with them; all if there are none.

        What a network makes of untouched inputs or of distortions says nothing about the attack beside them.
        """
        return replace(self, parts=tuple(one for one in self.parts if one.safer()) or self.parts)

    def cost(self) -> tuple[float, float]:
        """Forwards and backwards of one sample in a step, as the defences declare them; the mean of those that share a batch."""
        costs = [one.cost() for one in self.parts]
        extra = [one.cost() for one in self.weights]
        forwards, backwards = (sum(cost[at] for cost in costs) / len(costs) + sum(cost[at] for cost in extra) for at in (0, 1))
        return forwards, backwards

    def specs(self) -> dict[int, str]:
        """By position of the defence, the data that its share of a batch is drawn from, where not the training data."""
        return {at: one.spec() for at, one in enumerate(self.parts) if isinstance(one, BringsData)}

    def shares(self, n: int) -> list[slice]:
        """Which rows of a batch of `n` each defence gets; where they cannot be shared out, the first ones get more."""
        count = len(self.parts)
        ends = [-(-n * (at + 1) // count) for at in range(count)]
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def craft(self, trained: "Trained", batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """(n, *shape) what is learned from, each defence on its rows, against the network in evaluation mode."""
        with trained.attacked():
            made = [
                part.craft(trained.predict, batch.select(rows), threat.select(rows), rng)  # type: ignore[arg-type]
                for part, rows in self._turns(len(batch))
            ]
        return made[0] if len(made) == 1 else torch.cat(made)

    def loss(self, trained: "Trained", batch: Batch, x_adv: Tensor) -> Tensor:
        """The mean loss of a batch, each defence on its rows."""
        losses = [
            part.loss(trained.predict, batch.select(rows), x_adv[rows])  # type: ignore[arg-type]
            for part, rows in self._turns(len(batch))
        ]
        return (losses[0] if len(losses) == 1 else torch.cat(losses)).mean()

    @contextmanager
    def around(self, trained: "Trained", loss: Callable[[], Tensor]) -> Iterator[None]:
        """The weights moved as the recipe says, for the time of a loss and its gradient."""
        with ExitStack() as stack:
            for one in self.weights:
                with still(trained.module):
                    stack.enter_context(one.perturbed(trained.parameters, loss))
            yield

    def _turns(self, n: int) -> Iterator[tuple[Defence, slice]]:
        for part, rows in zip(self.parts, self.shares(n), strict=True):
            if rows.stop > rows.start:
                yield part, rows


def _with_distortions(defence: Defence, domain: Domain) -> Defence:
    """The defence with every calibrated distortion that fits, where it places distortions and none is named."""
    field = {one.name: one for one in fields(defence)}.get("distortions")  # type: ignore[arg-type]
    if field is None or field.metadata.get("plugin") != "distortion":
        return defence
    if named := defence.distortions:  # type: ignore[attr-defined]
        variants(named, domain)  # refuses those that do not know such inputs
        return defence
    every = [plugins.build("distortion", name, {}) for name in plugins.names("distortion")]
    calibrated = [distortion for distortion in every if not isinstance(distortion, Published)]
    fitting = tuple(one for one in calibrated if domain.kind in one.domains and one.access < 3)
    if not fitting:
        raise RequestError(f"no distortion is known for {domain.kind} data: choose another {option('recipe')}")
    return replace(defence, distortions=fitting)  # type: ignore[type-var]


@contextmanager
def still(module: nn.Module) -> Iterator[None]:
    """For the time of the context the network remembers nothing of its inputs, such as the statistics of batch norm."""
    parts = module.modules()
    before = [(part, name, one, one.detach().clone()) for part in parts for name, one in part.named_buffers(recurse=False)]
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, one, old in before:
                one.copy_(old)
                setattr(part, name, one)


class Trained:
    """A network in training, how it is asked for logits, whatever stands before and behind it, and how often it was."""

    def __init__(self, module: nn.Module, predict: Network) -> None:
        self.module, self._predict = module, predict
        self.parameters: Sequence[nn.Parameter] = [one for one in module.parameters() if one.requires_grad]
        self.forwards = self.backwards = 0

    def predict(self, x: Tensor) -> Tensor:
        """(n, classes) logits; each input counts as a forward, and as a backward where a gradient can be taken."""
        self.forwards += len(x)
        self.backwards += len(x) * torch.is_grad_enabled()
        return self._predict(x)

    @classmethod
    def of(cls, model: Model) -> "Trained":
        """The network of a model that is in a session of its own; all of it learns where nothing was frozen on purpose."""
        module = model.info.module
        if module is None:
            raise RequestError(f"model {model.name} holds no torch module, so that it cannot be trained: name one that does")
        if not any(one.requires_grad for one in module.parameters()):
            module.requires_grad_(True)
        return cls(module, model.predict)

    @contextmanager
    def attacked(self) -> Iterator[None]:
        """The network as an attack meets it, in evaluation mode; afterwards each part is in the mode that it was in."""
        on = [part for part in self.module.modules() if part.training]
        try:
            for part in on:
                part.training = False
            yield
        finally:
            for part in on:
                part.training = True
