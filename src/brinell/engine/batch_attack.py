"""One attack on one batch: stage after stage on the samples that are still robust, without a run
folder.
"""

import math
import operator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.core.attack import attack
from brinell.core.contracts import ChoosesData
from brinell.core.criterion import MISCLASSIFIED, Criterion, Targeted, Worst
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, short
from brinell.core.model import Model, ask
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent, size
from brinell.core.values import as_array, as_tensor
from brinell.engine.cascade import Stage, build_stages
from brinell.engine.class_counts import check_output
from brinell.engine.criteria import parse_targeting
from brinell.engine.eps_grid import check_budgets, parse_eps
from brinell.engine.plan import skip_reason
from brinell.engine.texts import eps_text

KINDS: dict[int, Kind] = {2: "vector", 3: "signal", 4: "image", 5: "video"}
"""Kind of inputs of a torch module, by the number of axes including the sample axis."""


def domain_of(kind: Kind, shape: tuple[int, ...], low: float, high: float) -> Domain:
    """The domain of inputs in memory; refuses bounds in the wrong order and an empty shape."""
    try:
        return Domain(kind=kind, shape=shape, low=low, high=high)
    except ValueError as error:
        raise RequestError(str(error)) from None


def check_bounds(x: Tensor, domain: Domain, remedy: str = "") -> None:
    """Refuse inputs that hold NaN or leave their bounds, as normalised ones do."""
    # Negated, because a comparison with NaN is false.
    if not domain.excess(x) <= domain.slack:
        usual = (
            "give bounds=(low, high); normalised inputs as they were before, with mean= and std="
        )
        raise RequestError(
            f"x holds values from {float(x.min()):g} to {float(x.max()):g}, outside the bounds "
            f"{domain.low:g} to {domain.high:g} (or NaN): {remedy or usual}"
        )


def parse_labels(y: Any, n: int) -> Tensor:
    """Parse the true classes to (n,) int64; refuses a wrong number of labels and values that are
    not classes.
    """
    labels = as_tensor(y, "classes")
    is_whole = not labels.is_floating_point() and not labels.is_complex()
    if not n or not is_whole or labels.shape != (n,) or int(labels.min()) < 0:
        raise RequestError(
            f"y has shape {tuple(labels.shape)} and type {labels.dtype}: it holds "
            f"{n} whole numbers from 0 on"
        )
    return labels.long()


def parse_stages(attack: tuple[str, ...]) -> tuple[Stage, ...]:
    """Build the stages of one or more attacks or of a cascade; refuses cascades that depend on the
    results of a full run.
    """
    stages = build_stages(attack)
    for stage in stages:
        is_refining = (stage.turn.within, stage.turn.last) != (None, None)
        if stage.waits or is_refining or stage.turn.share < 1:
            raise RequestError(
                f"{', '.join(attack)} decides by what a whole run finds: call "
                "brinell.audit, or name attacks such as apgd-t, or "
                "standard"
            )
    return stages


def model_session(model: Model) -> AbstractContextManager[None]:
    """Open the model's session on the device of its parameters."""
    module = model.info.module
    parameter = None if module is None else next(module.parameters(), None)
    return model.info.session(torch.device("cpu") if parameter is None else parameter.device)


def parse_radii(
    eps: Any,
    n: int,
    distance: Distance,
    domain: Domain,
    stages: tuple[Stage, ...],
    device: torch.device,
) -> Tensor:
    """Parse eps to the budget (n,) of each sample; None means the largest possible distance, for
    minimal attacks alone.
    """
    if eps is None:
        if missing := [stage.name for stage in stages if stage.attack.family != "minimal"]:
            raise RequestError(
                f"eps is missing, within which {missing[0]} searches: give a "
                "number, such as eps=8/255"
            )
        largest = extent(distance, domain)
        if not math.isfinite(largest):
            raise RequestError(
                f"eps is missing, and {distance.name} has no largest distance: give a number"
            )
        return torch.full((n,), largest, device=device)

    if _is_list(eps):
        radii = torch.as_tensor(as_array(eps, "numbers of eps"), dtype=torch.float32)
        if radii.shape != (n,) or not bool((torch.isfinite(radii) & (radii >= 0)).all()):
            raise RequestError(
                f"eps holds {len(radii)} numbers for {n} samples: give one, or "
                "one of 0 or more for each"
            )
        return radii.to(device)

    budgets = parse_eps(eps_text(eps))
    if len(budgets.values) != 1:
        raise RequestError(
            f"eps {short(eps)} is {len(budgets.values)} budgets: brinell.attack "
            "takes one; for several call brinell.audit"
        )
    check_budgets(budgets, distance, domain)
    return torch.full((n,), budgets.values[0], device=device)


def _is_list(value: Any) -> bool:
    """True for a list of Python, and for an array or tensor of one axis."""
    return isinstance(value, list | tuple | range) or (
        not isinstance(value, str) and getattr(value, "ndim", 0) == 1
    )


