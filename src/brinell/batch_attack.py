"""`brinell.attack`: one attack on inputs in memory, without a run folder; for a look, and for training loops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, in_python
from brinell.datasets._memory import ArrayDataset, array
from brinell.engine.batch_attack import KINDS, BatchAttack, check_bounds, domain_of, labels_of, opened, radii, stages_of
from brinell.engine.plan import open_distance
from brinell.engine.texts import norm_text
from brinell.inputs import models_of
from brinell.models._answers import recognised
from brinell.types import AnyModel, Eps, Labels, Norm


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


@in_python
def attack(
    model: AnyModel,
    x: Labels,
    y: Labels,
    attack: str | Sequence[str] = "apgd",
    *,
    eps: Eps | None = None,
    norm: Norm = "linf",
    targeted: str | int | Labels | None = None,
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
    stages = stages_of(attack)
    inputs = _inputs(model, x, bounds, kind, layout)
    labels = labels_of(y, len(inputs.x))
    said = {"preprocessing": preprocessing, "mean": mean, "std": std, "answers": answers}
    with torch.inference_mode(False), torch.autocast(inputs.x.device.type, enabled=False):
        clean = inputs.x.clone()
        found = models_of(model, inputs.dataset, "", **said)
        if len(found) != 1:
            raise RequestError("brinell.attack takes one model in memory: for a spec, or for several, call brinell.audit")
        home = _home(model, clean)
        with opened(found[0]):
            clean = clean.to(home)
            known = recognised(found[0], clean[: min(len(clean), 16)])
            asked = BatchAttack(known, inputs.domain, distance, clean, labels.to(home), batch_size or len(clean), queries, seed)
            out = asked.run(stages, radii(eps, len(clean), distance, inputs.domain, stages, home), targeted, worst)
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


@dataclass(frozen=True)
class _Bare:
    """Just enough of a data set for a model to be made over its domain."""

    domain: Domain
    classes: tuple[str, ...] = ()


def _home(model: Any, x: Tensor) -> torch.device:
    """Where the module is; the device of the inputs for anything else."""
    held = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return x.device if held is None else held.device


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
