"""Adversarial examples of a run as data to explain, with the maps in the records of an attack on patches.

The mask of an attack contains the patches on which it placed distortions. The sensitivity map contains the expected change of
the margin by each patch alone (docs/results/rlab.md). Both maps have the cost of the attack.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.analysis.masks import placements_of, sensitivity
from brinell.core.contracts import Dataset, Model
from brinell.core.errors import RequestError
from brinell.core.record import Array, has_broken
from brinell.engine.plan import make_plan
from brinell.engine.request import Request
from brinell.engine.toml import parse_request
from brinell.store.run import Run
from brinell.store.trust import check_manifest

PLACED, SENSITIVITY = "placed", "sensitivity"
"""Method names of the attack's mask and of its sensitivity map."""
TITLES = {
    PLACED: "Patches on which the attack placed distortions",
    SENSITIVITY: "Change of the margin that the attack expects of each patch alone",
}


class AttackMaps(NamedTuple):
    """Maps of one sample in the records of an attack."""

    maps: dict[str, Array]
    """(*places) float32 by name of the method; empty if the attack placed no distortion."""
    forwards: int
    """Forward passes of the attack."""


class AdversarialDataset:
    """A data set in which each fooled sample is replaced by its adversarial example at the smallest eps.

    Args:
        run: the run.
        dataset: the data of the run.
        model: name of the attacked model.
    """

    def __init__(self, run: Run, dataset: Dataset, model: str) -> None:
        self._run, self._dataset, self._model = run, dataset, model
        self.name, self.domain, self.classes, self.info = dataset.name, dataset.domain, dataset.classes, dataset.info
        self.labels, self.digest = dataset.labels, dataset.digest  # the manifest also names the run
        records = run.records()
        rows = np.flatnonzero((records.model == model) & has_broken(records))
        rows = rows[np.argsort(records.broken[rows], kind="stable")]
        ids, first = np.unique(records.sample_id[rows], return_index=True)
        self.ids = ids.astype(np.int64)
        """(n,) positions of the fooled samples, ascending."""
        self._attacks = {
            int(sample): (str(records.attack[row]), int(records.forwards[row]))
            for sample, row in zip(ids, rows[first], strict=True)
        }

    def __len__(self) -> int:
        return len(self._dataset)

    def load(self, indices: Sequence[int]) -> Tensor:
        """(len(indices), *shape): the adversarial examples; clean inputs of samples without one."""
        x = self._dataset.load(indices).clone()
        for place, sample in enumerate(indices):
            attack, _ = self._attacks.get(sample, ("", 0))
            if attack and sample in (examples := self._run.adversarial(self._model, attack, [sample])):
                x[place] = torch.as_tensor(examples[sample])
        return x

    def attack_maps(self, sample: int) -> AttackMaps:
        """The maps of a sample in the records of the attack; none if the attack placed no distortion."""
        attack, forwards = self._attacks[sample]
        maps = {}
        placements = placements_of(self._run, self._model, attack, [sample]).get(sample)
        expected = sensitivity(self._run, self._model, attack, [sample]).get(sample)
        if placements is not None:
            maps[PLACED] = (placements.mask() >= 0).astype(np.float32)
            if expected is not None:
                largest = np.zeros(placements.lattice.lengths, dtype=np.float32)
                for patch, value in zip(placements.lattice.slices(), expected.max(-1).ravel(), strict=True):
                    largest[patch] = np.maximum(largest[patch], value)
                maps[SENSITIVITY] = largest
        return AttackMaps(maps, forwards)


def open_adversarial(path: str, trust: Path | str | None) -> tuple[AdversarialDataset, Model]:
    """Open the adversarial examples of a run, and the first model of the run, which they fool.

    Raises:
        RequestError: the run is untrusted or without a fooled sample, or its data have changed.
    """
    run = Run.open(path)
    check_manifest(run.path, run.manifest, trust)
    plan = make_plan(parse_request(Request, run.manifest["request"]))
    if plan.data_digest != run.manifest["data"]["digest"]:
        raise RequestError(f"{plan.dataset.name} is not the data of {run.path}: its digest differs")
    adversarial = AdversarialDataset(run, plan.dataset, plan.models[0].name)
    if not len(adversarial.ids):
        raise RequestError(f"{run.path} contains no adversarial example to explain: no sample was fooled")
    return adversarial, plan.models[0].open()