@dataclass
class BatchAttack:
    """One model and one batch, which stages attack in turn."""

    model: Model
    domain: Domain
    distance: Distance
    x: Tensor
    y: Tensor
    batch_size: int
    queries: int | None
    seed: int

    def run(
        self, stages: tuple[Stage, ...], eps: Tensor, targeted: Any, worst: bool
    ) -> dict[str, Tensor]:
        """Attack the batch; return each sample's closest adversarial input (`worst`: that of the
        largest margin) and costs.
        """
        check_output(self.model, dataset=None)
        with torch.no_grad():
            logits = torch.cat([ask(self.model, part) for part in self.x.split(self.batch_size)])  # type: ignore[no-untyped-call]
        if int(self.y.max()) >= logits.shape[1]:
            raise RequestError(
                f"y holds the class {int(self.y.max())}, and the model "
                f"distinguishes {logits.shape[1]}: counted from 0"
            )

        criterion = self._criterion(targeted, logits)
        margin = criterion.margin(logits, self.y, self.x)
        result = {
            "x_adv": self.x.clone(),
            "success": criterion.is_met(margin, logits, self.y),
            "margin": margin,
            "queries": torch.zeros_like(self.y),
            "backwards": torch.zeros_like(self.y),
        }
        for stage in stages:
            self._check(stage, targeted=targeted is not None)
            # The worst case spares no sample, even if it is misclassified untouched.
            is_attacked = torch.ones_like(result["success"]) if worst else ~result["success"]
            rows = is_attacked.nonzero()[:, 0]
            if len(rows):
                self._stage(stage, rows, eps[rows], criterion.select(rows), worst, result)
        result["distance"] = size(self.distance, result["x_adv"], self.x)
        return result

    def _criterion(self, targeted: Any, logits: Tensor) -> Criterion:
        """The criterion of success: any wrong class, or the target class of each sample."""
        if targeted is None:
            return MISCLASSIFIED

        if _is_list(targeted):
            classes = parse_labels(targeted, len(self.y)).to(self.y.device)
        else:
            classes = self._drawn_classes(targeted, logits)
        if bool((classes == self.y).any()):
            raise RequestError(
                "the target class of a sample is its own: leave such samples "
                "out, or aim at another class"
            )
        criterion = Targeted(classes)
        criterion.check(logits.shape[1])
        return criterion

    def _drawn_classes(self, targeted: Any, logits: Tensor) -> Tensor:
        """(n,) the target class of each sample, by one rule for all."""
        try:
            text = targeted if isinstance(targeted, str) else str(operator.index(targeted))
        except Exception:  # an object from outside may raise anything
            raise RequestError(
                f"targeted is {short(targeted)}: give a class, one for each sample, or 'random'"
            ) from None
        # Without data the classes have no names but their numbers.
        target = parse_targeting(text, tuple(map(str, range(logits.shape[1]))))
        assert target is not None
        target.check(self.model.name, logits.shape[1])
        ids = torch.arange(len(self.y), device=self.y.device)
        return target.classes(logits, self.y, Streams.of(self.seed, ids))

    def _check(self, stage: Stage, *, targeted: bool) -> None:
        """Refuse a stage that does not fit the model or the data."""
        attack = stage.attack
        if reason := skip_reason(stage, self.model, self.distance, targeted=targeted):
            raise RequestError(f"{stage.name} cannot attack {self.model.name}: {reason}")
        for part in (self.distance, attack):
            if isinstance(part, ChoosesData):
                part.check(self.domain)

    def _stage(
        self,
        stage: Stage,
        rows: Tensor,
        eps: Tensor,
        criterion: Criterion,
        worst: bool,
        result: dict[str, Tensor],
    ) -> None:
        """Run a stage on the samples of `rows` and write its finds into `result`."""
        attack_criterion = Worst(criterion) if worst else criterion
        threat = Threat(
            distance=self.distance, eps=eps, domain=self.domain, criterion=attack_criterion
        )
        if worst and stage.attack.family == "minimal":
            raise RequestError(
                f"{stage.name} minimises the distance, and worst=True asks for "
                "the largest margin: take apgd or pgd"
            )

        # What the attack says besides is for the folder of a run.
        ledger, _ = attack(
            self.model,
            Batch.of(self.x[rows], self.y[rows]),
            threat,
            stage.attack,
            Streams.of(self.seed, rows).fold(stage.name),
            queries=self.queries,
            batch_size=self.batch_size,
            eot=stage.eot,
            strongest=True,
        )

        # A robust sample shows its input of the largest margin; a broken one its closest
        # adversarial input, unless the worst case is asked for.
        improved = ledger.best.margin > result["margin"][rows]
        fooled = improved & (ledger.best.margin > 0) if worst else ledger.fooled
        result["x_adv"][rows[improved]] = ledger.best.strongest[improved]
        if not worst:
            result["x_adv"][rows[fooled]] = ledger.best.closest[fooled]
        result["success"][rows[fooled]] = True
        result["margin"][rows] = torch.maximum(result["margin"][rows], ledger.best.margin)
        result["queries"][rows] += ledger.costs.forwards
        result["backwards"][rows] += ledger.costs.backwards
