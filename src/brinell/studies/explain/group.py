"""A group of samples: the maps of each method, and what each map is worth.

Every method asks through a ledger, which counts what each sample costs it. What judging the maps costs is counted apart.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.analysis import saliency
from brinell.core.contracts import Dataset, Model
from brinell.core.errors import ContractError, RequestError
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.shard import predict
from brinell.explainers._asking import blurred, places_of
from brinell.store import rows
from brinell.studies.explain.faithfulness import curves, drops, hidings
from brinell.studies.explain.methods import CONTROLS, Method, opened
from brinell.studies.explain.of_run import Left
from brinell.studies.explain.randomisation import forgetful
from brinell.studies.explain.records import BLURRED, INVERSE, Rows
from brinell.studies.explain.request import ExplainRequest
from brinell.studies.explain.truth import GroundTruth

GROUP = 64
"""Samples that a method is asked about at once."""
GROUP_BYTES = 64 * 2**20
"""About how much input they may hold."""
WIDE = 1 / 16
"""Standard deviation of the blur of a map that is a control, in shares of the longest side."""


@dataclass(kw_only=True)
class Made:
    """What is made of one group by one method, or left of it by an attack."""

    rows: list[Rows] = field(default_factory=list)
    maps: dict[str, Array] = field(default_factory=dict)
    cascade: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of samples, ready to be explained."""

    ids: Array
    """(n,)"""
    x: Tensor
    y: Tensor
    """(n,): the classes that are explained."""
    rng: Streams
    truths: Sequence[Array | None]
    shared: Mapping[str, Any]
    """The columns that all methods share."""
    hides: Array | None
    """(n, k, *places): what is hidden to judge maps; None where maps are not judged so."""
    drops: Array | None
    """(n, k): by how much the class's probability falls then."""


