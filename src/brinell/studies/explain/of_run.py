"""Adversarial examples of a run as data to explain."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Dataset, Model
from brinell.core.errors import RequestError
from brinell.engine.plan import make_plan
from brinell.engine.request import Request
from brinell.engine.toml import parse_request
from brinell.store import rows
from brinell.store.run import Run
from brinell.store.trust import check_manifest


class AdversarialDataset:
    """The data of a run, in which each fooled sample is replaced by its adversarial example at the
    smallest eps.
    """

    def __init__(self, run: Run, dataset: Dataset, model: str) -> None:
        self._run, self._dataset = run, dataset
        self.name, self.domain, self.classes = dataset.name, dataset.domain, dataset.classes
        self.info, self.labels = dataset.info, dataset.labels
        # That of the data: the manifest also names the run.
        self.digest = dataset.digest
        self._closest = run.closest(model)
        self.ids = self._closest.sample_id.astype(np.int64)
        """(n,) positions of the fooled samples, ascending."""

    def __len__(self) -> int:
        return len(self._dataset)

    def load(self, indices: Sequence[int]) -> Tensor:
        """(len(indices), *shape): adversarial examples; clean inputs of samples without one."""
        x = self._dataset.load(indices).clone()
        broken = rows.take(self._closest, np.isin(self._closest.sample_id, indices))
        examples = self._run.inputs_of(broken)
        for place, sample in enumerate(indices):
            if sample in examples:
                x[place] = torch.as_tensor(examples[sample])
        return x


def open_adversarial(
    path: str, trust: Path | str | None, models: Sequence[Model] = ()
) -> tuple[AdversarialDataset, Model]:
    """Open the adversarial examples of a run, and the model to explain on them.

    Args:
        path: the folder of the run.
        trust: a folder from elsewhere that may be used.
        models: the model in memory; by default the first one of the run. The examples are those of
            the run's model of the same digest or name, or of its first one.

    Raises:
        RequestError: other data than the run's, or no example.
    """
    run = Run.open(path)
    check_manifest(run.path, run.manifest, trust)
    # The request of the run opens the same samples again, with the same budgets.
    plan = make_plan(parse_request(Request, run.manifest["request"]), models=tuple(models))
    if plan.data_digest != run.manifest["data"]["digest"]:
        raise RequestError(f"{plan.dataset.name} is not the data of {run.path}: its digest differs")

    model = models[0] if models else plan.models[0].open()
    entries = run.manifest["models"]
    same = [entry["name"] for entry in entries if entry["digest"] == model.digest()]
    same += [entry["name"] for entry in entries if entry["name"] == model.name]
    # A model of the same weights, else one of the same name, else the first.
    adversarial = AdversarialDataset(run, plan.dataset, [*same, entries[0]["name"]][0])
    if not len(adversarial.ids):
        raise RequestError(
            f"{run.path} contains no adversarial example to explain: no sample was fooled"
        )
    return adversarial, model
