"""The adversarial examples of a run as data to explain, with what an attack on patches left of each of them.

Where distortions were placed is the attack's own mask: the places without which it would not have been fooled. The sensitivity
map says how far each patch alone is expected to move the margin (docs/rlab.md). Both cost what the attack cost.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.analysis.masks import placed, sensitivity
from brinell.core.contracts import Dataset, Model
from brinell.core.errors import RequestError
from brinell.core.record import Array, Outcome
from brinell.engine.plan import make_plan
from brinell.engine.request import Request
from brinell.engine.toml import make_request
from brinell.engine.trust import MARK, check
from brinell.store.run import Run

PLACED, SENSITIVITY = "placed", "sensitivity"
"""Names of the attack's mask and of its map, as methods."""
TITLES = {
    PLACED: "Where the attack placed distortions",
    SENSITIVITY: "How far each patch alone moves the margin, as the attack expects",
}


class Left(NamedTuple):
    """What an attack left of one sample, by name of the method."""

    maps: dict[str, Array]
    """(*places) float32."""
    forwards: int


class Adversarial:
    """A data set in which samples that were fooled are their adversarial examples.

    Args:
        run: the run.
        dataset: its data.
        model: name of the model that was attacked.
    """

    def __init__(self, run: Run, dataset: Dataset, model: str) -> None:
        self._run, self._dataset, self._model = run, dataset, model
        self.name, self.domain, self.classes, self.info = dataset.name, dataset.domain, dataset.classes, dataset.info
        records = run.records()
        rows = np.flatnonzero((records.model == model) & (records.outcome == Outcome.FOOLED))
        rows = rows[np.argsort(records.eps[rows], kind="stable")]
        ids, first = np.unique(records.sample_id[rows], return_index=True)
        self.ids = ids.astype(np.int64)
        """(n,) the samples that were fooled, ascending."""
        self._by = {
            int(i): (str(records.attack[row]), int(records.forwards[row])) for i, row in zip(ids, rows[first], strict=True)
        }

    def __len__(self) -> int:
        return len(self._dataset)

    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """(n,) int64: the true classes."""
        return self._dataset.labels()

    def digest(self) -> str:
        """That of the clean data; the manifest names the run besides."""
        return self._dataset.digest()

    def load(self, indices: Sequence[int]) -> Tensor:
        """(len(indices), *shape): the adversarial examples at the smallest eps."""
        found: dict[int, Array] = {}
        for attack in dict.fromkeys(self._by[sample][0] for sample in indices if sample in self._by):
            mine = [sample for sample in indices if self._by.get(sample, ("", 0))[0] == attack]
            found |= self._run.adversarial(self._model, attack, mine)
        clean = {sample: one.numpy() for sample, one in self._clean([sample for sample in indices if sample not in found])}
        return torch.as_tensor(np.stack([(found | clean)[sample] for sample in indices]))

    def _clean(self, indices: Sequence[int]) -> list[tuple[int, Tensor]]:
        return list(zip(indices, self._dataset.load(indices), strict=True)) if indices else []

    def left(self, sample: int) -> Left:
        """The maps that the attack left of a sample; none where it placed nothing on patches."""
        attack, forwards = self._by[sample]
        maps = {}
        standing = placed(self._run, self._model, attack, [sample]).get(sample)
        expected = sensitivity(self._run, self._model, attack, [sample]).get(sample)
        if standing is not None:
            maps[PLACED] = (standing.mask() >= 0).astype(np.float32)
            if expected is not None:
                spread = np.zeros(standing.lattice.lengths, dtype=np.float32)
                for where, value in zip(standing.lattice.slices(), expected.max(-1).ravel(), strict=True):
                    spread[where] = np.maximum(spread[where], value)
                maps[SENSITIVITY] = spread
        return Left(maps, forwards)


def opened_run(path: str, trust: Path | str | None) -> tuple[Adversarial, Model]:
    """The adversarial examples of a run and the model that they fool: the first of the run.

    Raises:
        RequestError: a run that is not finished, comes from elsewhere, fooled nothing, or whose data are other ones now.
    """
    run = Run.open(path)
    if run.manifest["state"] != "finished":
        raise RequestError(f"{run.path} is not finished: go on with brinell audit --resume --out {run.path} first")
    check(run.manifest["request"], Request, run.path, run.manifest.get(MARK), trust=trust)
    plan = make_plan(make_request(run.manifest["request"]))
    if plan.data_digest != run.manifest["data"]["digest"]:
        raise RequestError(f"{plan.dataset.name} is not the data of {run.path}: its digest differs")
    found = Adversarial(run, plan.dataset, plan.models[0].name)
    if not len(found.ids):
        raise RequestError(f"no sample of {run.path} was fooled: there is no adversarial example to explain")
    return found, plan.models[0].open()
