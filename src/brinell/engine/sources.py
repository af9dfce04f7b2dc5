"""Data, models, attacks and distances built from their specs."""

from collections.abc import Mapping
from typing import Any

from brinell import plugins
from brinell.core.data import Dataset
from brinell.core.errors import RequestError
from brinell.datasets._arrays import BoundsError
from brinell.datasets._region import restrict
from brinell.engine.mistakes import explain
from brinell.engine.request import IN_MEMORY
from brinell.engine.spelling import expand_spec

REGION = "region"
"""The option by which a spec of any data says which part of inputs attacks may change."""
OWN = "brinell.datasets."
"""Where the data sets of the package are, which say by `holds_truth` what they hold."""


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
    """The data set that a spec names; `truth` says that the truth of a task is understood."""
    expanded, region = _without_region(spec)
    try:
        dataset: Dataset = build_source("dataset", expanded)()
    except BoundsError as error:
        name, path, given = plugins.parse(expanded)
        # Only an archive has options for bounds that could be proposed.
        if name != "npz":
            raise

        def write(options: Mapping[str, Any]) -> str:
            return f"npz:{path}?{'&'.join(f'{key}={value}' for key, value in (given | dict(options)).items())}"

        refusal = explain(error, write)
        if refusal.instead is not None:
            # The remedy replaces the spec as the user typed it.
            refusal.instead = spec, refusal.instead[1]
        raise refusal from None
    # A caller that knows no tasks needs one class for each input.
    if not truth:
        check_labelled(dataset)
    return dataset if region is None else restrict(dataset, region)


def _without_region(spec: str) -> tuple[str, str | None]:
    """The full spec of data without the part that attacks may change, and that part."""
    expanded = expand_spec("dataset", spec)
    region = plugins.parse(expanded).options.get(REGION)
    return expanded if region is None else plugins.with_options(expanded, {REGION: None}), region


def has_truth(data: Any) -> bool:
    """True for data with the truth of a task: a spec, or what was given in memory.

    The data sets of the package declare it by `holds_truth`. Those of others need not: then the
    data are opened, and `info.truth` says it.
    """
    if not isinstance(data, str) or data.startswith(f"{IN_MEMORY}:"):
        return isinstance(data, Dataset) and data.info.truth is not None

    expanded, _ = _without_region(data)
    try:
        source = build_source("dataset", expanded)
        if hasattr(source, "holds_truth") or type(source).__module__.startswith(OWN):
            return bool(getattr(source, "holds_truth", False))
        return source().info.truth is not None
    except RequestError:
        # The study opens the data as well, and lists all mistakes of its request at once.
        return False


def check_labelled(dataset: Dataset) -> None:
    """Refuse data with the truth of a task, where one class for each input is expected."""
    truth = dataset.info.truth
    if truth is not None:
        subjects = {"segmentation": "a mask", "detection": "objects"}
        subject = subjects.get(truth.task, f"the truth of {truth.task}")
        raise RequestError(
            f"{dataset.name} holds {subject} for each picture, and here one class "
            "for each input is needed: brinell audit and "
            "brinell transfer take such data"
        )
