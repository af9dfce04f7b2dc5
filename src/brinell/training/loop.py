"""The training loop: batches crafted by a recipe, averaged weights, checks, and checkpoints.

Every check tests whether the network has become robust to the training attack alone, or has
collapsed to one answer. If so, the loop returns to the last good check, continues with a safer
recipe or a smaller learning rate, and records the event. A loss that is NaN or infinite stops the
training; the last good checkpoint remains.
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
from brinell.core.torch_settings import float32_products
from brinell.training import checkpoint
from brinell.training.average import Average, swap_state
from brinell.training.checks import PGD_STEPS, Checker
from brinell.training.data import Augment, TrainingSamples, augment, order
from brinell.training.recipe import Recipe, TrainedNetwork

RISE = 0.2
"""The share of the training in which the learning rate rises."""
START_FACTOR = 0.04
"""The factor at which it begins."""
CHECK_SHARE = 0.04
"""The share of the passes that checks may take."""
FEWEST_SAMPLES = 64
"""Samples of a check at least, where there are so many for validation."""
TENTH = 0.1
"""The share of the training after which a check is due before an epoch is over, where it stays
within `CHECK_SHARE`."""
RATES = {"adamw": 5e-3, "sgd": 0.02}
"""The largest learning rates where none is asked for."""
SMALLEST_RATE_FACTOR = 0.1
"""Factor of the learning rate below which a collapse no longer reduces it further."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained, apart from the recipe."""

    eps: float
    epochs: float
    seconds: float | None = None
    """Processor time on a CPU, wall time elsewhere; in place of epochs."""
    batch_size: int
    optimizer: Literal["adamw", "sgd"] = "adamw"
    rate: float | None = None
    weight_decay: float = 5e-4
    ramp: float = 0.0
    average: float
    augment: Augment = "none"
    clip: float = 1.0
    """The length to which longer gradients are scaled; 0 leaves them."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    seed: int


@dataclass(kw_only=True)
class TrainingState:
    """Progress of a training; a checkpoint holds it and the tensors."""

    step: int = 0
    seconds: float = 0.0
    recipe: str = ""
    curve: list[dict[str, Any]] = field(default_factory=list)
    """A row for each check, with the events that followed from it."""
    best: float = -1.0
    """The robust accuracy on validation samples of the weights that would be kept; 0 of a recipe
    without a budget."""
    best_step: int = 0
    ramp_start: float = 0.0
    """The share of the training at which the budget began to rise: above 0 after going back."""
    ramp_start_factor: float = 0.0
    """The factor of eps there."""
    rate_factor: float = 1.0
    """The factor of the learning rate: halved at each collapse."""
    forwards: int = 0
    backwards: int = 0
    finished: bool = False

    @property
    def events(self) -> list[str]:
        """Events of the loop that a reader should know."""
        return [event for check in self.curve for event in check["events"]]


class Loop:
    """One training.

    Args:
        trained: the network, in a separate session.
        data: for each defence of the recipe the samples from which its share of a batch is drawn,
            mostly `samples`.
        file: file of the checkpoints; None writes none.
        report: called with a message about each event.
        on_check: called at each check with the state and the completed share of the training.
    """

    def __init__(
        self,
        trained: TrainedNetwork,
        samples: TrainingSamples,
        data: list[TrainingSamples],
        checker: Checker,
        recipe: Recipe,
        distance: Distance,
        settings: Settings,
        file: Path | None = None,
        report: Callable[[str], None] = lambda text: None,
        on_check: Callable[[TrainingState, float], None] = lambda state, share: None,
    ) -> None:
        self.trained = trained
        self.samples = samples
        self.data = data
        self.checker = checker
        self.distance = distance
        self.settings = settings
        self.file = file
        self.report = report
        self.on_check = on_check

        self.device = samples.labels.device
        self.domain = samples.dataset.domain
        self.recipe = recipe
        self.state = TrainingState(recipe=recipe.text)
        self.rng = torch.Generator(self.device)
        self.average = Average(trained.module, settings.average)
        self.initial_weights = self.average.full_state()
        self.best_weights = self.initial_weights
        self.rate = settings.rate or RATES[settings.optimizer]
        self.optimizer = self._optimizer()

        self.per_batch = min(settings.batch_size, len(samples))
        self.per_epoch = len(samples) // self.per_batch
        self.steps = math.ceil(settings.epochs * self.per_epoch)

        # What a failed check goes back to, from the first step on.
        self._good = self._tensors()
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))
        self._last_check = (0, 0.0)
        """Step and share of the last check."""

    def _optimizer(self) -> torch.optim.Optimizer:
        weights = self.trained.parameters
        decay = self.settings.weight_decay
        if self.settings.optimizer == "adamw":
            return torch.optim.AdamW(weights, lr=self.rate, weight_decay=decay, fused=True)
        return torch.optim.SGD(
            weights, lr=self.rate, momentum=0.9, weight_decay=decay, nesterov=True, fused=True
        )

    # What checkpoints hold

    def _tensors(self) -> dict[str, Tensor]:
        """Copies of everything that a checkpoint holds."""
        tensors = checkpoint.add_prefix("network", self.trained.module.state_dict())
        tensors |= checkpoint.add_prefix("average", self.average.state)
        tensors |= checkpoint.add_prefix("kept", self.best_weights)
        tensors |= checkpoint.add_prefix("optimizer", checkpoint.optimizer_state(self.optimizer))
        return {name: value.detach().clone() for name, value in tensors.items()}

    def _restore(self, tensors: dict[str, Tensor], step: int) -> None:
        """Return to what a checkpoint of this step holds."""
        self.trained.module.load_state_dict(checkpoint.strip_prefix("network", tensors))
        for name, value in checkpoint.strip_prefix("average", tensors).items():
            self.average.state[name].copy_(value)
        self.average.steps = step
        # They are cloned: the tensors of the checkpoint are restored again after a bad check.
        self.best_weights = {
            name: value.to(self.device).clone()
            for name, value in checkpoint.strip_prefix("kept", tensors).items()
        }
        self.optimizer = self._optimizer()
        checkpoint.restore_optimizer(self.optimizer, checkpoint.strip_prefix("optimizer", tensors))

    def _save(self, good: bool = True) -> None:
        """Write a checkpoint; after a check that was not good, of the state gone back to."""
        tensors = self._tensors()
        if good:
            self._good = tensors
        if self.file is not None:
            checkpoint.write(self.file, tensors, asdict(self.state))

    def resume(self) -> bool:
        """Continue from the checkpoint, if there is one; returns True if so."""
        if self.file is None or not self.file.exists():
            return False
        tensors, facts = checkpoint.read(self.file)
        self.state = TrainingState(**facts)
        # The recipe may have become a safer one before the interruption.
        if self.state.recipe != self.recipe.text:
            self.recipe = Recipe.of(self.state.recipe).fit(self.domain, self.distance)
        self._restore(tensors, self.state.step)
        self._good = tensors
        self._last_check = (self.state.step, self._share(self.state))
        return True

    # The loop

    def run(self) -> dict[str, Tensor]:
        """Train to the end; returns the weights that are most robust on the validation samples."""
        state = self.state
        # On a processor other programs share the time, and their seconds are none of the
        # training's.
        clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        start = clock()
        earlier_seconds = state.seconds

        self.trained.module.train()
        if not state.curve:
            # The first check is the measure for all later ones; no step precedes it.
            self._check(0.0, loss=None)

        while not state.finished:
            share = self._share(state)
            loss = self._step(share)
            state.step += 1
            state.seconds = earlier_seconds + clock() - start
            if not math.isfinite(loss):
                self._stop(state, loss)
            if self._due():
                # A loss may be finite while some weights are not, in layers that clamp.
                parameters = self.trained.parameters
                if not all(bool(parameter.isfinite().all()) for parameter in parameters):
                    self._stop(state, math.nan)
                self._check(share, loss)

        return self.best_weights

    def passes_left(self) -> int:
        """Forwards and backwards of single inputs in the epochs left; 0 where time ends them."""
        remaining = 0 if self.settings.seconds is not None else max(0, self.steps - self.state.step)
        return round(remaining * self.per_batch * sum(self.recipe.cost()))

    def _share(self, state: TrainingState) -> float:
        """The completed share of the training, by its time or by its steps."""
        if self.settings.seconds is not None:
            return state.seconds / self.settings.seconds
        return state.step / self.steps

    def _eps(self, share: float) -> float:
        """The budget at a completed share of the training."""
        return self.settings.eps * ramp_factor(
            share, self.settings.ramp, self.state.ramp_start, self.state.ramp_start_factor
        )

    def _due(self) -> bool:
        """True if a check is due.

        That is after an epoch, after a tenth of the training if it costs little, and at the end.
        """
        step, share = self._last_check
        current_share = self._share(self.state)
        if current_share >= 1 or self.state.step - step >= self.per_epoch:
            return True
        # Long epochs are checked within.
        return current_share - share >= TENTH and self._affordable() >= FEWEST_SAMPLES

    def _affordable(self) -> float:
        """Number of samples that a check may use, so that checks stay a small part of the work."""
        cost = sum(self.recipe.cost())
        passes = (self.state.step - self._last_check[0]) * self.per_batch * cost
        # A sample of a check costs an answer to it clean, its crafting and an answer, and PGD of
        # the current and of the averaged weights: a forward and a backward a step, and an answer.
        return CHECK_SHARE * passes / (2 + cost + 2 * (2 * PGD_STEPS + 1))

    def _step(self, share: float) -> float:
        """Train on one batch: craft it, update the weights and their average. Returns the loss."""
        settings = self.settings
        state = self.state
        trained = self.trained
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * state.rate_factor * rate_factor(share)

        # The events count too: after going back the same steps draw other numbers. Prime factors
        # keep the numbers of neighbouring seeds and steps apart.
        seed = (settings.seed * 1_000_003 + state.step) * 101 + len(state.events)
        self.rng.manual_seed(seed)
        batch = self._batch(state.step)
        eps = torch.full((len(batch),), self._eps(share), device=self.device)
        threat = Threat(distance=self.distance, eps=eps, domain=self.domain)

        autocast = torch.autocast(
            self.device.type, torch.bfloat16, enabled=settings.precision == "bf16"
        )
        products = float32_products(tf32=settings.precision == "tf32")
        # The checks ask the same network, and are counted apart.
        forwards_before = trained.forwards
        backwards_before = trained.backwards

        with seeded(seed, self.device), torch.enable_grad(), autocast, products:
            x_adv = self.recipe.craft(trained, batch, threat, self.rng)

            def loss_of_weights() -> Tensor:
                return self.recipe.loss(trained, batch, x_adv)

            with self.recipe.perturbed_weights(trained, loss_of_weights):
                loss = loss_of_weights()
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]

        if settings.clip:
            nn.utils.clip_grad_norm_(trained.parameters, settings.clip)
        self.optimizer.step()
        # Within another autocast the weights of this step would be answered with for ever.
        torch.clear_autocast_cache()
        self.average.update()

        state.forwards += trained.forwards - forwards_before
        state.backwards += trained.backwards - backwards_before
        return float(loss.detach())

    def _batch(self, step: int) -> Batch:
        """The samples of a step, each defence's from its own data."""
        size = self.per_batch
        epoch, position = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            rows = order(len(self.samples), self.settings.seed, epoch)
            self._order = (epoch, rows.to(self.device))
        rows = self._order[1][position * size : (position + 1) * size]

        parts = []
        for samples, share in zip(self.data, self.recipe.shares(size), strict=True):
            sample_rows = rows[share]
            if samples is self.samples:
                x = augment(samples.load(sample_rows), self.settings.augment, self.rng)
            else:
                # A defence's own data are not augmented, and are drawn at random, since epochs
                # count the training samples. The ids of the batch only number its rows.
                count = share.stop - share.start
                sample_rows = torch.randint(
                    len(samples), (count,), generator=self.rng, device=self.device
                )
                x = samples.load(sample_rows)
            parts.append((x, samples.labels[sample_rows]))

        if len(parts) == 1:
            x, y = parts[0]
        else:
            x = torch.cat([x for x, _ in parts])
            y = torch.cat([y for _, y in parts])
        return Batch(ids=rows, x=x, y=y)

    # Checks

    def _check(self, share: float, loss: float | None) -> None:
        """Measure, go back if the check is not good, keep the best weights, write a checkpoint.

        The first check is before the first step and has no loss; later checks are compared with it.
        """
        state = self.state
        eps = self._eps(share)  # the rising budget; `robust` is measured at the full one
        is_first = not state.curve
        n = min(len(self.checker.y), max(FEWEST_SAMPLES, int(self._affordable())))
        if len(state.curve) > 1:
            n = state.curve[1]["samples"]  # all later checks are of the same samples
        check = self.checker.check(self.trained, self.recipe.overfitting_parts(), eps, n)
        with swap_state(self.trained.module, self.average.full_state()):
            robust = self.checker.robust(self.trained, self.settings.eps, n)

        # Where nothing safer is known, as of plain training, the gap is what the recipe is, and no
        # accident.
        overfits = bool(self.recipe.safer()) and check.overfits and not is_first
        best_clean = max(
            (earlier["clean"] / earlier["samples"] for earlier in state.curve), default=0.0
        )
        collapsed = check.collapsed(best_clean, self.checker.guess) and not is_first
        good = not (overfits or collapsed)
        row = {
            "step": state.step,
            "seconds": state.seconds,
            "eps": eps,
            "loss": loss,
            "recipe": state.recipe,
            "samples": check.n,
            "clean": check.clean,
            "seen": check.seen,
            "pgd": check.attacked,
            "robust": robust,
        }
        passes = {"forwards": state.forwards, "backwards": state.backwards}
        state.curve.append(row | passes | {"good": good, "events": []})

        if good and not is_first:
            self._keep_best(robust / check.n)
        state.finished = self._share(state) >= 1
        if state.finished:
            self._finish(row, good, collapsed)
        elif not good and (overfits or state.rate_factor > SMALLEST_RATE_FACTOR):
            self._go_back(row, collapsed)

        # The state is written after the decision, so that a resumed training does not go back
        # twice.
        self._save(good)
        self._last_check = (state.step, self._share(state))
        self.on_check(state, min(1.0, self._share(state)))

    def _finish(self, row: dict[str, Any], good: bool, collapsed: bool) -> None:
        """Choose the weights after the last check, and note what went wrong."""
        state = self.state
        self._choose_final_weights(good)
        if not good:
            # The best weights are those of the last check that was good.
            note = f"the weights of step {state.best_step} are kept"
            self._note(f"{self._describe_failure(row, collapsed)}, at the last check; {note}")
        elif state.best_step == 0:
            self._note(
                "the training won nothing: no later weights held on more of "
                "the validation samples than those before it, "
                "which are kept"
            )

    def _keep_best(self, score: float) -> None:
        """Keep the averaged weights if they are the most robust so far.

        Without a budget, robust accuracy is chance, so the latest weights are kept.
        """
        state = self.state
        if not self.recipe.budgeted:
            score = 0.0
        if score >= state.best:
            state.best = score
            state.best_step = state.step
            self.best_weights = self.average.full_state()

    def _choose_final_weights(self, good: bool) -> None:
        """Choose the most robust of the first, the kept and, if `good`, the last weights.

        All validation samples count.

        The best of many checks of few samples is in good part luck; the latest of those that hold
        alike is kept. Of a recipe without a budget the last good weights are kept, whatever holds.
        """
        if not self.recipe.budgeted:
            return
        state = self.state
        n = len(self.checker.y)
        # The weights before the training are a candidate: a training may make them worse.
        right = dict[int, int]()
        candidates = {0: self.initial_weights, state.best_step: self.best_weights}
        if good:
            candidates[state.step] = self.average.full_state()
        for step, weights in candidates.items():
            with swap_state(self.trained.module, weights):
                right[step] = self.checker.robust(self.trained, self.settings.eps, n)

        state.best_step = max(right, key=lambda step: (right[step], step))
        state.best = right[state.best_step] / n
        self.best_weights = candidates[state.best_step]

    def _go_back(self, row: dict[str, Any], collapsed: bool) -> None:
        """Take the weights of the last good check, and a safer recipe or half the learning rate."""
        state = self.state
        good: dict[str, Any] = next(check for check in reversed(state.curve) if check["good"])
        problem = self._describe_failure(row, collapsed)
        if collapsed:
            state.rate_factor /= 2
            remedy = "half the learning rate"
        else:
            remedy = self.recipe.safer()
            self.recipe = Recipe.of(remedy).fit(self.domain, self.distance)
            state.recipe = remedy

        self._note(f"{problem}; went back to step {good['step']}, and on with {remedy}")
        # Going back does not undo what was best: those weights were good.
        best_weights = self.best_weights
        self._restore(self._good, good["step"])
        self.best_weights = best_weights
        state.step = good["step"]
        # The budget goes on from where it was at that check, and rises over what is left, by which
        # `ramp_factor` divides: below 1, so that something is.
        state.ramp_start_factor = good["eps"] / self.settings.eps
        state.ramp_start = min(self._share(state), 0.99)

    @staticmethod
    def _describe_failure(row: dict[str, Any], collapsed: bool) -> str:
        """What went wrong at a check that was not good."""
        if collapsed:
            return (
                f"the training collapsed at step {row['step']}: {row['clean']} of "
                f"{row['samples']} validation samples are right"
            )
        return (
            f"catastrophic overfitting at step {row['step']}: of {row['samples']} "
            f"validation samples {row['seen']} hold against "
            f"{row['recipe']}, which is trained with, and {row['pgd']} against PGD"
        )

    def _note(self, text: str) -> None:
        """Write an event to the last check, and report it."""
        self.state.curve[-1]["events"].append(text)
        self.report(text)

    def _stop(self, state: TrainingState, loss: float) -> None:
        """Raise, since the loss is not finite."""
        kept_text = ""
        if self.file is not None:
            kept_text = f"; the weights of step {state.best_step} are kept in {self.file}"
        raise DivergedError(
            f"the loss is {loss} at step {state.step} of the training{kept_text}: "
            f"restart with a smaller {option('rate')} than "
            f"{self.rate:g}, or look for NaN in the training data"
        )


def ramp_factor(share: float, ramp: float, start: float = 0.0, start_factor: float = 0.0) -> float:
    """The factor of eps at a `share` of the training.

    From `start` it rises linearly from `start_factor` to 1 over the part `ramp` of the remaining
    training, and stays there. The budget rises because a network that is not robust yet learns
    nothing from inputs that it cannot classify. `start` is above 0 after the training went back to
    an earlier state.
    """
    # After a return the rise is shorter, since less of the training is left.
    part = 1.0 if ramp <= 0 else min(1.0, (share - start) / (ramp * (1 - start)))
    return start_factor + (1 - start_factor) * part


def rate_factor(share: float) -> float:
    """Factor of the largest learning rate (Smith & Topin 2018).

    It rises linearly from `START_FACTOR` over `RISE`, then falls to 0.
    """
    rising = START_FACTOR + (1 - START_FACTOR) * share / RISE
    falling = (1 - share) / (1 - RISE)
    return max(0.0, min(rising, falling))
