"""One attack on one batch: stage after stage on the samples that are still robust, without a run folder."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import ChoosesData, reach_of
from brinell.core.criterion import MISCLASSIFIED, Criterion, Targeted, Worst
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model, ask
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent, size
from brinell.datasets._memory import array
from brinell.engine.cascade import Stage, build_stages
from brinell.engine.eps_grid import doubts, parse_eps
from brinell.engine.targeting import targeting
from brinell.engine.texts import eps_text

KINDS: dict[int, Kind] = {2: "vector", 3: "signal", 4: "image", 5: "video"}
"""What inputs are by the number of their axes, the one of the samples included, where a torch module takes them."""


def domain_of(kind: Kind, shape: tuple[int, ...], low: float, high: float) -> Domain:
    """The space of inputs in memory; refuses bounds in the wrong order and an empty shape."""
    try:
        return Domain(kind=kind, shape=shape, low=low, high=high)
    except ValueError as error:
        raise RequestError(str(error)) from None


NORMALISED = "give bounds=(low, high); normalised inputs as they were before, with mean= and std="
"""What to do about inputs outside their bounds."""


def check_bounds(x: Tensor, domain: Domain, then: str = NORMALISED) -> None:
    """Refuse inputs that hold NaN or leave their bounds, as normalised ones do."""
    if not domain.excess(x) <= domain.slack:
        least, most = (float(value) for value in x.aminmax())
        raise RequestError(
            f"x holds values from {least:g} to {most:g}, outside the bounds {domain.low:g} to {domain.high:g} (or NaN): {then}"
        )


def labels_of(y: Any, n: int) -> Tensor:
    """(n,) int64 true classes; refuses another number of them, and what is no class."""
    labels = y.detach() if isinstance(y, Tensor) else torch.as_tensor(np.asarray(array(y, "labels")))
    if labels.shape != (n,) or labels.is_floating_point() or labels.is_complex() or not n or int(labels.min()) < 0:
        raise RequestError(f"y has shape {tuple(labels.shape)} and type {labels.dtype}: it holds {n} whole numbers from 0 on")
    return labels.long()


def stages_of(attack: Any) -> tuple[Stage, ...]:
    """The stages of one attack, several, or a cascade; refuses a cascade that decides by what a whole run finds."""
    names = (attack,) if isinstance(attack, str) else tuple(map(str, attack))
    stages = build_stages(names)
    if any(stage.waits or (stage.turn.within, stage.turn.last) != (None, None) or stage.turn.share < 1 for stage in stages):
        raise RequestError(
            f"{', '.join(names)} decides by what a whole run finds: call brinell.audit, or name attacks such as apgd-t, or "
            "standard"
        )
    return stages


@contextmanager
def opened(model: Model) -> Iterator[None]:
    """The model ready to be asked, where it is."""
    with ExitStack() as stack:
        module = model.info.module
        held = None if module is None else next(module.parameters(), None)
        stack.enter_context(model.info.session(torch.device("cpu") if held is None else held.device))
        yield


def radii(eps: Any, n: int, distance: Distance, domain: Domain, stages: tuple[Stage, ...], device: torch.device) -> Tensor:
    """(n,) the budget of each sample; refuses none where the attack needs one, and another number than there are samples."""
    if eps is None:
        if missing := [stage.name for stage in stages if stage.attack.family != "minimal"]:
            raise RequestError(f"eps is missing, within which {missing[0]} searches: give a number, such as eps=8/255")
        most = extent(distance, domain)
        if not math.isfinite(most):
            raise RequestError(f"eps is missing, and {distance.name} has no largest distance: give a number")
        return torch.full((n,), most, device=device)
    if np.ndim(eps) == 1 and not isinstance(eps, str):
        radii = torch.as_tensor(array(eps, "inputs"), dtype=torch.float32)
        if radii.shape != (n,) or not bool((torch.isfinite(radii) & (radii >= 0)).all()):
            raise RequestError(f"eps holds {len(radii)} numbers for {n} samples: give one, or one of 0 or more for each")
        return radii.to(device)
    budgets = parse_eps(eps_text(eps))
    if len(budgets.values) != 1:
        raise RequestError(
            f"eps {eps!r} is {len(budgets.values)} budgets: brinell.attack takes one; for several call brinell.audit"
        )
    doubts(budgets, distance, domain)
    return torch.full((n,), budgets.values[0], device=device)


@dataclass
class BatchAttack:
    """One model and one batch, to be attacked by one stage after another."""

    model: Model
    domain: Domain
    distance: Distance
    x: Tensor
    y: Tensor
    batch_size: int
    queries: int | None
    seed: int

    def run(self, stages: tuple[Stage, ...], eps: Tensor, targeted: Any, worst: bool) -> dict[str, Tensor]:
        """The closest adversarial input of each sample, or the one of the largest margin, and what that cost."""
        n, device = len(self.x), self.x.device
        with torch.no_grad():
            logits = torch.cat([ask(self.model, part) for part in self.x.split(self.batch_size)])  # type: ignore[no-untyped-call]
        if int(self.y.max()) >= logits.shape[1]:
            raise RequestError(
                f"y holds the class {int(self.y.max())}, and the model distinguishes {logits.shape[1]}: counted from 0"
            )
        criterion = self._criterion(targeted, logits)
        margin = criterion.margin(logits, self.y, self.x)
        found = {
            "x_adv": self.x.clone(),
            "success": criterion.met(margin, logits.abs().amax(1)),
            "margin": margin,
            "queries": torch.zeros(n, dtype=torch.int64, device=device),
            "backwards": torch.zeros(n, dtype=torch.int64, device=device),
        }
        for stage in stages:
            self._check(stage, targeted is not None)
            rows = torch.arange(n, device=device) if worst else (~found["success"]).nonzero()[:, 0]
            if len(rows):
                self._stage(stage, rows, eps[rows], criterion.select(rows), worst, found)
        found["distance"] = size(self.distance, found["x_adv"], self.x)
        return found

    def _criterion(self, targeted: Any, logits: Tensor) -> Criterion:
        if targeted is None:
            return MISCLASSIFIED
        if not isinstance(targeted, str) and np.ndim(targeted) == 1:
            classes = labels_of(targeted, len(self.y)).to(self.y.device)
        else:
            names = tuple(map(str, range(logits.shape[1])))
            chosen = targeting(str(int(targeted)) if not isinstance(targeted, str) else targeted, names)
            assert chosen is not None
            chosen.check(self.model.name, logits.shape[1])
            classes = chosen.classes(logits, self.y, Streams.of(self.seed, torch.arange(len(self.y), device=self.y.device)))
        if bool((classes == self.y).any()):
            raise RequestError("the target class of a sample is its own: leave such samples out, or aim at another class")
        found = Targeted(classes)
        found.check(logits.shape[1])
        return found

    def _check(self, stage: Stage, targeted: bool) -> None:
        attack = stage.attack
        if attack.access > self.model.access:
            access = self.model.access
            hint = "square, which needs scores only" if access == Access.SCORES else "hop-skip-jump, which needs labels only"
            needed, given = attack.access.name.lower(), access.name.lower()
            raise RequestError(f"{stage.name} needs {needed}, and {self.model.name} gives {given} only: take {hint}")
        if self.distance.name not in attack.distances:
            raise RequestError(f"{stage.name} works in {', '.join(sorted(attack.distances))}, not in {self.distance.name}")
        if self.domain.kind not in attack.domains:
            raise RequestError(f"{stage.name} works on {', '.join(sorted(attack.domains))} inputs, not on a {self.domain.kind}")
        if targeted and not attack.targeted:
            raise RequestError(f"{stage.name} cannot be led to a target class: take apgd, pgd or square")
        if isinstance(attack, ChoosesData):
            attack.check(self.domain)

    def _stage(
        self, stage: Stage, rows: Tensor, eps: Tensor, criterion: Criterion, worst: bool, found: dict[str, Tensor]
    ) -> None:
        x, y = self.x[rows], self.y[rows]
        shown = Worst(criterion) if worst else criterion
        threat = Threat(distance=self.distance, eps=eps, domain=self.domain, criterion=shown)
        minimal = stage.attack.family == "minimal"
        if worst and minimal:
            raise RequestError(
                f"{stage.name} minimises the distance, and worst=True asks for the largest margin: take apgd or pgd"
            )
        ledger = Ledger(
            self.model,
            Batch(ids=torch.arange(len(rows), device=x.device), x=x, y=y),
            threat,
            access=stage.attack.access,
            queries=self.queries,
            batch_size=self.batch_size,
            minimal=minimal,
            reach=reach_of(stage.attack, self.distance.name),
            eot=stage.eot,
            strongest=True,
        )
        stage.attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(self.seed, rows).fold(stage.name))
        better = ledger.best.margin > found["margin"][rows]
        fooled = better & (ledger.best.margin > 0) if worst else ledger.fooled
        found["x_adv"][rows[better]] = ledger.best.strongest[better]
        if not worst:
            found["x_adv"][rows[fooled]] = ledger.best.closest[fooled]
        found["success"][rows[fooled]] = True
        found["margin"][rows] = torch.maximum(found["margin"][rows], ledger.best.margin)
        found["queries"][rows] += ledger.costs.forwards
        found["backwards"][rows] += ledger.costs.backwards
