"""Resolves a hardening request and rejects one that cannot run before any training."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Dataset, Distance, Domain, check_complete
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.splits import stratified
from brinell.core.streams import seeded
from brinell.core.version import VERSION
from brinell.datasets.bench import manifest_of
from brinell.engine.cells import content_hash
from brinell.engine.class_counts import check_classes
from brinell.engine.eps_grid import check_budgets, parse_eps
from brinell.engine.plan import choose_device, model_opener, open_distance, usual_eps
from brinell.engine.request import IN_MEMORY
from brinell.engine.sources import open_data
from brinell.engine.spelling import expand_spec
from brinell.studies.harden.records import LAYOUT
from brinell.studies.harden.request import HardenRequest
from brinell.training.recipe import Recipe

CHUNK = 512
"""Inputs loaded at once."""

MAX_NAMED = 3
"""Most samples or classes that an error message names."""
RESUME_SETTINGS = ("device",)
"""Settings that may change when a run is resumed."""
MIN_SHARE = 2
"""Fewest samples of a batch for each defence: batch norm needs at least two."""


@dataclass(frozen=True, kw_only=True)
class StoredExamples:
    """Stored adversarial or distorted inputs that a defence trains on."""

    dataset: Dataset
    rows: Array
    """(n,) positions in `dataset`, without inputs derived from validation samples."""
    distortions: tuple[str, ...]
    """Names of the distortions that produced the inputs."""


@dataclass(frozen=True, kw_only=True)
class HardenPlan:
    """Everything that determines the hardened weights and their audits."""

    request: HardenRequest
    dataset: Dataset
    train: Dataset
    train_spec: str
    model: Model
    memory_model: Model | None
    """The model if the caller passed it in memory, else None."""
    recipe: Recipe
    examples: dict[int, StoredExamples]
    """Stored examples by position of their defence in the recipe."""
    distance: Distance
    eps: float
    eps_text: str
    train_positions: Array
    """(n,) positions of the training samples."""
    validation_positions: Array
    """(k,) positions of the validation samples, in the order of evaluation."""
    device: torch.device
    cell: str


def make_plan(
    request: HardenRequest, *, dataset: Dataset | None = None, train: Dataset | None = None, model: Model | None = None
) -> HardenPlan:
    """Resolve a request and check every part before training.

    Args:
        request: the settings of the hardening.
        dataset: data in memory; overrides `request.data`.
        train: training data in memory; overrides `request.train`.
        model: a model in memory; overrides `request.model`.

    Raises:
        RequestError: a part cannot be carried out.
    """
    recipe, distance, device = (
        Recipe.of(request.recipe),
        open_distance(request.norm),
        choose_device(request.device),
    )
    dataset = open_data(request.data) if dataset is None else dataset
    spec = request.train or (_train_split(request.data) if train is None else "")
    train = open_data(spec) if train is None else train
    _check_data(train, dataset)
    recipe = recipe.fit(train.domain, distance)
    if request.patience is not None and not recipe.budgeted:
        raise RequestError(
            f"{option('patience')} counts checks of robust accuracy, and recipe {recipe.text} has no budget: leave it out"
        )
    if request.budgets is not None and not any(parse_eps(request.budgets).values):
        raise RequestError(
            f"{option('budgets')} {request.budgets} contains no budget above 0 at which to compare the models before and "
            "after: add one"
        )
    if request.augment != "none" and train.domain.kind != "image":
        raise RequestError(
            f"{option('augment')} {request.augment} needs images, but the data is of kind {train.domain.kind}: leave it out"
        )
    with seeded(request.seed):
        classifier = check_complete(Model, model_opener(request.model, dataset)() if model is None else model)
    _check_network(classifier)
    labels = np.asarray(train.labels(), dtype=np.int64)
    check_classes(classifier, labels, train)
    check_classes(classifier, np.asarray(dataset.labels(), dtype=np.int64), dataset)
    eps = parse_eps(request.eps or usual_eps(dataset.domain, distance.name).split(":")[1])
    if len(eps.values) != 1 or not eps.values[0] > 0:
        raise RequestError(f"eps {request.eps!r} is not a single budget above 0: give the training budget, such as 8/255")
    check_budgets(eps, distance, dataset.domain)
    train_positions, validation_positions = _split(labels, request)
    if min(request.batch_size, len(train_positions)) < MIN_SHARE * len(recipe.parts):
        advice = (
            "add training samples"
            if len(train_positions) <= request.batch_size
            else f"set {option('batch_size', str(MIN_SHARE * len(recipe.parts)))} or more"
        )
        raise RequestError(
            f"a batch of {min(request.batch_size, len(train_positions))} is too small for {request.recipe}: each defence of "
            "the recipe needs "
            f"two samples: {advice}"
        )
    examples = {index: _open_examples(spec, train, dataset, validation_positions) for index, spec in recipe.specs().items()}
    facts = request.model_dump(exclude=set(RESUME_SETTINGS))
    return HardenPlan(
        request=request,
        dataset=dataset,
        train=train,
        train_spec=spec or f"{IN_MEMORY}:{train.name}",
        model=classifier,
        memory_model=model,
        recipe=recipe,
        examples=examples,
        distance=distance,
        eps=eps.values[0],
        eps_text=eps.texts[0],
        train_positions=train_positions,
        validation_positions=validation_positions,
        device=device,
        cell=content_hash(
            format=LAYOUT.version,
            brinell=VERSION,
            request=facts,
            model=classifier.digest(),
            data=[train.digest(), *(stored.dataset.digest() for stored in examples.values())],
        ),
    )


def _train_split(spec: str) -> str:
    """Spec of the training split of the data set that `spec` names.

    Raises:
        RequestError: the data set has no training split.
    """
    if spec.partition(":")[0] == IN_MEMORY:
        raise RequestError("data in memory has no training split: pass the training samples as train=")
    full = expand_spec("dataset", spec)
    name, path, options = plugins.parse(full)
    fields = getattr(plugins.load("dataset", name), "__dataclass_fields__", {})
    if "split" not in fields or options.get("split") == "train":
        raise RequestError(f"{spec} has no training split: name the training data with {option('train')}")
    pairs = "&".join(f"{key}={value}" for key, value in (options | {"split": "train"}).items())
    return f"{name}{':' + path if path else ''}?{pairs}"


def _check_data(train: Dataset, test: Dataset) -> None:
    """Reject training data of another shape, without a class, or with samples of the test data."""
    _check_form(train, test)
    absent = sorted(set(range(len(train.classes))) - set(np.asarray(train.labels()).tolist()))
    if absent:
        names = ", ".join(repr(train.classes[index]) for index in absent[:MAX_NAMED])
        raise RequestError(
            f"the training data {train.name} has no sample of class {names}: a model trained on it forgets the class; add samples"
        )
    _check_disjoint(train, test)


def _check_form(train: Dataset, test: Dataset) -> None:
    """Refuse training data of another shape or other classes than the audit's."""
    if train.domain.shape != test.domain.shape:
        raise RequestError(
            f"{train.name} has inputs of shape {train.domain.shape}, but {test.name} has {test.domain.shape}: train on data of "
            "the same shape"
        )
    if tuple(train.classes) != tuple(test.classes):
        descriptions = [
            f"{len(dataset.classes)} ({', '.join(dataset.classes[:MAX_NAMED])}{', ...' * (len(dataset.classes) > MAX_NAMED)})"
            for dataset in (train, test)
        ]
        raise RequestError(
            f"{train.name} has {descriptions[0]} classes, but {test.name} has {descriptions[1]}: both need the same classes in "
            "the same order"
        )


