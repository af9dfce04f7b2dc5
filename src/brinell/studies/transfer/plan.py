"""The plan of a transfer: models, data, attack and sources, resolved and checked before any model is queried."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell.core.contracts import ChoosesData, Dataset
from brinell.core.criterion import Threshold
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.threat import Distance
from brinell.core.version import VERSION
from brinell.datasets.bench import Bench, manifest_of
from brinell.engine.cascade import Stage, build_stages
from brinell.engine.cells import content_hash
from brinell.engine.class_counts import check_classes
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import (
    check_names,
    choose_device,
    model_facts,
    model_opener,
    open_distance,
    unreadable_samples,
    usual_eps,
)
from brinell.engine.selection import choose_samples
from brinell.engine.sources import open_data
from brinell.engine.targeting import attackable_samples
from brinell.engine.thresholds import check_threshold, parse_threshold
from brinell.store.files import digest
from brinell.store.folder import MANIFEST, verb_of
from brinell.store.run import Run, threshold_of
from brinell.studies.transfer.records import LAYOUT
from brinell.studies.transfer.request import DIGITS, TransferRequest


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A model on which the examples are evaluated."""

    name: str
    open: Callable[[], Model]
    facts: Mapping[str, Any]
    access: Access


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source of adversarial examples."""

    name: str
    kind: str
    """made, run or set."""
    members: tuple[str, ...]
    """The models that the examples were made on."""
    digests: tuple[str, ...] = ()
    """Digests of the members; only for a run or a benchmark set."""
    folder: Path | None = None
    """Folder of the run or the benchmark set."""
    level: float | None = None
    """Level of the benchmark set."""


@dataclass(frozen=True, kw_only=True)
class TransferPlan:
    """A resolved transfer: data, samples, attack, models and sources."""

    request: TransferRequest
    dataset: Dataset
    ids: Array
    """(n,) int64: the samples of made examples."""
    labels: Array
    """(n,) int64: their labels."""
    distance: Distance
    threshold: Threshold | None
    """The criterion of probability; None if classes decide."""
    stage: Stage | None
    """The attack; None if no source is made here."""
    eps: float
    eps_text: str
    models: tuple[ModelEntry, ...]
    sources: tuple[Source, ...]
    device: torch.device

    @property
    def data(self) -> str:
        """The spec of the data, for the name of a folder."""
        return self.request.data or "transfer"

    @property
    def cell(self) -> str:
        """Hash of all that the rows depend on."""
        stage = self.stage
        return content_hash(
            layout=LAYOUT.version,
            brinell=VERSION,
            data=self.dataset.digest(),
            ids=self.ids.tolist(),
            domain=list(self.dataset.domain.to_json().values()),
            distance=self.distance.name,
            eps=self.eps,
            **({} if self.threshold is None else {"criterion": self.threshold.describe()}),
            stage=None if stage is None else [stage.name, stage.plugin, stage.settings(), stage.eot],
            models=[[model.name, model.facts["digest"]] for model in self.models],
            sources=[
                [
                    source.name,
                    source.kind,
                    source.members,
                    source.level,
                    None if source.folder is None else digest(source.folder / MANIFEST),
                ]
                for source in self.sources
            ],
            seed=self.request.seed,
        )


def make_plan(request: TransferRequest, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()) -> TransferPlan:
    """Resolve a request.

    Args:
        request: the request.
        dataset: data in memory; replaces the data that the request names.
        models: models in memory; replace the models that the request names.

    Raises:
        RequestError: a setting is invalid, or two do not fit together.
    """
    folders = {text: Path(text) for text in request.source if (Path(text) / MANIFEST).exists()}
    sets = [folder for folder in folders.values() if verb_of(folder) == "benchmark"]
    if dataset is None:
        dataset = (
            Bench(path=str(sets[0]), level="clean")() if request.data is None and sets else open_data(request.data or "digits")
        )
    threshold = parse_threshold(request.criterion, tuple(dataset.classes))
    if threshold is not None and sets:
        raise RequestError(
            f"{sets[0]} is a benchmark set, whose examples have a criterion of their own: leave {option('criterion')} out, or "
            "name models as sources"
        )
    entries = _model_entries(request, dataset, models)
    if threshold is not None:
        for entry in entries:
            check_threshold(threshold, entry.name, entry.facts["classes"], entry.facts["access"])
    sources = _sources(request, folders, [entry.name for entry in entries], threshold)
    made_sources = [source for source in sources if source.kind == "made"]
    distance = open_distance(request.norm)
    stage = (
        _attack_stage(request, dataset.domain, distance, made_sources, {entry.name: entry for entry in entries})
        if made_sources
        else None
    )
    text = request.eps or usual_eps(dataset.domain, distance.name)
    budgets = parse_eps(text)
    if request.eps is not None and len(budgets.values) != 1:
        raise RequestError(f"eps is {request.eps}, but a transfer has one budget: write for example 8/255")
    selection = choose_samples(request, dataset)
    missing = unreadable_samples(dataset, selection.ids.tolist())
    ids = np.array([sample for sample in selection.ids.tolist() if sample not in missing], dtype=np.int64)
    ids = ids[attackable_samples(np.asarray(dataset.labels(), dtype=np.int64)[ids], None, threshold)]
    if not budgets.values[-1] > 0:
        raise RequestError("eps is 0: examples at budget 0 are the clean inputs; pass a larger eps")
    return TransferPlan(
        request=request,
        dataset=dataset,
        ids=ids,
        labels=np.asarray(dataset.labels(), dtype=np.int64)[ids],
        distance=distance,
        threshold=threshold,
        stage=stage,
        eps=float(budgets.values[-1]),
        eps_text=budgets.texts[-1],
        models=entries,
        sources=sources,
        device=choose_device(request.device),
    )


def _model_entries(request: TransferRequest, dataset: Dataset, objects: tuple[Model, ...]) -> tuple[ModelEntry, ...]:
    specs = request.model or (() if objects else DIGITS)
    if not request.model and not objects and dataset.domain.shape != (1, 8, 8):
        raise RequestError(f"a transfer over {dataset.name} needs models: name them with {option('model')}")
    openers = (
        [(lambda instance=instance: instance) for instance in objects]
        if objects
        else [model_opener(spec, dataset) for spec in specs]
    )
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    entries = []
    for opener in openers:
        model = opener()
        check_classes(model, labels, dataset)
        entries.append(ModelEntry(name=model.name, open=opener, facts=model_facts(model), access=model.access))
    check_names([entry.name for entry in entries])
    return tuple(entries)


def _sources(
    request: TransferRequest, folders: Mapping[str, Path], names: Sequence[str], threshold: Threshold | None
) -> tuple[Source, ...]:
    """The sources of the matrix: models, sets and runs."""
    sources: list[Source] = []
    for text in request.source or tuple(names):
        if text in folders:
            sources += (
                _set_sources(folders[text])
                if verb_of(folders[text]) == "benchmark"
                else _run_sources(folders[text], request, threshold)
            )
            continue
        members = tuple(part.strip() for part in text.split("+"))
        if unknown := [member for member in members if member not in names]:
            raise RequestError(
                f"source {unknown[0]!r} is neither a model named with {option('model')} nor the folder of a run or a "
                f"benchmark set: the models are {', '.join(names)}"
            )
        sources.append(Source(name="+".join(members), kind="made", members=members))
    check_names([source.name for source in sources])
    return tuple(sources)


def _set_sources(folder: Path) -> list[Source]:
    manifest = manifest_of(folder)
    model = manifest["model"]
    return [
        Source(
            name=f"{folder.name} x{level:g}",
            kind="set",
            members=(str(model["name"]),),
            digests=(str(model["digest"]),),
            folder=folder,
            level=float(level),
        )
        for level in manifest["levels"]
        if level > 0
    ]


def _run_sources(folder: Path, request: TransferRequest, threshold: Threshold | None) -> list[Source]:
    run = Run.open(folder, thresholds=True)
    criterion, asked = threshold_of(run.manifest), None if threshold is None else threshold.text
    if criterion != asked:
        remedy = f"leave {option('criterion')} out" if criterion is None else f"pass {option('criterion', repr(criterion))}"
        counts = "misclassified inputs" if criterion is None else f"inputs that meet {criterion}"
        raise RequestError(f"the successes of {folder} are {counts}, and this transfer asks for another criterion: {remedy}")
    if run.manifest["state"] != "finished":
        raise RequestError(f"{folder} is not finished: first run brinell audit --resume --out {folder}")
    distance = run.manifest["distance"]
    if distance != request.norm:
        raise RequestError(f"{folder} measures eps in {distance}, not in {request.norm}: pass {option('norm')} {distance}")
    if run.manifest.get("recommended"):
        raise RequestError(
            f"{folder} has a budget for each sample: a transfer needs a run whose {option('eps')} values are numbers"
        )
    return [
        Source(
            name=f"{folder.name}/{model['name']}",
            kind="run",
            members=(str(model["name"]),),
            digests=(str(model["digest"]),),
            folder=folder,
        )
        for model in run.manifest["models"]
    ]


def _attack_stage(
    request: TransferRequest, domain: Domain, distance: Distance, sources: Sequence[Source], models: Mapping[str, ModelEntry]
) -> Stage:
    """The attack of a request, checked against the data, the distance and the models on which it makes examples."""
    stages = build_stages((request.attack,))
    if len(stages) != 1 or stages[0].waits:
        raise RequestError(f"attack is {request.attack}, which is a cascade: name one attack, for example mi-fgsm or apgd-ce")
    (stage,) = stages
    attack = stage.attack
    if distance.name not in attack.distances:
        raise RequestError(f"{stage.name} supports {', '.join(sorted(attack.distances))}, not {distance.name}")
    if domain.kind not in attack.domains:
        raise RequestError(f"{stage.name} supports {', '.join(sorted(attack.domains))} inputs, not {domain.kind} inputs")
    if isinstance(attack, ChoosesData):
        attack.check(domain.free)
    for source in sources:
        for name in source.members:
            if attack.access > models[name].access:
                raise RequestError(
                    f"{stage.name} needs {attack.access.name.lower()}, but {name} gives {models[name].access.name.lower()} only: "
                    "list the sources, without this model"
                )
    return stage
