"""`brinell.attack`: one attack on inputs in memory, without a run folder; for a look, and for training loops."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.contracts import ChoosesData, reach_of
from brinell.core.criterion import MISCLASSIFIED, Criterion, Targeted, Worst
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model, ask
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent, size
from brinell.datasets._memory import ArrayDataset, array
from brinell.engine.cascade import Stage, build_stages
from brinell.engine.eps_grid import doubts, parse_eps
from brinell.engine.plan import open_distance
from brinell.engine.targeting import targeting
from brinell.inputs import eps_text, models_of, norm_text
from brinell.models._answers import recognised
from brinell.wording import worded

KINDS: dict[int, Kind] = {2: "vector", 3: "signal", 4: "image", 5: "video"}
"""What inputs are by the number of their axes, the one of the samples included, where a torch module takes them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AttackResult:
    """What one attack found; arrays of the kind that was given, and on its device."""

    x_adv: Any
    """(n, *shape): the closest adversarial example; of a sample that is robust, and with `worst=True` of every sample, the input
    of the largest margin."""
    success: Any
    """(n,) bool: whether `x_adv` meets the criterion. A sample that is misclassified from the start counts, at distance 0."""
    distance: Any
    """(n,) how far `x_adv` is from the input, in the norm of the attack."""
    margin: Any
    """(n,) the largest margin that was seen: a wrong logit minus the true one, positive where misclassified."""
    queries: Any
    """(n,) forward evaluations of each sample by the attack; one more was spent on the clean input."""
    backwards: Any
    """(n,) backward evaluations."""
    norm: str
    """The norm of `distance`."""

    @property
    def robust_accuracy(self) -> float:
        """Share of the samples on which the attack did not succeed."""
        return 1.0 - float(np.mean(np.asarray(array(self.success, "inputs"), dtype=np.float64)))

    def __repr__(self) -> str:
        n, found = len(self.success), int(sum(map(bool, self.success)))
        queries = float(np.mean(np.asarray(array(self.queries, "inputs"), dtype=np.float64)))
        return (
            f"<AttackResult: {found} of {n} broken, {self.robust_accuracy:.1%} robust, {self.norm}, {queries:.0f} queries each>"
        )


@worded
def attack(
    model: Any,
    x: Any,
    y: Any,
    attack: str | list[str] | tuple[str, ...] = "apgd",
    *,
    eps: Any = None,
    norm: Any = "linf",
    targeted: Any = None,
    worst: bool = False,
    queries: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    bounds: tuple[float, float] = (0.0, 1.0),
    kind: Kind | None = None,
    layout: Literal["first", "last"] | None = None,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
) -> AttackResult:
    """Attack a batch of inputs, and return the adversarial ones.

    Nothing is written to disk. A module is asked in evaluation mode on its own device, in float32 whatever autocast says; its
    mode, its gradients and the global generators are as before. So it can be called within a training loop, with `worst=True`
    for training on the inputs of the largest margin, and another `seed` at each step for another random start.

    Args:
        model: as for `brinell.audit`, one of them.
        x: (n, *shape) tensor or array within the bounds, as the model takes it; bytes are divided by 255.
        y: (n,) true classes.
        attack: a name such as apgd, apgd-t, pgd?steps=50, square or fab; or a list or cascade (standard), each of which gets the
            samples that are still robust.
        eps: the budget: a number, a text such as 8/255, or one number for each sample; an attack that minimises the distance
            (fab, ddn, cw, fmn) takes none for any distance.
        norm: linf, l2, l1 or l0, also as np.inf, 2, 1, 0; or embedding:FILE.
        targeted: a class, or one for each sample, or least-likely, or random: nothing else counts as a success.
        worst: go on with every sample until the steps are spent, those that are misclassified included, and return the input of
            the largest margin in place of the closest adversarial one.
        queries: forward evaluations that each attack may spend on a sample.
        batch_size: the most inputs shown to the model at once; by default all.
        seed: of every random number.
        bounds: (low, high) of the inputs.
        kind: image, signal, video or vector, where the number of axes leaves it open.
        layout: where a function of one's own has the channels, first or last.
        preprocessing: as for `brinell.audit`.
        mean: likewise.
        std: likewise.
        answers: likewise; `logits` saves the look at what the answers are.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    distance = open_distance(norm_text(norm))
    stages = _stages(attack)
    inputs = _inputs(model, x, bounds, kind, layout)
    labels = labels_of(y, len(inputs.x))
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    with torch.inference_mode(False), torch.autocast(inputs.x.device.type, enabled=False):
        clean = inputs.x.clone()
        found = models_of(model, inputs.dataset, "", **said)
        if len(found) != 1:
            raise RequestError("brinell.attack takes one model in memory: for a spec, or for several, call brinell.audit")
        home = _home(model, clean)
        with _open(found[0]):
            clean = clean.to(home)
            known = recognised(found[0], clean[: min(len(clean), 16)])
            asked = _Asked(known, inputs.domain, distance, clean, labels.to(home), batch_size or len(clean), queries, seed)
            out = asked.run(stages, _radii(eps, len(clean), distance, inputs.domain, stages, home), targeted, worst)
    return _result(out, inputs, norm=distance.name)


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The batch as the domain has it, and how to give it back."""

    x: Tensor
    domain: Domain
    dataset: Any
    given: Any


