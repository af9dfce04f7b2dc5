"""What a hardening is made of: a request resolved, and refused before anything is trained where it cannot be carried out."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Dataset, Distance, Domain, complete
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.splits import stratified
from brinell.core.streams import seeded
from brinell.core.version import VERSION
from brinell.datasets.bench import manifest_of
from brinell.engine.cells import cell
from brinell.engine.eps_grid import doubts, parse_eps
from brinell.engine.plan import check_classes, choose_device, open_data, open_distance, opener_of, usual_eps
from brinell.engine.request import IN_MEMORY
from brinell.engine.spelling import spelled
from brinell.studies.harden.records import LAYOUT
from brinell.studies.harden.request import HardenRequest
from brinell.training.recipe import Recipe

AT_ONCE = 512
"""Inputs that are read together."""

NAMED = 3
"""How many of the samples in common a line names."""
ANYWHERE = ("device",)
"""Settings that may be others when a hardening goes on."""
SHARE = 2
"""The fewest samples of a batch that a defence gets: batch norm learns nothing of a single one."""


@dataclass(frozen=True, kw_only=True)
class Brought:
    """The ready-made inputs that a defence learns."""

    dataset: Dataset
    rows: Array
    """(n,) which of them: none that was made of a validation sample."""
    made_by: tuple[str, ...]
    """Names of the distortions that they were made by."""


@dataclass(frozen=True, kw_only=True)
class HardenPlan:
    """Everything that determines the hardened weights and their audits."""

    request: HardenRequest
    dataset: Dataset
    train: Dataset
    train_spec: str
    model: Model
    given: Model | None
    """The model, where it was given in memory."""
    recipe: Recipe
    brought: dict[int, Brought]
    """By position of the defence, what it brings."""
    distance: Distance
    eps: float
    eps_text: str
    learned: Array
    """(n,) positions of the training samples."""
    held: Array
    """(k,) positions of the validation samples, in the order in which they are asked about."""
    device: torch.device
    cell: str


def make_plan(
    request: HardenRequest, *, dataset: Dataset | None = None, train: Dataset | None = None, model: Model | None = None
) -> HardenPlan:
    """Resolve a request, naming whatever does not fit before anything is trained.

    Args:
        request: what is asked for.
        dataset: data already in memory, in place of `request.data`.
        train: training data already in memory, in place of `request.train`.
        model: a model already in memory, in place of `request.model`.

    Raises:
        RequestError: any part that cannot be carried out.
    """
    recipe, distance, device = Recipe.of(request.recipe), open_distance(request.norm), choose_device(request.device)
    dataset = open_data(request.data) if dataset is None else dataset
    spec = request.train or (_train_split(request.data) if train is None else "")
    train = open_data(spec) if train is None else train
    _check_data(train, dataset)
    recipe = recipe.fitted(train.domain, distance)
    if request.patience is not None and not recipe.budgeted:
        raise RequestError(
            f"{option('patience')} counts checks of robust accuracy, and recipe {recipe.text} trains for none: leave it out"
        )
    if request.budgets is not None and not any(parse_eps(request.budgets).values):
        raise RequestError(
            f"{option('budgets')} {request.budgets} hold none above 0, by which models before and after can be compared"
        )
    if request.augment != "none" and train.domain.kind != "image":
        raise RequestError(
            f"{option('augment')} {request.augment} is for images, and the data is of kind {train.domain.kind}: leave it out"
        )
    with seeded(request.seed):
        opened = complete(Model, opener_of(request.model, dataset)() if model is None else model)
    _check_network(opened)
    labels = np.asarray(train.labels(), dtype=np.int64)
    check_classes(opened, labels, tuple(train.classes))
    check_classes(opened, np.asarray(dataset.labels(), dtype=np.int64), tuple(dataset.classes))
    eps = parse_eps(request.eps or usual_eps(dataset.domain, distance.name).split(":")[1])
    if len(eps.values) != 1 or not eps.values[0] > 0:
        raise RequestError(f"eps {request.eps!r} is no single budget above 0: name the one to train for, such as 8/255")
    doubts(eps, distance, dataset.domain)
    learned, held = _split(labels, request)
    if min(request.batch_size, len(learned)) < SHARE * len(recipe.parts):
        then = (
            "add training samples"
            if len(learned) <= request.batch_size
            else f"give {option('batch_size', str(SHARE * len(recipe.parts)))} or more"
        )
        raise RequestError(
            f"a batch of {min(request.batch_size, len(learned))} is too small for {request.recipe}, of which each defence needs "
            f"two samples: {then}"
        )
    brought = {at: _brought(spec, train, dataset, held) for at, spec in recipe.specs().items()}
    facts = request.model_dump(exclude=set(ANYWHERE))
    return HardenPlan(
        request=request,
        dataset=dataset,
        train=train,
        train_spec=spec or f"{IN_MEMORY}:{train.name}",
        model=opened,
        given=model,
        recipe=recipe,
        brought=brought,
        distance=distance,
        eps=eps.values[0],
        eps_text=eps.texts[0],
        learned=learned,
        held=held,
        device=device,
        cell=cell(
            format=LAYOUT.version,
            brinell=VERSION,
            request=facts,
            model=opened.digest(),
            data=[train.digest(), *(one.dataset.digest() for one in brought.values())],
        ),
    )


def _train_split(spec: str) -> str:
    """The training part of the data that a spec names.

    Raises:
        RequestError: they have no such part.
    """
    if spec.partition(":")[0] == IN_MEMORY:
        raise RequestError("what to train on does not follow from data in memory: give train=, other samples than these")
    full = spelled("dataset", spec)
    name, path, options = plugins.parse(full)
    fields = getattr(plugins.load("dataset", name), "__dataclass_fields__", {})
    if "split" not in fields or options.get("split") == "train":
        raise RequestError(f"which data to train on does not follow from {spec}: name them by {option('train')}")
    pairs = "&".join(f"{key}={value}" for key, value in (options | {"split": "train"}).items())
    return f"{name}{':' + path if path else ''}?{pairs}"


def _check_data(train: Dataset, test: Dataset) -> None:
    """Refuse training data of another form, without a class, or with samples of the data that the model is judged by."""
    _check_same(train, test)
    absent = sorted(set(range(len(train.classes))) - set(np.asarray(train.labels()).tolist()))
    if absent:
        names = ", ".join(repr(train.classes[at]) for at in absent[:NAMED])
        raise RequestError(
            f"the training data {train.name} hold no sample of class {names}: a model trained on them forgets the class; add some"
        )
    _check_apart(train, test)


def _check_same(train: Dataset, test: Dataset) -> None:
    if train.domain.shape != test.domain.shape:
        raise RequestError(
            f"{train.name} has inputs of shape {train.domain.shape}, and {test.name} of {test.domain.shape}: train on data of "
            "the same kind"
        )
    if tuple(train.classes) != tuple(test.classes):
        known = [
            f"{len(one.classes)} ({', '.join(one.classes[:NAMED])}{', ...' * (len(one.classes) > NAMED)})"
            for one in (train, test)
        ]
        raise RequestError(
            f"{train.name} has {known[0]} classes, and {test.name} {known[1]}: labels are counted from 0, and both need the same"
        )


def _check_apart(train: Dataset, test: Dataset) -> None:
    if both := shared(train, test):
        some = ", ".join(f"{mine} is {theirs}" for mine, theirs in both[:NAMED]) + ", ..." * (len(both) > NAMED)
        raise RequestError(
            f"{len(both)} of the {len(train)} training samples in {train.name} are among those that the model is audited on "
            f"({some}): what it has learned by heart proves nothing; take them out of either"
        )


def _check_network(model: Model) -> None:
    """Refuse a model without weights that can be trained, and kept in a file of tensors."""
    module = model.info.module
    if model.access < Access.GRADIENTS or module is None:
        raise RequestError(
            f"model {model.name} gives {model.access.name.lower()} and no weights that could be trained: name a torch module, "
            "model.py:FACTORY"
        )
    if other := [name for name, value in module.state_dict().items() if not isinstance(value, Tensor)]:
        raise RequestError(
            f"the state of model {model.name} holds {other[0]}, which is no tensor and cannot be kept in a safetensors file: "
            "let it have none, or keep it in a buffer"
        )


def _brought(spec: str, train: Dataset, test: Dataset, held: Array) -> Brought:
    """What a defence brings, refused where the model is judged by the inputs that it was made of.

    What was made of a validation sample is left out: it would be learned, and decide which weights are kept.
    """
    name, path, options = plugins.parse(spec)
    if not path:
        raise RequestError("recipe benchmark-set names no set: write benchmark-set(path=FOLDER), a folder of brinell benchmark")
    found, clean = open_data(spec), open_data(f"{name}:{path}?level=clean")
    for one in (found, clean):
        _check_same(one, train)
        _check_apart(one, test)
    validating = {clean.info.names[at] for at, _ in shared(clean, train, held.tolist())}
    rows = np.array([at for at, sample in enumerate(found.info.names) if sample not in validating], dtype=np.int64)
    if not len(rows):
        raise RequestError(f"every input of {path} was made of a sample that is set aside for validation: give a larger set")
    made_by = plugins.split(str(manifest_of(Path(path)).get("request", {}).get("distortions", "")))
    return Brought(dataset=found, rows=rows, made_by=tuple(plugins.head(one.strip()) for one in made_by))


def _split(labels: Array, request: HardenRequest) -> tuple[Array, Array]:
    """Positions to learn from and to validate by, a tenth of each class and no more than was asked for."""
    learned, held = stratified(labels, min(0.1, request.validation / len(labels)), request.seed)
    if not len(held) and len(stratified(labels, 0.1, request.seed)[1]):
        raise RequestError(
            f"{option('validation')} {request.validation} sets no sample of {len(labels)} aside: give one for each class or more"
        )
    if not len(held) or not len(learned):
        raise RequestError(f"{len(labels)} training samples are too few to set some aside: give ten of each class or more")
    return learned, np.random.default_rng(request.seed).permutation(held)


def digests(dataset: Dataset, stored: Domain, positions: Sequence[int] | None = None) -> Iterator[bytes]:
    """A hash of each input as it comes back from storage, in order; of all of them, or of those at some positions."""
    at = range(len(dataset)) if positions is None else positions
    for start in range(0, len(at), AT_ONCE):
        for row in stored.round(dataset.load(at[start : start + AT_ONCE])).numpy():
            yield hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()


def shared(train: Dataset, test: Dataset, positions: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """The positions of equal inputs, in the first and the second; of equal ones within the second, the last.

    Inputs are equal if they are stored alike: an image of 8 bits is itself, whether it was divided by 255, multiplied by 1/255 or
    kept in half precision.

    Args:
        train: the first.
        test: the second, of the same shape.
        positions: which inputs of the second count; all by default.
    """
    stored = test.domain if test.domain.levels is not None else train.domain
    at = range(len(test)) if positions is None else positions
    known = dict(zip(digests(test, stored, at), at, strict=True))
    return [(mine, known[digest]) for mine, digest in enumerate(digests(train, stored)) if digest in known]