def _check_disjoint(train: Dataset, test: Dataset) -> None:
    """Refuse training data that contains samples of the audit."""
    if duplicates := find_duplicates(train, test):
        text = ", ".join(f"{train_index} is {test_index}" for train_index, test_index in duplicates[:MAX_NAMED]) + ", ..." * (
            len(duplicates) > MAX_NAMED
        )
        raise RequestError(
            f"{len(duplicates)} of the {len(train)} training samples in {train.name} also occur in the audit data "
            f"({text}): a model may memorise them; remove them from either data set"
        )


def _check_network(model: Model) -> None:
    """Reject a model whose weights cannot be trained or stored in a safetensors file."""
    module = model.info.module
    if model.access < Access.GRADIENTS or module is None:
        raise RequestError(
            f"model {model.name} gives only {model.access.name.lower()} and no trainable weights: pass a torch module, "
            "model.py:FACTORY"
        )
    if non_tensors := [name for name, value in module.state_dict().items() if not isinstance(value, Tensor)]:
        raise RequestError(
            f"the state of model {model.name} holds {non_tensors[0]}, which is not a tensor and cannot be stored in a "
            "safetensors file: "
            "remove it, or register it as a buffer"
        )


def _open_examples(spec: str, train: Dataset, test: Dataset, validation_positions: Array) -> StoredExamples:
    """Open the stored examples of a defence, and reject them if they derive from the audit data.

    Examples of validation samples are left out, so the validation data stays unseen by the training.
    """
    name, path, options = plugins.parse(spec)
    if not path:
        raise RequestError(
            "recipe benchmark-set needs a path: write benchmark-set(path=FOLDER) with a folder of brinell benchmark"
        )
    examples, clean = open_data(spec), open_data(f"{name}:{path}?level=clean")
    for dataset in (examples, clean):
        _check_form(dataset, train)
        _check_disjoint(dataset, test)
    validating = {clean.info.names[index] for index, _ in find_duplicates(clean, train, validation_positions.tolist())}
    rows = np.array([index for index, sample in enumerate(examples.info.names) if sample not in validating], dtype=np.int64)
    if not len(rows):
        raise RequestError(f"every input of {path} derives from a validation sample: give a larger benchmark set")
    distortions = plugins.split(str(manifest_of(Path(path)).get("request", {}).get("distortions", "")))
    return StoredExamples(
        dataset=examples, rows=rows, distortions=tuple(plugins.head(distortion.strip()) for distortion in distortions)
    )


