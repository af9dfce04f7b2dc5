"""What a transfer does, resolved: models, data, and where the examples come from. Whatever does not fit is named first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell.core.contracts import ChoosesData, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.threat import Distance
from brinell.core.version import VERSION
from brinell.datasets.bench import Bench, manifest_of
from brinell.engine.cascade import Stage, build_stages
from brinell.engine.cells import cell
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import (
    check_classes,
    check_names,
    choose_device,
    facts_of,
    gaps,
    open_data,
    open_distance,
    opener_of,
    usual_eps,
)
from brinell.engine.selection import choose
from brinell.store.files import digest
from brinell.store.folder import MANIFEST, verb_of
from brinell.store.run import Run
from brinell.studies.transfer.records import LAYOUT
from brinell.studies.transfer.request import DIGITS, TransferRequest


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A model that is shown examples."""

    name: str
    open: Callable[[], Model]
    facts: Mapping[str, Any]
    access: Access


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where examples come from."""

    name: str
    kind: str
    """made, run or set."""
    members: tuple[str, ...]
    """The models that they were made on."""
    digests: tuple[str, ...] = ()
    """Those of the members, of a run or a set where it knows them."""
    folder: Path | None = None
    """Of a run or a set."""
    level: float | None = None
    """Of a set."""


@dataclass(frozen=True, kw_only=True)
class TransferPlan:
    """What a transfer does, resolved."""

    request: TransferRequest
    dataset: Dataset
    ids: Array
    """(n,) int64: the samples of made examples."""
    labels: Array
    """(n,) int64."""
    distance: Distance
    stage: Stage | None
    """The attack; None where nothing is made."""
    eps: float
    eps_text: str
    models: tuple[Shown, ...]
    sources: tuple[Source, ...]
    device: torch.device

    @property
    def data(self) -> str:
        """What it is about, for the name of a folder."""
        return self.request.data or "transfer"

    @property
    def cell(self) -> str:
        """Hash of all that the rows depend on."""
        stage = self.stage
        return cell(
            layout=LAYOUT.version,
            brinell=VERSION,
            data=self.dataset.digest(),
            ids=self.ids.tolist(),
            domain=list(self.dataset.domain.to_json().values()),
            distance=self.distance.name,
            eps=self.eps,
            stage=None if stage is None else [stage.name, stage.plugin, stage.settings(), stage.eot],
            models=[[one.name, one.facts["digest"]] for one in self.models],
            sources=[
                [one.name, one.kind, one.members, one.level, None if one.folder is None else digest(one.folder / MANIFEST)]
                for one in self.sources
            ],
            seed=self.request.seed,
            draws=self.request.draws,
        )


def make_plan(request: TransferRequest, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()) -> TransferPlan:
    """Resolve a request; `dataset` and `models` are in place of those that it names.

    Raises:
        RequestError: any part that cannot be carried out.
    """
    folders = {text: Path(text) for text in request.source if (Path(text) / MANIFEST).exists()}
    sets = [folder for folder in folders.values() if verb_of(folder) == "benchmark"]
    if dataset is None:
        dataset = (
            Bench(path=str(sets[0]), level="clean")() if request.data is None and sets else open_data(request.data or "digits")
        )
    shown = _models(request, dataset, models)
    sources = _sources(request, folders, [one.name for one in shown])
    made = [one for one in sources if one.kind == "made"]
    distance = open_distance(request.norm)
    stage = _stage(request, dataset.domain, distance, made, {one.name: one for one in shown}) if made else None
    text = request.eps or usual_eps(dataset.domain, distance.name)
    budgets = parse_eps(text)
    if request.eps is not None and len(budgets.values) != 1:
        raise RequestError(f"eps is {request.eps}, and a transfer has one budget: write it as 8/255")
    selection = choose(request, dataset)
    lost = gaps(dataset, selection.ids.tolist())
    ids = np.array([one for one in selection.ids.tolist() if one not in lost], dtype=np.int64)
    if not budgets.values[-1] > 0:
        raise RequestError("eps is 0: examples at budget 0 are the clean inputs; give one above it")
    return TransferPlan(
        request=request,
        dataset=dataset,
        ids=ids,
        labels=np.asarray(dataset.labels(), dtype=np.int64)[ids],
        distance=distance,
        stage=stage,
        eps=float(budgets.values[-1]),
        eps_text=budgets.texts[-1],
        models=shown,
        sources=sources,
        device=choose_device(request.device),
    )


def _models(request: TransferRequest, dataset: Dataset, given: tuple[Model, ...]) -> tuple[Shown, ...]:
    specs = request.model or (() if given else DIGITS)
    if not request.model and not given and dataset.domain.shape != (1, 8, 8):
        raise RequestError(f"a transfer over {dataset.name} needs models: name them by {option('model')}")
    openers = [(lambda one=one: one) for one in given] if given else [opener_of(spec, dataset) for spec in specs]
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    found = []
    for opener in openers:
        model = opener()
        check_classes(model, labels, tuple(dataset.classes))
        found.append(Shown(name=model.name, open=opener, facts=facts_of(model), access=model.access))
    check_names([one.name for one in found])
    return tuple(found)


def _sources(request: TransferRequest, folders: Mapping[str, Path], names: Sequence[str]) -> tuple[Source, ...]:
    found: list[Source] = []
    for text in request.source or tuple(names):
        if text in folders:
            found += _of_set(folders[text]) if verb_of(folders[text]) == "benchmark" else _of_run(folders[text], request)
            continue
        members = tuple(part.strip() for part in text.split("+"))
        if unknown := [one for one in members if one not in names]:
            raise RequestError(
                f"source {unknown[0]!r} is neither a model named by {option('model')} nor the folder of a run "
                "or a benchmark set: the "
                f"models are {', '.join(names)}"
            )
        found.append(Source(name="+".join(members), kind="made", members=members))
    check_names([one.name for one in found])
    return tuple(found)


def _of_set(folder: Path) -> list[Source]:
    """A source for each level of a benchmark set."""
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


def _of_run(folder: Path, request: TransferRequest) -> list[Source]:
    """A source for each model of a run."""
    run = Run.open(folder)
    if run.manifest["state"] != "finished":
        raise RequestError(f"{folder} is not finished: go on with brinell audit --resume --out {folder} first")
    if run.manifest["distance"] != request.norm:
        raise RequestError(
            f"{folder} measures eps in {run.manifest['distance']}, not in {request.norm}: give its {option('norm')}"
        )
    if run.manifest.get("recommended"):
        raise RequestError(
            f"the budgets of {folder} are each sample's own: a transfer needs a run whose {option('eps')} are numbers"
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


def _stage(
    request: TransferRequest, domain: Domain, distance: Distance, made: Sequence[Source], models: Mapping[str, Shown]
) -> Stage:
    """The attack that makes examples, held against the models on which it makes them."""
    stages = build_stages((request.attack,))
    if len(stages) != 1 or stages[0].waits:
        raise RequestError(f"attack is {request.attack}, which is a cascade: name one attack, such as mi-fgsm or apgd-ce")
    (stage,) = stages
    attack = stage.attack
    if distance.name not in attack.distances:
        raise RequestError(f"{stage.name} works in {', '.join(sorted(attack.distances))}, not in {distance.name}")
    if domain.kind not in attack.domains:
        raise RequestError(f"{stage.name} works on {', '.join(sorted(attack.domains))} inputs, not on a {domain.kind}")
    if isinstance(attack, ChoosesData):
        attack.check(domain.free)
    for source in made:
        for name in source.members:
            if attack.access > models[name].access:
                raise RequestError(
                    f"{stage.name} needs {attack.access.name.lower()}, and {name} gives {models[name].access.name.lower()} only: "
                    "name the sources by their names, without this model"
                )
    return stage
