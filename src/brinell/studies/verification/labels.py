"""Compares the labels of a run with its data, without the model."""

import functools
from contextlib import chdir
from pathlib import Path

import numpy as np

from brinell.core.contracts import Dataset
from brinell.core.errors import BrinellError
from brinell.core.record import CLEAN, Array
from brinell.engine.request import IN_MEMORY
from brinell.engine.sources import open_data
from brinell.store.differences import Comparison
from brinell.store.run import Run
from brinell.store.trust import MARK, find_origin, request_text


def check_labels(run: Run, trust: Path | None, comparison: Comparison) -> str:
    """Note samples whose label is not that of the data.

    Args:
        run: the run, whose files are checked.
        trust: a folder from elsewhere whose data may be opened.
        comparison: collects problems.

    Returns:
        Why the data were not opened; empty if they were.
    """
    spec = str(run.manifest["request"]["data"])
    if spec.startswith(IN_MEMORY):
        return "the data were in memory"
    origin = find_origin(run.path, request_text(run.manifest), run.manifest.get(MARK), trust)
    if origin is None:
        return "the folder is from elsewhere, and nobody said that its data may be opened"
    try:
        digest, labels = _labels(spec, str(origin))
    except BrinellError as error:
        return str(error)
    if digest != run.manifest["data"]["digest"]:
        comparison.note("data", "they are not the data of the run: the digest differs")
        return ""
    for model in run.manifest["models"]:
        rows = run.part(str(model["name"]), CLEAN)
        known = np.append(labels, -1)[np.minimum(rows.sample_id, len(labels))]
        if (wrong := rows.sample_id[rows.label != known]).size:
            comparison.note(f"{model['name']} {CLEAN}", "the row's label is not that of the data", wrong.tolist())
    return ""


@functools.lru_cache(maxsize=16)
def _labels(spec: str, directory: str) -> tuple[str, Array]:
    """Digest and labels of data, which many runs share."""
    with chdir(directory):
        dataset: Dataset = open_data(spec)
        return dataset.digest(), np.asarray(dataset.labels(), dtype=np.int64)