def _split(labels: Array, request: HardenRequest) -> tuple[Array, Array]:
    """Positions for training and for validation: at most a tenth of each class and at most `request.validation` in total."""
    train_positions, validation_positions = stratified(labels, min(0.1, request.validation / len(labels)), request.seed)
    if not len(validation_positions) and len(stratified(labels, 0.1, request.seed)[1]):
        raise RequestError(
            f"{option('validation')} {request.validation} sets aside none of {len(labels)} samples: set it to at least the "
            "number of classes"
        )
    if not len(validation_positions) or not len(train_positions):
        raise RequestError(f"{len(labels)} training samples are too few for a validation set: give at least ten of each class")
    return train_positions, np.random.default_rng(request.seed).permutation(validation_positions)


def digests(dataset: Dataset, stored: Domain, positions: Sequence[int] | None = None) -> Iterator[bytes]:
    """Hash of each input after rounding to its storage levels, in order; of all inputs, or of those at `positions`."""
    indices = range(len(dataset)) if positions is None else positions
    for start in range(0, len(indices), CHUNK):
        for row in stored.round(dataset.load(indices[start : start + CHUNK])).numpy():
            yield hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()


def find_duplicates(train: Dataset, test: Dataset, positions: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Pairs of positions (in train, in test) of equal inputs. If an input occurs twice in test, its last position is reported.

    Inputs are equal if they round to the same stored values: an 8-bit image equals itself after a division by 255, a
    multiplication by 1/255, or a cast
    to half precision.

    Args:
        train: the training data.
        test: the data to compare with, of the same shape.
        positions: positions in `test` to compare; all by default.
    """
    stored = test.domain if test.domain.levels is not None else train.domain
    indices = range(len(test)) if positions is None else positions
    index_of = dict(zip(digests(test, stored, indices), indices, strict=True))
    return [(train_index, index_of[digest]) for train_index, digest in enumerate(digests(train, stored)) if digest in index_of]
