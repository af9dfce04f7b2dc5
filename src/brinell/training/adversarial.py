"""Adversarial inputs, losses and weight perturbation for the user's training loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.core.contracts import Network
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, in_python
from brinell.core.oracle import Batch
from brinell.core.threat import Threat
from brinell.engine.batch_attack import (
    KINDS,
    BatchAttack,
    check_bounds,
    domain_of,
    model_session,
    parse_labels,
    parse_radii,
    parse_stages,
)
from brinell.engine.eps_grid import check_budgets, parse_eps
from brinell.engine.plan import open_distance
from brinell.engine.texts import eps_text, norm_text
from brinell.models._torch_model import TorchModel, logits_of
from brinell.training.recipe import Recipe, TrainedNetwork

__all__ = ["AWP", "AdversarialBatch", "AdversarialLoss"]

PLAIN = Recipe.of("plain")
"""Recipe of the cross-entropy alone."""


class AdversarialBatch:
    """Turns a batch into an adversarial one, in your training loop: `x = adversarial(x, y)`.

    The attack runs on the model in evaluation mode. Afterwards the modes of all its parts, its
    gradients and the random generators are restored. Random numbers follow from the seed and the
    number of the call, which `state_dict` keeps.

    Args:
        model: takes inputs (n, *shape) within the bounds and answers (n, classes) logits, or an
            object that holds `logits`.
        attack: n-fgsm, pgd?steps=5, trades, distortions or another recipe of `brinell plugins
            defence`, or several joined by + that share each batch; or any attack of `brinell
            plugins attack`, such as apgd?steps=10, which continues with every sample until its
            steps are spent.
        eps: the budget, a number or a text such as 8/255.
        norm: linf or l2; for attacks also l1 and l0.
        schedule: a number of calls over which eps rises from 0; 0 uses the full eps from the first
            call on.
        bounds: (low, high) of the inputs.
        kind: image, signal, video or vector, if the number of axes does not determine it.
        seed: seed of every random number.

    Raises:
        BrinellError: one line that states the problem, its cause and the remedy.
    """

    @in_python
    def __init__(
        self,
        model: nn.Module,
        attack: str = "n-fgsm",
        eps: Any = None,
        *,
        norm: Any = "linf",
        schedule: int = 0,
        bounds: tuple[float, float] = (0.0, 1.0),
        kind: Kind | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise RequestError(
                f"the model is a {type(model).__name__}: give a torch module, "
                "whose gradients are followed"
            )
        if schedule < 0:
            raise RequestError(f"schedule is {schedule}: it is a number of calls, 0 or more")
        self.model = model
        self.attack = attack
        self.bounds = bounds
        self.kind = kind
        self.seed = seed
        self.schedule = schedule
        self.distance = open_distance(norm_text(norm))
        self.calls = 0

        # A recipe of defences, or one attack.
        names = [plugins.head(part) for part in plugins.split(attack)]
        self.recipe = None
        if len(names) > 1 or names[0] in plugins.names("defence"):
            self.recipe = Recipe.of(attack)
            _check_batchwise(self.recipe)

        if eps is None and (self.recipe is None or self.recipe.budgeted):
            raise RequestError(
                "eps is missing, the budget that is trained for: give a number, such as eps=8/255"
            )
        # A recipe without a budget changes inputs by other measures.
        self._budgets = parse_eps("0" if eps is None else eps_text(eps))
        if len(self._budgets.values) != 1:
            raise RequestError(
                f"eps {eps!r} is {len(self._budgets.values)} budgets: a training has one"
            )
        # Fitting opens plug-ins, so it is done once for each shape.
        self._fitted: dict[tuple[int, ...], tuple[Domain, Recipe | None]] = {}
        self._classes = 0
        """Number of classes that the model is known to have."""

    @property
    def eps(self) -> float:
        """The budget of the next call."""
        factor = min(1.0, self.calls / self.schedule) if self.schedule else 1.0
        return self._budgets.values[0] * factor

    @in_python
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """(n, *shape) the adversarial inputs, detached, on the device of `x`.

        Args:
            x: (n, *shape) inputs within the bounds.
            y: (n,) true classes.

        Raises:
            BrinellError: inputs outside the bounds, labels beyond the model's classes, or a recipe
                that does not fit them.
        """
        if not isinstance(x, Tensor) or x.ndim < 2 or not len(x):
            description = f"type {type(x).__name__}"
            if isinstance(x, Tensor):
                description = f"shape {tuple(x.shape)}"
            raise RequestError(
                f"x has {description}: give a tensor with the samples first, at "
                "least one, and then each input"
            )

        with torch.inference_mode(False):
            inputs = x.detach()
            labels = parse_labels(y, len(x)).to(x.device)
            # No gradient can be followed through what was made in inference mode.
            if inputs.is_inference():
                inputs = inputs.clone()
            if labels.is_inference():
                labels = labels.clone()
            return self._craft(inputs, labels)

    def _craft(self, x: Tensor, y: Tensor) -> Tensor:
        """The adversarial inputs of a call, by the recipe or by the attack."""
        trained = trained_of(self.model)
        domain, recipe = self._fit(x)
        check_bounds(x, domain, "give bounds=(low, high), and normalise within the model")
        # The model is asked for its classes only where a label exceeds the known number.
        largest_label = int(y.max())
        if largest_label >= self._classes and largest_label >= self._count_classes(trained, x):
            raise RequestError(
                f"y holds class {largest_label}, and the model answers for "
                f"{self._classes}, counted from 0"
            )

        eps = self.eps
        self.calls = self.calls + 1
        # A prime factor keeps the calls of neighbouring seeds apart.
        seed = self.seed * 1_000_003 + self.calls
        if recipe is None:
            return self._attack(trained, domain, x, y, eps, seed)
        rng = torch.Generator(x.device).manual_seed(seed)
        batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y)
        radii = torch.full((len(x),), eps, device=x.device)
        threat = Threat(distance=self.distance, eps=radii, domain=domain)
        return recipe.craft(trained, batch, threat, rng)

    def _attack(
        self, trained: TrainedNetwork, domain: Domain, x: Tensor, y: Tensor, eps: float, seed: int
    ) -> Tensor:
        """The strongest examples of the attack, in evaluation mode."""
        with trained.evaluation_mode():
            batch_attack = BatchAttack(
                model=TorchModel(trained.module, domain=domain, name=type(self.model).__name__),
                domain=domain,
                distance=self.distance,
                x=x.float(),
                y=y,
                batch_size=len(x),
                queries=None,
                seed=seed,
            )

            stages = parse_stages((self.attack,))
            budgets = parse_radii(eps, len(x), self.distance, domain, stages, x.device)
            # The attacks of an audit need full precision; the user's loop may run in half.
            no_autocast = torch.autocast(x.device.type, enabled=False)
            with no_autocast, model_session(batch_attack.model):
                examples = batch_attack.run(stages, budgets, targeted=None, worst=True)
        return examples["x_adv"].to(x.dtype)

    def _count_classes(self, trained: TrainedNetwork, x: Tensor) -> int:
        """Number of classes of the model, by its answer."""
        with trained.evaluation_mode(), torch.no_grad():
            answer = trained.predict(x)
        if answer.ndim != 2 or len(answer) != len(x):
            raise RequestError(
                f"the model answers {len(x)} inputs with shape "
                f"{tuple(answer.shape)}: it needs a row of logits for each"
            )
        self._classes = answer.shape[1]
        return self._classes

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        """The mean of the recipe's loss on these inputs; for an attack, the cross-entropy."""
        _, recipe = self._fit(x.detach())
        batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y.long())
        return (recipe or PLAIN).loss(TrainedNetwork(model, answers_of(model)), batch, x_adv)

    def _fit(self, x: Tensor) -> tuple[Domain, Recipe | None]:
        """The domain of inputs like these, and the recipe for them; found once for each shape."""
        shape = tuple(x.shape[1:])
        # Fitting opens plug-ins, so it is done once for each shape.
        if shape not in self._fitted:
            kind = self.kind or KINDS.get(x.ndim)
            if kind is None:
                raise RequestError(
                    f"x has shape {tuple(x.shape)}: say what an input is by "
                    "kind='image', for example"
                )

            domain = domain_of(kind, shape, *map(float, self.bounds))
            check_budgets(self._budgets, self.distance, domain)
            recipe = None if self.recipe is None else self.recipe.fit(domain, self.distance)
            self._fitted[shape] = (domain, recipe)
        return self._fitted[shape]

    def state_dict(self) -> dict[str, int]:
        """The state that a checkpoint must hold."""
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a checkpoint."""
        self.calls = int(state["calls"])


class AdversarialLoss:
    """A loss of `(model, x, y)` that makes its adversarial inputs.

    It is the cross-entropy by any attack, TRADES or MART.

    Under `DistributedDataParallel` pass the wrapper, which averages the gradients of all processes.
    TRADES and MART call it twice a step, for which batch norm needs `broadcast_buffers=False`
    there.

    Args:
        recipe: trades, mart, pgd or any other attack that `AdversarialBatch` takes, with the
            cross-entropy as loss.
        eps: the budget, a number or a text such as 8/255.
        settings: norm, schedule, bounds, kind and seed, as in `AdversarialBatch`.
    """

    def __init__(self, recipe: str = "trades", eps: Any = None, **settings: Any) -> None:
        self.recipe = recipe
        self._eps = eps
        self._settings = settings
        self._batch: AdversarialBatch | None = None

    def adversarial(self, model: nn.Module) -> AdversarialBatch:
        """The maker of the adversarial inputs; the same object for all calls.

        A checkpoint holds its `state_dict`.
        """
        if self._batch is None:
            self._batch = AdversarialBatch(model, self.recipe, self._eps, **self._settings)
        # Another model may have another number of classes.
        if model is not self._batch.model:
            self._batch.model = model
            self._batch._classes = 0
        return self._batch

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor | None = None
    ) -> Tensor:
        """The mean loss, a scalar with gradients to the weights.

        Args:
            model: the network, in the mode in which it is trained.
            x: (n, *shape) clean inputs within the bounds.
            y: (n,) true classes.
            x_adv: (n, *shape) adversarial inputs, if they exist already, as for `AWP`.
        """
        adversarial = self.adversarial(model)
        if x_adv is None:
            x_adv = adversarial(x, y)
        return adversarial.loss(model, x, y, x_adv)


class AWP:
    """Adversarial weight perturbation around any loss, as a context for the backward pass.

    `brinell plugins defence` says whose method it is.

        x_adv = loss.adversarial(model)(x, y)
        with awp(lambda: loss(model, x, y, x_adv)) as value:
            value.backward()
        optimizer.step()

    Args:
        model: the network whose weights are moved.
        gamma: the length of the move of each layer, as a share of the norm of its weights.
    """

    def __init__(self, model: nn.Module, gamma: float = 0.01) -> None:
        self.model = model
        self.recipe = Recipe.of(f"awp(gamma={gamma})")

    @contextmanager
    def __call__(self, loss: Callable[[], Tensor]) -> Iterator[Tensor]:
        """The value of the loss at the perturbed weights, which the context restores."""
        trained = TrainedNetwork(self.model, self.model)
        if not trained.parameters:
            raise RequestError(
                "all weights of the model are frozen, so that none can be moved: leave AWP out"
            )
        with self.recipe.perturbed_weights(trained, loss):
            yield loss()


def trained_of(model: nn.Module) -> TrainedNetwork:
    """A module as attacks query it.

    It goes without the wrapper for several devices, which would wait for the other processes.
    """
    # The attacks of one process must not wait for those of others.
    inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    return TrainedNetwork(inner, answers_of(inner))


def answers_of(model: nn.Module) -> Network:
    """A function that returns the (n, classes) logits of a module, or those in its answer."""
    return lambda x: logits_of(model(x))


def _check_batchwise(recipe: Recipe) -> None:
    """Refuse defences that need more than a batch: perturbed weights or further samples."""
    if recipe.weights:
        parts = [part for part in plugins.split(recipe.text) if plugins.head(part) != "awp"]
        remaining = "+".join(parts) or "pgd"
        raise RequestError(
            f"recipe {recipe.text} perturbs the weights during the backward pass: "
            f"name {remaining} here, and put "
            "brinell.training.AWP around the loss"
        )

    if recipe.specs():
        raise RequestError(
            f"recipe {recipe.text} learns from further samples, which do not "
            "change a batch: put them into your loader, or call "
            "brinell.harden"
        )
