"""Ground truth: the position of the object in each sample."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.analysis.saliency import IGNORED
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.datasets._files import npz_array, read_error
from brinell.explainers._asking import places_of


@dataclass(frozen=True, kw_only=True)
class GroundTruth:
    """Position of the object in each sample, and related samples."""

    masks: Array
    """(n, *places) uint8: 1 on the object, 0 off it, 255 ignored."""
    groups: Sequence[str]
    """(n,) group of each sample; empty without a group."""

    def has_both(self, ids: Array) -> Array:
        """(k,) bool of samples `ids` (k,): True where the mask has an object and a background."""
        masks = self.masks[ids].reshape(len(ids), -1)
        return np.asarray((masks == 1).any(1) & (masks == 0).any(1))


def open_truth(path: Path, dataset: Dataset) -> GroundTruth:
    """Open the ground truth of a data set."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if "masks" not in names:
                raise RequestError(
                    f"{path} has no array 'masks'; it has {', '.join(names) or 'none'}"
                )
            masks = npz_array(archive, "masks", path)
            groups = (
                npz_array(archive, "groups", path).tolist()
                if "groups" in names
                else [""] * len(masks)
            )
    except (OSError, zipfile.BadZipFile) as error:
        raise read_error(path, error) from None

    expected = (len(dataset), *places_of(dataset.domain))
    if masks.shape != expected or len(groups) != len(dataset):
        raise RequestError(
            f"masks in {path} have shape {masks.shape}, and the data need "
            f"{expected}: write one for each sample"
        )
    if extra := sorted(set(np.unique(masks).tolist()) - {0, 1, IGNORED}):
        raise RequestError(
            f"masks in {path} contain {extra[0]}: write 1 for the object, 0 for "
            "background, 255 for ignored places"
        )
    return GroundTruth(masks=masks.astype(np.uint8), groups=list(map(str, groups)))
