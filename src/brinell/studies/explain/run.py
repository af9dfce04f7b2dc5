"""Maps of what matters to a model, by several methods on the same samples, and what each map is worth.

Every method asks through a ledger, which counts what each sample costs it. What judging the maps costs is counted apart.
"""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.analysis import saliency
from brinell.core.batch import Batch
from brinell.core.contracts import Dataset, Explainer, Model, OpensModel, complete
from brinell.core.errors import ContractError, RequestError
from brinell.core.ledger import Ledger
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.answers import settled
from brinell.engine.plan import check_classes, choose_device, facts_of, gaps, open_data, opener_of
from brinell.engine.selection import Selection, choose
from brinell.engine.shard import predict, session
from brinell.explainers._asking import blurred, places_of
from brinell.runners import provenance
from brinell.store import rows
from brinell.studies.explain.faithfulness import curves, perturbed
from brinell.studies.explain.of_run import TITLES, Adversarial, Left, opened_run
from brinell.studies.explain.randomisation import forgetful
from brinell.studies.explain.records import BLURRED, INVERSE, LAYOUT, Explanation, Rows
from brinell.studies.explain.request import ExplainRequest
from brinell.studies.explain.truth import GroundTruth, opened_truth

SAMPLES = 16
"""Samples where nobody says how many."""
GROUP = 64
"""Samples that a method is asked about at once."""
GROUP_BYTES = 64 * 2**20
"""About how much input they may hold."""
BLACK_BOX = ("rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap")
USUAL = (*BLACK_BOX, "grad-cam", "integrated-gradients", "smoothgrad", "gradient", "centre", "random")
"""The methods that are tried where none is named, as far as they fit."""
CONTROLS = frozenset({"centre", "random", "guided-backprop"})
"""Methods against which others are held."""
WIDE = 1 / 16
"""Standard deviation of the blur of a map that is a control, in shares of the longest side."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method, ready to be asked."""

    name: str
    """As it was asked for."""
    plain: Explainer
    """The plug-in, before it is handed a network."""
    explainer: Explainer
    """The same with the network in its hands, where it asks for it."""
    title: str
    settings: dict[str, Any]


@dataclass(kw_only=True)
class Parts:
    """What comes together of one request."""

    rows: list[Rows] = field(default_factory=list)
    maps: dict[str, Array] = field(default_factory=dict)
    cascade: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    stored: dict[int, Left] = field(default_factory=dict)
    """By sample what an attack left of it."""
    judged: int = 0
    """Inputs shown to the model to judge maps, gradients among them."""

    @property
    def left_by_attack(self) -> list[str]:
        """Names of the maps that an attack left of every sample."""
        return list(next(iter(self.stored.values())).maps) if self.stored else []


def explain(
    request: ExplainRequest,
    folder: Path,
    tell: Callable[[str], None] = lambda text: None,
    *,
    dataset: Dataset | None = None,
    model: Model | None = None,
    command: str = "",
    trust: Path | str | None = None,
) -> Explanation:
    """Explain samples by every method, judge the maps, and write the folder.

    Args:
        request: what is asked for.
        folder: the folder to write.
        tell: told what goes on.
        dataset: data already in memory, in place of `request.data`.
        model: a model already in memory, in place of `request.model`.
        command: how to repeat it, for the manifest.
        trust: the folder from elsewhere whose run is explained as it names models and data.

    Raises:
        RequestError: a method that does not fit model or data, a layer that is not there, ground truth that does not fit,
            no sample left, a folder that holds explanations.
    """
    LAYOUT.begin(folder)
    broken: Adversarial | None = None
    if request.run is not None:
        broken, model = opened_run(request.run, trust)
    dataset = broken or (open_data(request.data) if dataset is None else dataset)
    model = complete(Model, opener_of(request.model, dataset)()) if model is None else model
    check_classes(model, np.asarray(dataset.labels(), dtype=np.int64), tuple(dataset.classes))
    truth = None if request.truth is None else opened_truth(request.truth, dataset)
    methods, unfit = methods_of(request, model, dataset)
    selection = selected(request, dataset, broken)
    lost = gaps(dataset, selection.ids.tolist())
    device, facts, about = choose_device(request.device), facts_of(model), dict[str, Any]()
    left = {"cannot be read": len(lost)} if lost else {}
    ids = np.array([sample for sample in selection.ids.tolist() if sample not in lost], dtype=np.int64)
    parts = Parts(stored={} if broken is None else {sample: broken.left(sample) for sample in ids.tolist()})
    if bare := [sample for sample, one in parts.stored.items() if not one.maps]:
        parts.stored = {sample: one for sample, one in parts.stored.items() if one.maps}
        if parts.stored:  # so that every method is tried on the same samples
            left["whose attack placed nothing on patches"] = len(bare)
            ids = np.array(sorted(parts.stored), dtype=np.int64)
    with session(model, device):
        task = _Task(
            request=request,
            dataset=dataset,
            model=settled(model, dataset, about, device),
            truth=truth,
            device=device,
            parts=parts,
        )
        for group in task.groups(ids, left):
            tell(f"{len(group)} sample{'s'[: len(group) > 1]}, {len(methods)} method{'s'[: len(methods) > 1]}")
            task.explain(group, methods)
    if not parts.rows:
        why = "; ".join(f"{count} {reason}" for reason, count in left.items())
        raise RequestError(f"no sample is left to explain ({why}): ask for others by --samples, --select or --only")
    known = sorted({int(sample) for sample in rows.concatenate(parts.rows).sample_id})
    manifest = {
        **provenance.beginning(request, command, {}),
        **provenance.place(device),
        "state": "finished",
        "finished": provenance.now(),
        "data": provenance.data(request.data, dataset, dataset.digest(), len(known), selection.how),
        "model": {"name": model.name} | facts,
        "methods": [{"name": one.name, "title": one.title, "settings": one.settings} for one in methods]
        + [{"name": name, "title": TITLES[name], "settings": {}} for name in parts.left_by_attack],
        "cascade": [list(names) for names in task.stages],
        "unfit": unfit,
        "left_out": left,
        "judge_forwards": parts.judged,
        "answers": about.get("answers", {}),
    }
    return Explanation.make(folder, manifest, rows.concatenate(parts.rows), parts.maps, parts.inputs, parts.cascade)


