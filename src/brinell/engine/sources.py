"""Data, models, attacks and distances built from their specs."""

from collections.abc import Mapping
from typing import Any

from brinell import plugins
from brinell.core.data import Dataset
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import BoundsError
from brinell.datasets._region import restrict
from brinell.datasets.bench import manifest_of, task_of
from brinell.engine.mistakes import explain
from brinell.engine.request import IN_MEMORY
from brinell.engine.spelling import expand_spec

REGION = "region"
"""The option by which a spec of any data says which part of inputs attacks may change."""
DENSE = ("masks", "boxes")
"""Plugins of data with a mask or with objects for each picture."""


def build_source(kind: str, spec: str) -> Any:
    """The plugin that a spec names, with its settings."""
    if spec.startswith(f"{IN_MEMORY}:"):
        raise RequestError(
            f"{kind} {spec!r} was given in memory, from Python: repeat it there, "
            "with the same objects"
        )
    name, path, options = plugins.parse(spec)
    return plugins.build(kind, name, options | ({"path": path} if path else {}))


def open_data(spec: str, *, truth: bool = False) -> Dataset:
    """The data set that a spec names; `truth` says that the truth about parts of inputs is
    understood.
    """
    expanded = expand_spec("dataset", spec)
    region = plugins.parse(expanded).options.get(REGION)
    if region is not None:
        expanded = plugins.with_options(expanded, {REGION: None})
    try:
        dataset: Dataset = build_source("dataset", expanded)()
    except BoundsError as error:
        name, path, given = plugins.parse(expanded)
        if name != "npz":
            raise

        def write(options: Mapping[str, Any]) -> str:
            return f"npz:{path}?{'&'.join(f'{key}={value}' for key, value in (given | dict(options)).items())}"

        refusal = explain(error, write)
        if refusal.instead is not None:
            refusal.instead = spec, refusal.instead[1]
        raise refusal from None
    if not truth:
        check_labelled(dataset)
    return dataset if region is None else restrict(dataset, region)


def has_truth(data: Any) -> bool:
    """True for data with a mask or with objects for each picture: a spec or a data set."""
    if not isinstance(data, str) or data.startswith(f"{IN_MEMORY}:"):
        return isinstance(data, Dataset) and data.info.truth is not None
    name, path, _ = plugins.parse(expand_spec("dataset", data))
    if name == "bench" and path:
        return task_of(manifest_of(existing_path(path, "folder", "bench:FOLDER"))) is not None
    return name in DENSE


def check_labelled(dataset: Dataset) -> None:
    """Refuse data whose truth is about parts of inputs, where one class for each input is expected."""
    truth = dataset.info.truth
    if truth is not None:
        subjects = {"segmentation": "a mask", "detection": "objects"}
        subject = subjects.get(truth.task, f"the truth of {truth.task}")
        raise RequestError(
            f"{dataset.name} holds {subject} for each picture, and here one class "
            "for each input is needed: brinell audit and "
            "brinell transfer take such data"
        )
