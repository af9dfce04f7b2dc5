"""The contracts of the plugin points.

Settings are the fields of a frozen, keyword-only dataclass; these are its methods.

A plug-in imports what these contracts speak of from here, in one line.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from brinell.core.data import DataInfo as DataInfo
from brinell.core.data import Dataset as Dataset
from brinell.core.data import Remark as Remark
from brinell.core.domain import KINDS as KINDS
from brinell.core.domain import Domain as Domain
from brinell.core.domain import Kind as Kind
from brinell.core.errors import ContractError
from brinell.core.model import Access as Access
from brinell.core.model import Model as Model
from brinell.core.oracle import Batch as Batch
from brinell.core.oracle import Oracle as Oracle
from brinell.core.streams import Streams as Streams
from brinell.core.threat import Distance as Distance
from brinell.core.threat import Threat as Threat

Family = Literal["minimal", "budgeted"]
"""minimal: one run finds how close the nearest adversarial input is. budgeted: a run searches
within one budget."""


class Extras(NamedTuple):
    """Additional output of an attack for each sample, which the run folder keeps with the
    adversarial inputs.
    """

    remarks: Sequence[Remark] = ()
    """Remarks about the attack for the reader of the report."""
    arrays: Mapping[str, Tensor] = {}
    """By name, one row for each sample of the batch, those without a success included."""
    legend: Mapping[str, Any] = {}
    """Meaning of the numbers in these arrays, as JSON; the same for every batch of a run."""


@runtime_checkable
class Attack(Protocol):
    """Proposes inputs to the oracle until no sample is active or its own steps are spent.

    It never judges itself.
    """

    access: ClassVar[Access]
    distances: ClassVar[frozenset[str]]
    domains: ClassVar[frozenset[Kind]]
    family: ClassVar[Family]
    targeted: ClassVar[bool]
    """True if the attack can aim at a target class (`core.criterion.Targeted`), as attacks on
    losses of the oracle can."""

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> Extras | None:
        """Attack every sample of `batch`, all of them correctly classified, within `threat`.

        A minimal attack reads `threat.eps` as the largest distance of interest. Most attacks have
        nothing to say besides: None.
        """

    def cost(self, classes: int) -> tuple[int, int]:
        """The most forward and backward evaluations that one sample can cost in one run."""


@runtime_checkable
class ChoosesData(Protocol):
    """An attack whose settings do not fit all data of its kinds: it is asked before anything is
    computed.
    """

    def check(self, domain: Domain) -> None:
        """Refuse data that the settings do not fit.

        Raises:
            RequestError: the settings do not fit the data.
            ContractError: a plugin that the settings name (a user's distortion) breaks its contract
                on such inputs.
        """


@runtime_checkable
class KnowsClasses(Protocol):
    """A plugin of models that opens one better if it knows how many classes the data have."""

    def open_for(self, domain: Domain, classes: int | None) -> Model:
        """The model for data of this domain with so many classes."""


@runtime_checkable
class TriesInputs(Protocol):
    """An attack that tests the plugins of its settings (a user's distortion) on real inputs before
    anything is computed.
    """

    def try_on(self, x: Tensor, threat: Threat) -> list[str]:
        """Try the attack on real inputs (n, *shape) and their budgets, without a query.

        Returns remarks, one line each.

        Raises:
            ContractError: what the settings name breaks its contract on such inputs.
        """


@runtime_checkable
class LooksBeyond(Protocol):
    """A budgeted attack that asks about inputs beyond eps on its way. They are never successes."""

    def reach(self, distance: str) -> float:
        """Largest distance of a query as a multiple of eps, in the distance of this name; 1 if
        queries stay within eps.
        """


@runtime_checkable
class FollowsSurrogates(Protocol):
    """An attack without gradients that follows those of surrogates where a run has some
    (`Oracle.slopes`).
    """

    def surrogate_questions(self) -> int:
        """Largest number of queries of each surrogate about a sample in one run."""


@runtime_checkable
class LearnsAcross(Protocol):
    """An attack that may learn from the answers about all samples of a batch, for the later ones.

    Its samples are then attacked as one group, whatever the number of workers.
    """

    @property
    def learns_across(self) -> bool:
        """True if the settings ask for it."""


@runtime_checkable
class BringsSurrogates(Protocol):
    """An attack whose settings name a file of surrogates, which it follows beside those of the run
    (`Oracle.follow`).
    """

    def surrogates(self) -> Sequence[Model]:
        """The surrogates of the file, each with the names of its classes in `info`."""


def follows_surrogates(attack: Attack) -> bool:
    """True if the attack follows the gradients of surrogates."""
    return isinstance(attack, FollowsSurrogates)


def learns_across(attack: Attack) -> bool:
    """True if the attack learns from the answers about other samples."""
    return isinstance(attack, LearnsAcross) and attack.learns_across


def reach_of(attack: Attack, distance: str) -> float:
    """The largest multiple of eps at which a budgeted attack may query the model, for
    the ledger.
    """
    return attack.reach(distance) if isinstance(attack, LooksBeyond) else 1.0


@runtime_checkable
class Filed(Protocol):
    """A plugin that reads files whose content decides results."""

    def digest(self) -> str:
        """A hash of what the files hold."""


class Distortion(Protocol):
    """A distortion of whole inputs.

    The attack decides which patches of the distorted input it uses.

    All values are in [0, 1], whatever the bounds of the data (`rlab.distort.distorted` converts
    them in both directions).
    """

    domains: ClassVar[frozenset[Kind]]

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """How many versions of one input of this shape there are to choose from at each severity.

        1 where the distortion leaves nothing open, None where its draws are random and so endless.
        """

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) inputs to their distorted versions, each in a way that does not depend on the
        others.

        Args:
            x: (n, *shape) in [0, 1]; the number of axes tells vector (n, D), signal (n, C, T),
                image (n, C, H, W) and video (n, C, T, H, W) apart. Never write into it.
            severity: (n,) int64, 1 to 5. More is stronger.
            rng: the source of all random numbers, a stream for each input and draw.
            draw: (n,) int64, which version, counted from 0. A distortion whose versions are random
                need not use it, since `rng` differs already.

        Returns:
            (n, *shape) in [0, 1], finite.
        """


Suspicion = Callable[[Tensor], Tensor]
"""(n, *shape) inputs to (n,) scores, higher where an input looks changed; differentiable where
the model is."""


@runtime_checkable
class Detector(Protocol):
    """Tells changed inputs from clean ones, once it has seen clean ones.

    It never sees an attack.
    """

    access: ClassVar[Access]
    """Access to the model that the attack needs."""
    domains: ClassVar[frozenset[Kind]]

    def fit(self, x: Tensor, labels: Tensor, model: Model) -> Suspicion:
        """Fit the detector to clean inputs.

        Args:
            x: (n, *shape) clean inputs.
            labels: (n,) their classes.
            model: the classifier that is guarded.
        """


Network = Callable[[Tensor], Tensor]
"""A classifier in training: (n, *shape) inputs to (n, classes) logits, differentiable in inputs
and weights."""


@runtime_checkable
class Defence(Protocol):
    """A training recipe: it crafts the inputs of a batch and defines the loss on them."""

    domains: ClassVar[frozenset[Kind]]
    distances: ClassVar[frozenset[str]]
    budgeted: ClassVar[bool]
    """True if the attack searches within a budget; other attacks take no eps."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """(n, *shape) detached: the inputs to learn from in place of the clean ones, within the
        bounds of the data.

        Args:
            network: the classifier, in evaluation mode.
            batch: clean inputs and labels. Never write into them.
            threat: budgets, distance and domain.
            rng: the source of all random numbers, on the device of the inputs.
        """

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) the training loss of each sample, differentiable in the weights.

        Args:
            network: the classifier, in training mode.
            batch: clean inputs and labels.
            x_adv: (n, *shape) what `craft` made of them.
        """

    def cost(self) -> tuple[int, int]:
        """Forward and backward evaluations of one sample in a step of training."""

    def safer(self) -> str:
        """Recipe to continue with if this one overfits to its attack; empty if none is known."""


@runtime_checkable
class PerturbsWeights(Protocol):
    """A defence that changes the weights, and not the inputs, while a loss is minimised: on top of
    any other.
    """

    def perturbed(
        self, parameters: Sequence[Tensor], loss: Callable[[], Tensor]
    ) -> AbstractContextManager[None]:
        """The parameters moved to where the `loss`, a scalar, is larger; exactly as before when the
        context ends.
        """

    def cost(self) -> tuple[int, int]:
        """Forward and backward evaluations of one sample that this adds to a step."""


@runtime_checkable
class BringsData(Protocol):
    """A defence whose samples are not those of the training data."""

    def spec(self) -> str:
        """The data that its share of each batch is drawn from, as `--data` names it."""


@runtime_checkable
class Explainer(Protocol):
    """Says how much each place of an input matters to the model's answer."""

    access: ClassVar[Access]
    domains: ClassVar[frozenset[Kind]]

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places) float32: higher where a place matters more.

        Only the order within a map has a meaning.

        Places are those of `core.patches`: (T,) of a signal, (H, W) of an image, (T, H, W) of a
        video, (D,) of a vector.

        Args:
            oracle: answers about any input within the bounds, and counts what each sample costs.
            batch: the inputs; their labels are the classes to be explained.
            domain: where the inputs live.
            rng: a stream for each input.
        """


@runtime_checkable
class OpensModel(Protocol):
    """An explainer that needs the network itself, as one does that goes by the activations of a
    layer.
    """

    def attach(self, module: nn.Module, domain: Domain) -> Explainer:
        """The explainer with the network in its hands; called before anything is computed."""


def check_complete(contract: type[Any], candidate: Any) -> Any:
    """The candidate, after a check that it has every member of the contract.

    Raises:
        ContractError: it lacks members; the line names them.
    """
    missing = [
        name for name in vars(contract) if not name.startswith("_") and not hasattr(candidate, name)
    ]

    if missing:
        info = (
            " (`info = ModelInfo()`, or `DataInfo()` for data, where there is nothing to tell)"
            * ("info" in missing)
        )
        raise ContractError(
            f"{type(candidate).__name__} is no {contract.__name__}: it lacks "
            f"{', '.join(missing)}{info}"
        )

    return candidate
