"""The training loop: batches crafted by a recipe, an average of the weights, checks on validation samples, and checkpoints.

At every check the loop looks whether the network has come to hold against its own attack alone, or has collapsed to one answer.
Then it goes back to the last check that was good, goes on with a safer recipe or a smaller rate, and notes that it did. A loss
that is no number stops it; the last good checkpoint stays where it is.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from brinell.core.errors import DivergedError, option
from brinell.core.oracle import Batch
from brinell.core.streams import seeded
from brinell.core.threat import Distance, Threat
from brinell.training import checkpoint
from brinell.training.average import Average, swapped
from brinell.training.checks import Checker
from brinell.training.data import Augment, Samples, augmented, joined, order
from brinell.training.recipe import Recipe, Trained

RISE = 0.2
"""The share of the training in which the learning rate rises."""
START = 0.04
"""The factor at which it begins."""
CHECKING = 0.04
"""The share of the passes that checks may take."""
FEWEST = 64
"""Samples of a check at least, where there are so many for validation."""
TENTH = 0.1
"""The share of the training after which a check is due before an epoch is over, where it stays within `CHECKING`."""
PGD_STEPS = 10
RATES = {"adamw": 5e-3, "sgd": 0.02}
"""The largest learning rates where none is asked for."""
NOTHING_WON = (
    "the training won nothing: no later weights held on more of the validation samples than those before it, which are kept"
)
"""The event of a training whose weights are those that it began with."""
SLOWEST = 0.1
"""The factor of the learning rate below which a collapse is no longer answered by a smaller one."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained, apart from the recipe."""

    eps: float
    epochs: float
    seconds: float | None
    """Processor time on a CPU, wall time elsewhere; in place of epochs."""
    batch_size: int
    optimizer: Literal["adamw", "sgd"]
    rate: float | None
    weight_decay: float
    ramp: float
    average: float
    patience: int | None
    augment: Augment
    clip: float
    """The length to which longer gradients are scaled; 0 leaves them."""
    precision: Literal["float32", "bf16"]
    seed: int


@dataclass(kw_only=True)
class State:
    """Where a training is; a checkpoint holds it and the tensors."""

    step: int = 0
    seconds: float = 0.0
    recipe: str = ""
    curve: list[dict[str, Any]] = field(default_factory=list)
    """A row for each check."""
    events: list[str] = field(default_factory=list)
    """What the loop did that a reader should know."""
    best: float = -1.0
    """The robust accuracy on validation samples of the weights that would be kept; 0 of a recipe without a budget."""
    best_step: int = 0
    stale: int = 0
    """Checks without a better one."""
    since: float = 0.0
    """The share of the training at which the budget began to rise: above 0 after going back."""
    first: float = 0.0
    """The factor of eps there."""
    slower: float = 1.0
    """The factor of the learning rate: halved at each collapse."""
    forwards: int = 0
    backwards: int = 0
    over: bool = False