def selected(request: ExplainRequest, dataset: Dataset, broken: Adversarial | None) -> Selection:
    """The samples to explain: of a run the first that were fooled."""
    if broken is not None:
        return Selection(ids=broken.ids[: request.samples or SAMPLES], how="first")
    return choose(request.model_copy(update={"samples": request.samples or min(SAMPLES, len(dataset))}), dataset)


def methods_of(request: ExplainRequest, model: Model, dataset: Dataset) -> tuple[list[Method], dict[str, str]]:
    """The methods asked for, ready, and of the usual ones those that do not fit, with the reason.

    Raises:
        RequestError: a method that was named does not fit the model or the data.
    """
    named = dict.fromkeys(request.method or USUAL)
    methods, unfit = [], {}
    for text in named:
        spec = plugins.parse(text)
        one = plugins.build("explainer", spec.name, spec.options)
        reason = _misfit(one, model, dataset)
        try:
            opened = _opened(one, model, dataset) if not reason else one
        except RequestError as error:
            if request.method:
                raise
            reason, opened = str(error), one
        if reason and request.method:
            raise RequestError(f"method {text} cannot explain {model.name}: {reason}; leave it out, or name another")
        if reason:
            unfit[text] = reason
        else:
            title = (inspect.getdoc(type(one)) or text).splitlines()[0].rstrip(".")
            methods.append(Method(name=text, plain=one, explainer=opened, title=title, settings=plugins.written(one)))
    return methods, unfit


def _opened(explainer: Explainer, model: Model, dataset: Dataset) -> Explainer:
    """The explainer with the network in its hands, where it asks for it."""
    module = model.info.module
    return explainer.opened(module, dataset.domain) if isinstance(explainer, OpensModel) and module is not None else explainer


def _misfit(explainer: Explainer, model: Model, dataset: Dataset) -> str:
    if dataset.domain.kind not in explainer.domains:
        return f"it is for {', '.join(sorted(explainer.domains))} inputs, and the data hold {dataset.domain.kind}s"
    if explainer.access > model.access:
        return f"it needs {explainer.access.name.lower()}, and the model gives {model.access.name.lower()} only"
    if isinstance(explainer, OpensModel) and model.info.module is None:
        return "it needs the layers of a torch module, and the model has none inside"
    return ""