def _inputs(model: Any, x: Any, bounds: Any, kind: Kind | None, layout: Any) -> _Inputs:
    tensor = x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(array(x, "inputs")))
    if tensor.ndim < 2 or not len(tensor):
        raise RequestError(f"x has shape {tuple(tensor.shape)}: it needs the samples first, at least one, and then each input")
    tensor = tensor.div(255) if tensor.dtype == torch.uint8 and tuple(bounds) == (0, 1) else tensor.float()
    try:
        low, high = (float(end) for end in bounds)
    except (TypeError, ValueError):
        raise RequestError(f"bounds is {bounds!r}: give two numbers, (low, high)") from None
    if isinstance(model, nn.Module) and layout is None:
        kind = kind or KINDS.get(tensor.ndim)
        if kind is None:
            raise RequestError(f"x has shape {tuple(tensor.shape)}: say what an input is by kind='image', for example")
        domain = domain_of(kind, tuple(tensor.shape[1:]), low, high)
        check_bounds(tensor, domain)
        return _Inputs(x=tensor, domain=domain, dataset=_Bare(domain), given=x)
    # Functions take the layout of the arrays, which a data set works out.
    sample = ArrayDataset(tensor.cpu(), np.zeros(len(tensor), int), kind=kind, layout=layout, bounds=(low, high))
    arranged = sample.load(range(len(tensor))).to(tensor.device)
    return _Inputs(x=arranged, domain=sample.domain, dataset=sample, given=x)


def domain_of(kind: Kind, shape: tuple[int, ...], low: float, high: float) -> Domain:
    """The space of inputs in memory.

    Raises:
        RequestError: bounds in the wrong order, or an empty shape.
    """
    try:
        return Domain(kind=kind, shape=shape, low=low, high=high)
    except ValueError as error:
        raise RequestError(str(error)) from None


NORMALISED = "give bounds=(low, high); normalised inputs as they were before, with mean= and std="
"""What to do about inputs outside their bounds."""


def check_bounds(x: Tensor, domain: Domain, then: str = NORMALISED) -> None:
    """Refuse inputs that leave their bounds, as normalised ones do.

    Raises:
        RequestError: they do, or hold NaN.
    """
    if not domain.excess(x) <= domain.slack:
        least, most = (float(value) for value in x.aminmax())
        raise RequestError(
            f"x holds values from {least:g} to {most:g}, outside the bounds {domain.low:g} to {domain.high:g} (or NaN): {then}"
        )


@dataclass(frozen=True)
class _Bare:
    """Just enough of a data set for a model to be made over its domain."""

    domain: Domain
    classes: tuple[str, ...] = ()


def labels_of(y: Any, n: int) -> Tensor:
    """(n,) int64 true classes.

    Raises:
        RequestError: another number of them, none, or what is no class.
    """
    labels = y.detach() if isinstance(y, Tensor) else torch.as_tensor(np.asarray(array(y, "labels")))
    if labels.shape != (n,) or labels.is_floating_point() or labels.is_complex() or not n or int(labels.min()) < 0:
        raise RequestError(f"y has shape {tuple(labels.shape)} and type {labels.dtype}: it holds {n} whole numbers from 0 on")
    return labels.long()


def _stages(attack: Any) -> tuple[Stage, ...]:
    names = (attack,) if isinstance(attack, str) else tuple(map(str, attack))
    stages = build_stages(names)
    if any(stage.waits or (stage.turn.within, stage.turn.last) != (None, None) or stage.turn.share < 1 for stage in stages):
        raise RequestError(
            f"{', '.join(names)} decides by what a whole run finds: call brinell.audit, or name attacks such as apgd-t, or "
            "standard"
        )
    return stages


def _home(model: Any, x: Tensor) -> torch.device:
    """Where the module is; the device of the inputs for anything else."""
    held = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return x.device if held is None else held.device


@contextmanager
def _open(model: Model) -> Iterator[None]:
    """The model ready to be asked, where it is."""
    with ExitStack() as stack:
        module = model.info.module
        held = None if module is None else next(module.parameters(), None)
        stack.enter_context(model.info.session(torch.device("cpu") if held is None else held.device))
        yield


def _radii(eps: Any, n: int, distance: Distance, domain: Domain, stages: tuple[Stage, ...], device: torch.device) -> Tensor:
    """(n,) the budget of each sample."""
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
class _Asked:
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


def _result(out: dict[str, Tensor], inputs: _Inputs, norm: str) -> AttackResult:
    given = inputs.given
    if isinstance(inputs.dataset, ArrayDataset):
        out = out | {"x_adv": inputs.dataset.as_given(out["x_adv"])}
    if isinstance(given, Tensor):
        kept = torch.float64 if given.dtype == torch.float64 else torch.float32
        shown = {name: value.to(given.device) for name, value in out.items()} | {"x_adv": out["x_adv"].to(given.device, kept)}
        return AttackResult(**shown, norm=norm)
    arrays: dict[str, Any] = {name: value.cpu().numpy() for name, value in out.items()}
    return AttackResult(**arrays, norm=norm)
