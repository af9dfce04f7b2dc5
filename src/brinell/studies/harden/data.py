"""The training data of a hardening: what the audits must not share, the validation samples, and stored examples of others."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell import plugins
from brinell.core.contracts import Dataset, Domain
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.splits import stratified
from brinell.datasets.bench import manifest_of
from brinell.engine.request import IN_MEMORY
from brinell.engine.sources import open_data
from brinell.engine.spelling import expand_spec
from brinell.reports.numbers import listed
from brinell.studies.harden import HardenRequest

CHUNK = 512
"""Inputs loaded at once."""
MAX_NAMED = 3
"""Most samples or classes that an error message names."""
VALIDATION = 500
"""Most training samples that are set aside, on which the best weights are selected."""


@dataclass(frozen=True, kw_only=True)
class StoredExamples:
    """Stored adversarial or distorted inputs that a defence trains on."""

    dataset: Dataset
    rows: Array
    """(n,) positions in `dataset`, without inputs derived from validation samples."""
    distortions: tuple[str, ...]
    """Names of the distortions that produced the inputs."""


def train_split(spec: str) -> str:
    """Spec of the training split of the data set that `spec` names."""
    if spec.partition(":")[0] == IN_MEMORY:
        raise RequestError("data in memory has no training split: pass the training samples as train=")
    full = expand_spec("dataset", spec)
    name, path, options = plugins.parse(full)
    fields = getattr(plugins.load("dataset", name), "__dataclass_fields__", {})
    if "split" not in fields or options.get("split") == "train":
        raise RequestError(f"{spec} has no training split: name the training data with {option('train')}")
    pairs = "&".join(f"{key}={value}" for key, value in (options | {"split": "train"}).items())
    return f"{name}{':' + path if path else ''}?{pairs}"


def check_data(train: Dataset, test: Dataset) -> None:
    """Refuse training data of another shape, without a class, or with samples of the test data."""
    _check_form(train, test)
    present = set(np.asarray(train.labels()).tolist())
    if absent := [repr(name) for index, name in enumerate(train.classes) if index not in present]:
        raise RequestError(
            f"the training data {train.name} has no sample of class {', '.join(absent[:MAX_NAMED])}: a model trained on it "
            "forgets the class; add samples"
        )
    _check_disjoint(train, test)


def _check_form(train: Dataset, test: Dataset) -> None:
    if train.domain.shape == test.domain.shape and tuple(train.classes) == tuple(test.classes):
        return
    forms = [
        f"inputs of shape {dataset.domain.shape} in {len(dataset.classes)} classes ({listed(list(dataset.classes), MAX_NAMED)})"
        for dataset in (train, test)
    ]
    raise RequestError(
        f"{train.name} has {forms[0]}, but {test.name} has {forms[1]}: both need the same shape and the same classes in one order"
    )


def _check_disjoint(train: Dataset, test: Dataset) -> None:
    if duplicates := find_duplicates(train, test):
        text = listed([f"{train_index} is {test_index}" for train_index, test_index in duplicates], MAX_NAMED)
        raise RequestError(
            f"{len(duplicates)} of the {len(train)} training samples in {train.name} also occur in the audit data "
            f"({text}): a model may memorise them; remove them from either data set"
        )


def open_examples(spec: str, train: Dataset, test: Dataset, validation_positions: Array) -> StoredExamples:
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
    names = tuple(plugins.head(distortion.strip()) for distortion in distortions)
    return StoredExamples(dataset=examples, rows=rows, distortions=names)


def split(labels: Array, request: HardenRequest) -> tuple[Array, Array]:
    """Positions for training and for validation: at most a tenth of each class and `VALIDATION` in all."""
    train_positions, validation_positions = stratified(labels, min(0.1, VALIDATION / len(labels)), request.seed)
    if not len(validation_positions) or not len(train_positions):
        raise RequestError(f"{len(labels)} training samples are too few for a validation set: give at least ten of each class")
    return train_positions, np.random.default_rng(request.seed).permutation(validation_positions)


def digests(dataset: Dataset, stored: Domain, positions: Sequence[int]) -> Iterator[bytes]:
    """Hash of each input at `positions` after rounding to its storage levels."""
    for start in range(0, len(positions), CHUNK):
        for row in stored.round(dataset.load(positions[start : start + CHUNK])).numpy():
            yield hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()


def find_duplicates(train: Dataset, test: Dataset, positions: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Pairs of positions (in train, in test) of equal inputs. If an input occurs twice in test, its last position is reported.

    Inputs are equal if they round to the same stored values: an 8-bit image equals itself after a division by 255, a
    multiplication by 1/255, or a cast to half precision. With `positions`, those of `test` alone are compared.
    """
    stored = test.domain if test.domain.levels is not None else train.domain
    indices = range(len(test)) if positions is None else positions
    index_of = dict(zip(digests(test, stored, indices), indices, strict=True))
    own = enumerate(digests(train, stored, range(len(train))))
    return [(train_index, index_of[digest]) for train_index, digest in own if digest in index_of]