class _Task:
    """One request on one model."""

    def __init__(
        self,
        *,
        request: ExplainRequest,
        dataset: Dataset,
        model: Model,
        truth: GroundTruth | None,
        device: torch.device,
        parts: Parts,
    ) -> None:
        self.request, self.dataset, self.model, self.truth = request, dataset, model, truth
        self.device, self.parts, self.domain = device, parts, dataset.domain
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

    def groups(self, ids: Array, left: dict[str, int]) -> Iterator[Array]:
        """The samples (n,) to be explained, a group at a time; notes in `left` how many are not, and why."""
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
            while len(kept) >= size:
                yield np.array(kept[:size])
                kept = kept[size:]
        if kept:
            yield np.array(kept)

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
        self.parts.judged += len(ids)
        return predict(self.model, x, self.request.batch_size).argmax(1).cpu().numpy()

    def explain(self, ids: Array, methods: Sequence[Method]) -> None:
        """Adds rows, maps and inputs of these samples."""
        x = self.dataset.load(ids.tolist()).to(self.device)
        predicted = self._predict(ids)
        explained = predicted if self.request.explain == "prediction" else self.labels[ids]
        y = torch.as_tensor(explained, device=self.device).long()
        truths = [None if self.truth is None else self.truth.of(sample) for sample in ids.tolist()]
        rng = Streams.of(self.request.seed, torch.as_tensor(ids, device=self.device)).fold("explain")
        shown = {str(sample): one for sample, one in zip(ids.tolist(), x.cpu().numpy(), strict=True)}
        self.parts.inputs |= shown | {
            f"{sample}/truth": one.astype(np.uint8) for sample, one in zip(ids.tolist(), truths, strict=True) if one is not None
        }
        hides, drops = self._perturbed(x, y, rng)
        shared = {
            "sample_id": ids,
            "group": [self.truth.group(sample) if self.truth else "" for sample in ids.tolist()],
            "label": self.labels[ids],
            "prediction": predicted,
            "explained": explained,
        }
        for method in methods:
            maps, cost = self._mapped(method, x, y, rng.fold(method.name))
            versions = {method.name: maps}
            if method.name.partition("?")[0] not in CONTROLS:
                versions |= {method.name + BLURRED: blurred(maps, self.domain, WIDE), method.name + INVERSE: -maps}
            copies = [self._noisy(x, rng.fold(method.name), copy) for copy in range(self.request.copies)]
            again, stages = self._repeated(method, x, y, rng.fold(method.name), maps, copies)
            for name, one in versions.items():
                judged = self._judged(one, x, y, truths, hides, drops)
                mine = judged | (cost | again if name == method.name else {})
                self.parts.rows.append(rows.build(Rows, len(ids), method=name, **shared, **mine))
            of = [f"{method.name}/{sample}" for sample in ids.tolist()]
            self.parts.maps |= dict(zip(of, maps.cpu().numpy(), strict=True))
            if stages is not None:
                self.parts.cascade |= dict(zip(of, stages, strict=True))
        self._stored(ids, x, y, truths, shared, (hides, drops))

    def _stored(
        self, ids: Array, x: Tensor, y: Tensor, truths: Sequence[Array | None], shared: dict[str, Any], hidden: Any
    ) -> None:
        """Adds what an attack left of these samples, as methods of its own."""
        for name in self.parts.left_by_attack:
            maps = torch.as_tensor(
                np.stack([self.parts.stored[sample].maps[name] for sample in ids.tolist()]), device=self.device
            )
            judged = self._judged(maps, x, y, truths, *hidden)
            cost = {"forwards": np.array([self.parts.stored[sample].forwards for sample in ids.tolist()])}
            self.parts.rows.append(rows.build(Rows, len(ids), method=name, **shared, **judged, **cost))
            self.parts.maps |= {f"{name}/{sample}": one for sample, one in zip(ids.tolist(), maps.cpu().numpy(), strict=True)}

    def _mapped(
        self, method: Method, x: Tensor, y: Tensor, rng: Streams, model: Model | None = None
    ) -> tuple[Tensor, dict[str, Array]]:
        """The maps (n, *places) of a method, by default of the model that is explained, and what they cost."""
        explainer = method.explainer if model is None else _opened(method.plain, model, self.dataset)
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
            "forwards": ledger.forwards.cpu().numpy(),
            "backwards": ledger.backwards.cpu().numpy(),
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
        self.parts.judged += int(cost["forwards"].sum() + cost["backwards"].sum())
        return maps

    def _perturbed(self, x: Tensor, y: Tensor, rng: Streams) -> tuple[Array, Array] | tuple[None, None]:
        if not self.request.steps:
            return None, None
        hides, drops = perturbed(self.model, x, y, self.domain, rng.fold("hidden"), self.request.batch_size)
        self.parts.judged += drops.size + len(x)
        return hides, drops

    def _judged(
        self, maps: Tensor, x: Tensor, y: Tensor, truths: Sequence[Array | None], hides: Array | None, drops: Array | None
    ) -> dict[str, Array]:
        """The measures of maps (n, *places), as far as they are asked for and there is ground truth; none of a blank map."""
        values, found = maps.cpu().numpy(), dict[str, Array]()
        blank = np.array([one.max() == one.min() for one in values])
        if any(one is not None for one in truths):
            pairs = [(one, truth) for one, truth in zip(values, truths, strict=True)]
            both = [(None, None) if truth is None else saliency.at_equal_area(one, truth) for one, truth in pairs]
            found = {"dice": _nullable([dice for dice, _ in both]), "iou": _nullable([iou for _, iou in both])}
            for name, measure in (("best_iou", saliency.best_iou), ("pointing", saliency.pointing), ("energy", saliency.energy)):
                found[name] = _nullable([None if truth is None else float(measure(one, truth)) for one, truth in pairs])
        if hides is None or drops is None:
            return _without(blank, found)
        steps = min(self.request.steps, int(np.prod(values.shape[1:])))
        path = curves(self.model, x, y, maps, self.domain, steps, self.request.batch_size)
        self.parts.judged += 2 * path.shown.size
        found |= {
            "deletion": np.array([saliency.area_under(one) for one in path.hidden]),
            "insertion": np.array([saliency.area_under(one) for one in path.shown]),
            "carries": _nullable([saliency.first_share(one) for one in path.shown_leads]),
            "breaks": _nullable([saliency.first_share(~one) for one in path.hidden_leads]),
            "infidelity": _nullable([saliency.infidelity(*one) for one in zip(values, hides, drops, strict=True)]),
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