class Explaining:
    """One request on one model.

    Args:
        request: what is asked for.
        dataset: the data.
        model: ready to be asked.
        truth: where objects are, if that is known.
        device: where the model is.
        stored: by sample what an attack left of it.
    """

    def __init__(
        self,
        request: ExplainRequest,
        dataset: Dataset,
        model: Model,
        *,
        truth: GroundTruth | None,
        device: torch.device,
        stored: Mapping[int, Left],
    ) -> None:
        self.request, self.dataset, self.model, self.truth = request, dataset, model, truth
        self.device, self.stored, self.domain = device, stored, dataset.domain
        self.judged = 0
        """Inputs shown to the model to judge maps, gradients among them, so far."""
        self.labels = np.asarray(dataset.labels(), dtype=np.int64)
        wanted = request.cascade or int(request.randomise)
        self.forgetful = forgetful(model, request.seed, wanted) if wanted else None
        if wanted and self.forgetful is None:
            raise RequestError(
                f"the weights of {model.name} cannot be shuffled, for it has no torch module inside: leave out "
                f"{'cascade' if request.cascade else 'randomise'}"
            )
        self.unbounded = plugins.build("distance", "linf", {})

    @property
    def stages(self) -> Sequence[Sequence[str]]:
        """The layers that each stage of the cascade shuffles; none where no cascade was asked for."""
        return self.forgetful.layers if self.forgetful is not None and self.request.cascade else ()

    def groups(self, ids: Array, left: dict[str, int]) -> list[list[int]]:
        """The samples to be explained of some (n,), in groups; notes in `left` how many are not, and why."""
        size = max(1, min(GROUP, GROUP_BYTES // (4 * int(np.prod(self.domain.shape)))))
        kept: list[int] = []
        for first in range(0, len(ids), size):
            part = ids[first : first + size]
            predicted = self._predict(part)
            for sample, right in zip(part.tolist(), (predicted == self.labels[part]).tolist(), strict=True):
                reason = self._left_out(sample, right)
                if reason:
                    left[reason] = left.get(reason, 0) + 1
                else:
                    kept.append(sample)
        return [kept[first : first + size] for first in range(0, len(kept), size)]

    def _left_out(self, sample: int, right: bool) -> str:
        if self.request.only != "all" and right != (self.request.only == "right"):
            return f"the model gets {'right' if right else 'wrong'}"
        if self.truth is None:
            return ""
        truth = self.truth.of(sample)
        if truth is None:
            return "without ground truth"
        return "" if (truth == 1).any() and (truth == 0).any() else "whose ground truth is empty or covers everything"

    def _predict(self, ids: Array) -> Array:
        x = self.dataset.load(ids.tolist()).to(self.device)
        self.judged += len(ids)
        return predict(self.model, x, self.request.batch_size).argmax(1).cpu().numpy()

    def look(self, ids: Array) -> dict[str, Array]:
        """What the model says of samples (n,) before they are explained: `predicted` (n,), and `drops` if maps are judged so."""
        predicted = self._predict(ids)
        group = self.group(ids, {"predicted": predicted})
        if group.hides is None:
            return {"predicted": predicted}
        hides = torch.as_tensor(group.hides, device=self.device)
        found = drops(self.model, group.x, group.y, hides, self.domain, self.request.batch_size)
        self.judged += found.size + len(ids)
        return {"predicted": predicted, "drops": found}

    def group(self, ids: Array, looked: Mapping[str, Array]) -> Group:
        """Samples (n,) by what a look at them gave."""
        x, predicted = self.dataset.load(ids.tolist()).to(self.device), looked["predicted"]
        explained = predicted if self.request.explain == "prediction" else self.labels[ids]
        rng = Streams.of(self.request.seed, torch.as_tensor(ids, device=self.device)).fold("explain")
        shared = {
            "sample_id": ids,
            "group": [self.truth.group(sample) if self.truth else "" for sample in ids.tolist()],
            "label": self.labels[ids],
            "prediction": predicted,
            "explained": explained,
        }
        return Group(
            ids=ids,
            x=x,
            y=torch.as_tensor(explained, device=self.device).long(),
            rng=rng,
            truths=[None if self.truth is None else self.truth.of(sample) for sample in ids.tolist()],
            shared=shared,
            hides=hidings(x, self.domain, rng.fold("hidden")).cpu().numpy() if self.request.steps else None,
            drops=looked.get("drops"),
        )

    def explain(self, group: Group, method: Method) -> Made:
        """Rows and maps of a group by one method, its controls among them."""
        x, y, rng, made = group.x, group.y, group.rng.fold(method.name), Made()
        maps, cost = self._mapped(method, x, y, rng)
        versions = {method.name: maps}
        if method.name.partition("?")[0] not in CONTROLS:
            versions |= {method.name + BLURRED: blurred(maps, self.domain, WIDE), method.name + INVERSE: -maps}
        copies = [self._noisy(x, rng, copy) for copy in range(self.request.copies)]
        again, stages = self._repeated(method, x, y, rng, maps, copies)
        for name, one in versions.items():
            mine = self._judged(one, group) | (cost | again if name == method.name else {})
            made.rows.append(rows.build(Rows, len(x), method=name, **group.shared, **mine))
        of = [f"{method.name}/{sample}" for sample in group.ids.tolist()]
        made.maps |= dict(zip(of, maps.cpu().numpy(), strict=True))
        if stages is not None:
            made.cascade |= dict(zip(of, stages, strict=True))
        return made

    @property
    def left_by_attack(self) -> list[str]:
        """Names of the maps that an attack left of every sample."""
        return list(next(iter(self.stored.values())).maps) if self.stored else []

    def left(self, group: Group) -> Made:
        """What an attack left of a group, as methods of its own."""
        made = Made()
        for name in self.left_by_attack:
            held = [self.stored[sample] for sample in group.ids.tolist()]
            maps = torch.as_tensor(np.stack([one.maps[name] for one in held]), device=self.device)
            cost = {"forwards": np.array([one.forwards for one in held])}
            made.rows.append(rows.build(Rows, len(held), method=name, **group.shared, **self._judged(maps, group), **cost))
            of = [f"{name}/{sample}" for sample in group.ids.tolist()]
            made.maps |= dict(zip(of, maps.cpu().numpy(), strict=True))
        return made

    def _mapped(
        self, method: Method, x: Tensor, y: Tensor, rng: Streams, model: Model | None = None
    ) -> tuple[Tensor, dict[str, Array]]:
        """The maps (n, *places) of a method, by default of the model that is explained, and what they cost."""
        explainer = method.explainer if model is None else opened(method.plain, model, self.dataset)
        batch = Batch(ids=torch.arange(len(x), device=self.device), x=x, y=y)
        anywhere = torch.full((len(x),), torch.inf, device=self.device)
        threat = Threat(distance=self.unbounded, eps=anywhere, domain=self.domain)
        size = self.request.batch_size
        ledger = Ledger(model or self.model, batch, threat, access=explainer.access, batch_size=size, minimal=True)
        started = time.perf_counter()
        maps = explainer(ledger.oracle(), ledger.batch, ledger.threat.domain, rng).detach()
        seconds = (time.perf_counter() - started) / len(x)
        expected = (len(x), *places_of(ledger.threat.domain))
        if maps.shape != expected or not bool(torch.isfinite(maps).all()):
            raise ContractError(f"method {method.name} gave maps of shape {tuple(maps.shape)}, not finite ones of {expected}")
        cost = {
            "forwards": ledger.costs.forwards.cpu().numpy(),
            "backwards": ledger.costs.backwards.cpu().numpy(),
            "seconds": np.full(len(x), seconds),
        }
        return self._whole(maps), cost

    def _whole(self, maps: Tensor) -> Tensor:
        """Maps of a vector with columns that are fixed have these back, as mattering least."""
        movable = self.domain.movable
        if movable is None or self.domain.kind != "vector":
            return maps
        least = maps.amin(1, keepdim=True).expand(-1, *places_of(self.domain)).clone()
        return least.index_copy(1, movable.to(maps.device), maps)

    def _noisy(self, x: Tensor, rng: Streams, copy: int) -> Tensor:
        """A copy of the inputs with a little noise."""
        low, high = self.domain.bounds(x)
        return self.domain.clamp(x + self.request.noise * (high - low) * rng.fold(f"noise {copy}").normal(*x.shape[1:]))

    def _repeated(
        self, method: Method, x: Tensor, y: Tensor, rng: Streams, maps: Tensor, copies: Sequence[Tensor]
    ) -> tuple[dict[str, Array], Array | None]:
        """How a method's maps change under a little noise on the input, and with the weights of the model.

        The second is how alike they are at each stage of the cascade (n, stages); None without one.

        The random numbers of the method are the same each time, so that nothing else differs.
        """
        again = [self._judging(method, near, y, rng) for near in copies]
        found: dict[str, Array] = {}
        if again:
            pairs = [list(zip(maps.cpu().numpy(), one.cpu().numpy(), strict=True)) for one in again]
            changes = [[saliency.change_of(a, b) for a, b in pair] for pair in pairs]
            largest = [None if None in column else max(column) for column in zip(*changes, strict=True)]
            alike = [[saliency.rank_correlation(a, b) for a, b in pair] for pair in pairs]
            found |= {"sensitivity": _nullable(largest), "stability": np.mean(alike, 0)}
        if self.forgetful is None:
            return found, None
        own, stages = torch.stack([maps, *again]).mean(0).cpu().numpy(), []
        for stage in range(1, len(self.forgetful.layers) + 1):
            model = self.forgetful.at(stage)
            other = torch.stack([self._judging(method, near, y, rng, model) for near in (x, *copies)]).mean(0).cpu().numpy()
            stages.append([saliency.rank_correlation(a, b) for a, b in zip(own, other, strict=True)])
        entropies = [(saliency.entropy(a), saliency.entropy(b)) for a, b in zip(own, other, strict=True)]
        found["similarity"] = np.array(stages[-1])
        found["complexity"] = _nullable([(b - a) / a if a > 0 else None for a, b in entropies])
        return found, np.array(stages).T if self.request.cascade else None

    def _judging(self, method: Method, x: Tensor, y: Tensor, rng: Streams, model: Model | None = None) -> Tensor:
        """Maps that are made to judge a method, whose cost is no map's."""
        maps, cost = self._mapped(method, x, y, rng, model)
        self.judged += int(cost["forwards"].sum() + cost["backwards"].sum())
        return maps

    def _judged(self, maps: Tensor, group: Group) -> dict[str, Array]:
        """The measures of maps (n, *places), as far as they are asked for and there is ground truth; none of a blank map."""
        values, truths, found = maps.cpu().numpy(), group.truths, dict[str, Array]()
        blank = np.array([one.max() == one.min() for one in values])
        if any(one is not None for one in truths):
            pairs = [(one, truth) for one, truth in zip(values, truths, strict=True)]
            both = [(None, None) if truth is None else saliency.at_equal_area(one, truth) for one, truth in pairs]
            found = {"dice": _nullable([dice for dice, _ in both]), "iou": _nullable([iou for _, iou in both])}
            for name, measure in (("best_iou", saliency.best_iou), ("pointing", saliency.pointing), ("energy", saliency.energy)):
                found[name] = _nullable([None if truth is None else float(measure(one, truth)) for one, truth in pairs])
        if group.hides is None or group.drops is None:
            return _without(blank, found)
        steps = min(self.request.steps, int(np.prod(values.shape[1:])))
        path = curves(self.model, group.x, group.y, maps, self.domain, steps, self.request.batch_size)
        self.judged += 2 * path.shown.size
        found |= {
            "deletion": np.array([saliency.area_under(one) for one in path.hidden]),
            "insertion": np.array([saliency.area_under(one) for one in path.shown]),
            "carries": _nullable([saliency.first_share(one) for one in path.shown_leads]),
            "breaks": _nullable([saliency.first_share(~one) for one in path.hidden_leads]),
            "infidelity": _nullable([saliency.infidelity(*one) for one in zip(values, group.hides, group.drops, strict=True)]),
        }
        return _without(blank, found)


def _without(blank: Array, found: Mapping[str, Array]) -> dict[str, Array]:
    """The measures, masked where a map is the same everywhere: which of its places come first would be chance."""
    masked = {name: np.ma.MaskedArray(one, mask=np.ma.getmaskarray(one) | blank) for name, one in found.items()}
    return {"blank": blank} | masked


def _nullable(values: Sequence[float | None]) -> Array:
    return np.ma.MaskedArray(
        np.array([0.0 if value is None else value for value in values]), mask=[value is None for value in values]
    )