class Loop:
    """One training.

    Args:
        trained: the network, in a session of its own.
        own: the training data.
        data: for each defence of the recipe the samples that its share of a batch is drawn from, mostly `own`.
        checker: the validation samples.
        recipe: how to train.
        distance: the norm of eps.
        settings: how much and how fast.
        file: where checkpoints go; None keeps none.
        tell: told what happens.
        done: told at each check what share of the training is over.
    """

    def __init__(
        self,
        trained: Trained,
        own: Samples,
        data: list[Samples],
        checker: Checker,
        recipe: Recipe,
        distance: Distance,
        settings: Settings,
        file: Path | None = None,
        tell: Callable[[str], None] = lambda text: None,
        done: Callable[[State, float], None] = lambda state, share: None,
    ) -> None:
        self.trained, self.own, self.data, self.checker = trained, own, data, checker
        self.distance, self.settings = distance, settings
        self.file, self.tell, self.done = file, tell, done
        self.device = own.labels.device
        self.domain = own.dataset.domain
        self.recipe = recipe
        self.state = State(recipe=recipe.text)
        self.rng = torch.Generator(self.device)
        self.average = Average(trained.module, settings.average)
        self.began = self.kept = self.average.whole()
        self.rate = settings.rate or RATES[settings.optimizer]
        self.optimizer = self._optimizer()
        self.per_batch = min(settings.batch_size, len(own))
        self.per_epoch = len(own) // self.per_batch
        self.steps = math.ceil(settings.epochs * self.per_epoch)
        self._good = self._tensors()
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))
        self._checked_at = (0, 0.0)
        """Step and share of the last check."""

    def _optimizer(self) -> torch.optim.Optimizer:
        weights, s = self.trained.parameters, self.settings
        if s.optimizer == "sgd":
            return torch.optim.SGD(weights, lr=self.rate, momentum=0.9, weight_decay=s.weight_decay, nesterov=True, fused=True)
        return torch.optim.AdamW(weights, lr=self.rate, weight_decay=s.weight_decay, fused=True)

    # What checkpoints hold

    def _tensors(self) -> dict[str, Tensor]:
        found = checkpoint.named("network", self.trained.module.state_dict())
        found |= checkpoint.named("average", self.average.state) | checkpoint.named("kept", self.kept)
        found |= checkpoint.named("optimizer", checkpoint.of_optimizer(self.optimizer))
        return {name: value.detach().clone() for name, value in found.items()}

    def _restore(self, tensors: dict[str, Tensor], step: int) -> None:
        self.trained.module.load_state_dict(checkpoint.under("network", tensors))
        for name, value in checkpoint.under("average", tensors).items():
            self.average.state[name].copy_(value)
        self.average.steps = step
        self.kept = {name: value.to(self.device).clone() for name, value in checkpoint.under("kept", tensors).items()}
        self.optimizer = self._optimizer()
        checkpoint.into_optimizer(self.optimizer, checkpoint.under("optimizer", tensors))

    def _save(self, good: bool = True) -> None:
        """Write a checkpoint; after a check that was not good it holds the state that the loop went back to."""
        tensors = self._tensors()
        if good:
            self._good = tensors
        if self.file is not None:
            checkpoint.write(self.file, tensors, asdict(self.state))

    def resume(self) -> bool:
        """Go on where the checkpoint ends, if there is one."""
        if self.file is None or not self.file.exists():
            return False
        tensors, facts = checkpoint.read(self.file)
        self.state = State(**facts)
        if self.state.recipe != self.recipe.text:
            self.recipe = Recipe.of(self.state.recipe).fitted(self.domain, self.distance)
        self._restore(tensors, self.state.step)
        self._good, self._checked_at = tensors, (self.state.step, self._share(self.state))
        return True

    # The loop

    def run(self) -> dict[str, Tensor]:
        """Train to the end, or as long as it gets better; the weights that held best on the validation samples."""
        state = self.state
        clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        begun, before = clock(), state.seconds
        self.trained.module.train()
        if not state.curve:
            self._check(0.0, None)
        while not state.over:
            share = self._share(state)
            loss = self._step(share)
            state.step += 1
            state.seconds = before + clock() - begun
            if not math.isfinite(loss):
                self._stop(state, loss)
            if self._due():
                if not all(bool(one.isfinite().all()) for one in self.trained.parameters):
                    self._stop(state, math.nan)
                self._check(share, loss)
        return self.kept

    def passes_left(self) -> int:
        """Forwards and backwards of single inputs that the rest of the epochs asks for; 0 where it is time that ends them."""
        left = 0 if self.settings.seconds is not None else max(0, self.steps - self.state.step)
        return round(left * self.per_batch * sum(self.recipe.cost()))

    def _share(self, state: State) -> float:
        if self.settings.seconds is not None:
            return state.seconds / self.settings.seconds
        return state.step / self.steps

    def _factor(self, share: float) -> float:
        return ramped(share, self.settings.ramp, self.state.since, self.state.first)

    def _due(self) -> bool:
        """Whether it is time for a check: after an epoch, after a tenth of the training where that costs little, at the end."""
        step, share = self._checked_at
        now = self._share(self.state)
        tenth = now - share >= TENTH and self._affordable() >= FEWEST
        return self.state.step - step >= self.per_epoch or tenth or now >= 1

    def _affordable(self) -> float:
        """How many samples a check may take, so that checks stay a small part of the work."""
        cost = sum(self.recipe.cost())
        passes = (self.state.step - self._checked_at[0]) * self.per_batch * cost
        return CHECKING * passes / (2 + cost + 2 * (2 * PGD_STEPS + 1))

    def _step(self, share: float) -> float:
        """One batch: crafted, learned from, averaged. Returns the loss."""
        settings, state, trained = self.settings, self.state, self.trained
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * state.slower * rate_factor(share)
        drawn = (settings.seed * 1_000_003 + state.step) * 101 + len(state.events)
        self.rng.manual_seed(drawn)
        batch = self._batch(state.step)
        eps = torch.full((len(batch),), settings.eps * self._factor(share), device=self.device)
        threat = Threat(distance=self.distance, eps=eps, domain=self.domain)
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=settings.precision == "bf16")
        asked = trained.forwards, trained.backwards
        with seeded(drawn, self.device), torch.enable_grad(), half:
            x_adv = self.recipe.craft(trained, batch, threat, self.rng)
            with self.recipe.around(trained, lambda: self.recipe.loss(trained, batch, x_adv)):
                loss = self.recipe.loss(trained, batch, x_adv)
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
        if settings.clip:
            nn.utils.clip_grad_norm_(trained.parameters, settings.clip)
        self.optimizer.step()
        torch.clear_autocast_cache()  # within another autocast the weights of this step would be answered with for ever
        self.average.update()
        state.forwards += trained.forwards - asked[0]
        state.backwards += trained.backwards - asked[1]
        return float(loss.detach())

    def _batch(self, step: int) -> Batch:
        """The samples of a step, each defence's from its own data."""
        size = self.per_batch
        epoch, at = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, order(len(self.own), self.settings.seed, epoch).to(self.device)
        rows = self._order[1][at * size : (at + 1) * size]
        parts = []
        for samples, share in zip(self.data, self.recipe.shares(size), strict=True):
            own = rows[share]
            if samples is self.own:
                x = augmented(samples.load(own), self.settings.augment, self.rng)
            else:  # ready-made, for the place where it is
                own = torch.randint(len(samples), (share.stop - share.start,), generator=self.rng, device=self.device)
                x = samples.load(own)
            parts.append((x, samples.labels[own]))
        return Batch(ids=rows, x=joined([x for x, _ in parts]), y=joined([y for _, y in parts]))

    # Checks

    def _check(self, share: float, loss: float | None) -> None:
        """Measure, go back where the network overfits to its attack, keep the best weights, write a checkpoint.

        The first check is before the first step, without a loss: what the later ones are held against.
        """
        state, eps, first = self.state, self.settings.eps * self._factor(share), not self.state.curve
        n = state.curve[1]["n"] if len(state.curve) > 1 else min(len(self.checker.y), max(FEWEST, int(self._affordable())))
        found = self.checker.check(self.trained, self.recipe.prone(), eps, n)
        with self.average.shown():
            robust = self.checker.robust(self.trained, self.settings.eps, n)
        row = {"step": state.step, "seconds": state.seconds, "eps": eps, "loss": loss, "recipe": state.recipe}
        row |= {"n": found.n, "clean": found.clean, "seen": found.seen, "pgd": found.attacked, "robust": robust}
        # Where nothing safer is known, as of plain training, the gap is what the recipe is, and no accident.
        overfits = bool(self.recipe.safer()) and found.overfits and not first
        before = max((one["clean"] / one["n"] for one in state.curve), default=0.0)
        collapsed = found.collapsed(before, self.checker.guess) and not first
        good = not (overfits or collapsed)
        state.curve.append(row | {"good": good})
        if good and not first:
            self._keep_best(robust / found.n, whole=eps >= self.settings.eps)
        state.over = self._share(state) >= 1
        if not good and not state.over and (overfits or state.slower > SLOWEST):
            self._go_back(row, collapsed)
        elif not state.over and self.settings.patience is not None and state.stale >= self.settings.patience:
            state.over = True
            self._say(f"stopped at step {state.step}: the last {state.stale} checks brought no better robust accuracy")
        if state.over:
            self._settle(good)
            if not good:
                self._say(f"{self._what(row, collapsed)}, at the last check; the weights of step {state.best_step} are kept")
            elif state.best_step == 0:
                self._say(NOTHING_WON)
        self._save(good)
        self._checked_at = state.step, self._share(state)
        self.done(state, min(1.0, self._share(state)))

    def _keep_best(self, score: float, whole: bool) -> None:
        """Keep the averaged weights if they are the most robust so far; `whole`: the budget is at its full size.

        Of a recipe that trains for no budget, robust accuracy is chance: the latest are kept.
        """
        state = self.state
        if not self.recipe.budgeted:
            score, whole = 0.0, False
        state.stale = state.stale + 1 if whole and score <= state.best else 0
        if score >= state.best:
            state.best, state.best_step = score, state.step
            self.kept = self.average.whole()

    def _settle(self, good: bool) -> None:
        """At the end, on all validation samples: the weights before the training, the kept ones, and the last if they are `good`.

        The best of many checks of few samples is in good part luck; the latest of those that hold alike is kept. Of a recipe
        without a budget the last good weights are kept, whatever holds.
        """
        state, everything = self.state, len(self.checker.y)
        if not self.recipe.budgeted:
            return
        found = {0: self.began, state.best_step: self.kept} | ({state.step: self.average.whole()} if good else {})
        held = {}
        for step, weights in found.items():
            with swapped(self.trained.module, weights):
                held[step] = self.checker.robust(self.trained, self.settings.eps, everything)
        most = max(held.values())
        state.best, state.best_step = most / everything, max(step for step, count in held.items() if count == most)
        self.kept = found[state.best_step]

    def _go_back(self, row: dict[str, Any], collapsed: bool) -> None:
        """Take the weights of the last good check, and a safer recipe, or after a collapse half the learning rate."""
        state = self.state
        good: dict[str, Any] = next(one for one in reversed(state.curve) if one["good"])
        what = self._what(row, collapsed)
        if collapsed:
            state.slower /= 2
            then = "half the learning rate"
        else:
            then = self.recipe.safer()
            self.recipe = Recipe.of(then).fitted(self.domain, self.distance)
            state.recipe = then
        self._say(f"{what}; went back to step {good['step']}, and on with {then}")
        kept = self.kept
        self._restore(self._good, good["step"])
        self.kept, state.step, state.first = kept, good["step"], good["eps"] / self.settings.eps
        state.since = min(self._share(state), 0.99)

    @staticmethod
    def _what(row: dict[str, Any], collapsed: bool) -> str:
        """What is wrong at a check."""
        if collapsed:
            return f"the training collapsed at step {row['step']}: {row['clean']} of {row['n']} validation samples are right"
        return (
            f"catastrophic overfitting at step {row['step']}: of {row['n']} validation samples {row['seen']} hold against "
            f"{row['recipe']}, which is trained with, and {row['pgd']} against PGD"
        )

    def _say(self, text: str) -> None:
        self.state.events.append(text)
        self.tell(text)

    def _stop(self, state: State, loss: float) -> None:
        """Refuse to go on with a loss that is no number."""
        kept = f"; the weights of step {state.best_step} are kept in {self.file}" if self.file is not None else ""
        raise DivergedError(
            f"the loss is {loss} at step {state.step} of the training{kept}: begin anew with a smaller {option('rate')} (it is "
            f"{self.rate:g}), or look for NaN in the training data"
        )


def ramped(share: float, ramp: float, since: float = 0.0, first: float = 0.0) -> float:
    """The factor of eps at a share of the training: it rises to 1 over the part `ramp` of what is left at `since`, and stays.

    A network that is not robust yet learns nothing from inputs that it cannot get right; so the budget rises. `since` is above 0
    where the training went back to an earlier state, and `first` is the factor there.
    """
    part = 1.0 if ramp <= 0 else min(1.0, (share - since) / (ramp * (1 - since)))
    return first + (1 - first) * part


def rate_factor(share: float) -> float:
    """The factor of the largest learning rate: up linearly from `START` over `RISE`, then down to 0 (Smith & Topin 2018)."""
    return max(0.0, min(START + (1 - START) * share / RISE, (1 - share) / (1 - RISE)))
