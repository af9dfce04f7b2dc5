"""The examples of a source beside their clean inputs: made here, of a run, or of a benchmark set."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import reach_of
from brinell.core.criterion import MISCLASSIFIED, Worst
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model, ModelInfo
from brinell.core.oracle import Batch
from brinell.core.record import Array, Outcome
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.datasets.bench import Bench, pairs_of
from brinell.store.run import Run
from brinell.studies.transfer.plan import Source, TransferPlan


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of one source beside the clean inputs that they were made from."""

    source: Source
    sample_id: Array
    """(n,) int64: positions in the data, of a set in its source data's order of clean inputs."""
    label: Array
    """(n,) int64."""
    distortion: list[str]
    clean: Tensor
    """(n, *shape)."""
    x: Tensor
    """(n, *shape)."""
    missing: int = 0
    """Samples of the source without an example."""


def check_sets(plan: TransferPlan) -> None:
    """Refuse sets whose inputs are not of the models' domain, before anything is made."""
    for folder in dict.fromkeys(source.folder for source in plan.sources if source.kind == "set"):
        other = Bench(path=str(folder), level="clean")()
        holds, asked = (
            f"{one.kind}s of shape {one.shape} from {one.low} to {one.high}" for one in (other.domain, plan.dataset.domain)
        )
        if holds != asked:
            raise RequestError(f"{folder} holds {holds}, and the models are asked about {asked}: name models of these inputs")
        if other.classes != tuple(plan.dataset.classes):
            raise RequestError(
                f"the classes of {folder} are not those of {plan.dataset.name}: name the {option('data')} of this set"
            )


def make_slice(plan: TransferPlan, source: Source, models: Mapping[str, Model], at: slice) -> tuple[Tensor, dict[str, Any]]:
    """The input of the largest margin that the attack finds of each sample within eps; of a minimal attack the closest.

    Returns:
        (at, *shape), and the forwards and backwards that it took.
    """
    assert plan.stage is not None
    members = [models[name] for name in source.members]
    model = members[0] if len(members) == 1 else Ensemble(members)
    clean = plan.dataset.load(plan.ids[at].tolist()).to(plan.device)
    minimal = plan.stage.attack.family == "minimal"
    criterion = MISCLASSIFIED if minimal else Worst(MISCLASSIFIED)
    eps = torch.full((len(clean),), plan.eps, device=plan.device)
    ledger = Ledger(
        model,
        Batch(ids=torch.arange(len(clean), device=plan.device), x=clean, y=torch.as_tensor(plan.labels[at], device=plan.device)),
        Threat(distance=plan.distance, eps=eps, domain=plan.dataset.domain, criterion=criterion),
        access=plan.stage.attack.access,
        batch_size=plan.request.batch_size,
        minimal=minimal,
        reach=reach_of(plan.stage.attack, plan.distance.name),
        eot=plan.stage.eot,
        strongest=True,
    )
    rng = Streams.of(plan.request.seed, torch.as_tensor(plan.ids[at], device=plan.device)).fold(plan.stage.name)
    plan.stage.attack(ledger.oracle(), ledger.batch, ledger.threat, rng)
    found = ledger.fooled.reshape(-1, *[1] * (clean.ndim - 1))
    cost = {"forwards": int(ledger.costs.forwards.sum()), "backwards": int(ledger.costs.backwards.sum())}
    return torch.where(found, ledger.best.closest, ledger.best.strongest), cost


def place_of(source: Source) -> str:
    """Whose clean inputs those of a source are."""
    return str(source.folder) if source.kind == "set" else "data"


def ids_of(plan: TransferPlan, source: Source) -> Array:
    """(n,) the samples of which a source has examples."""
    if source.kind == "made":
        return plan.ids
    if source.kind == "set":
        assert source.folder is not None and source.level is not None
        return np.array([one for one, _, _ in pairs_of(source.folder, source.level)], dtype=np.int64)
    return np.array(sorted(closest(plan, source)), dtype=np.int64)


def clean_of(plan: TransferPlan, source: Source, ids: Array) -> Tensor:
    """(n, *shape): the clean inputs of samples of a source."""
    if source.kind == "set":
        return Bench(path=str(source.folder), level="clean")().load(ids.tolist())
    return plan.dataset.load(ids.tolist())


def of_set(source: Source) -> Examples:
    """The adversarial examples of a benchmark set at the level of its source, beside the clean inputs of the set."""
    assert source.folder is not None and source.level is not None
    folder = str(source.folder)
    pairs = pairs_of(source.folder, source.level)
    if not pairs:
        raise RequestError(f"{folder} holds no input at level {source.level:g} with a clean counterpart: make the set again")
    level = "adversarial" if source.level == 1 else f"{source.level:g}"
    clean, changed = Bench(path=folder, level="clean")(), Bench(path=folder, level=level)()
    labels = np.asarray(clean.labels(), dtype=np.int64)
    at = [one for one, _, _ in pairs]
    return Examples(
        source=source,
        sample_id=np.array(at, dtype=np.int64),
        label=labels[at],
        distortion=[placed for _, _, placed in pairs],
        clean=clean.load(at),
        x=changed.load([two for _, two, _ in pairs]),
        missing=len(labels) - len(pairs),
    )


def closest(plan: TransferPlan, source: Source) -> dict[int, tuple[float, str]]:
    """The smallest eps at which each sample of a run was fooled within eps, and by which stage."""
    assert source.folder is not None
    run, (name,) = Run.open(source.folder), source.members
    if run.manifest["data"]["digest"] != plan.dataset.digest():
        raise RequestError(
            f"{plan.dataset.name} is not the data of {source.folder}, which is {run.manifest['data']['spec']}: "
            f"name it by {option('data')}"
        )
    records = run.records()
    mine = (records.model == name) & (records.outcome == Outcome.FOOLED) & (records.radius <= plan.eps * (1 + 1e-9))
    best: dict[int, tuple[float, str]] = {}
    for sample, eps, stage in zip(
        records.sample_id[mine].tolist(), records.eps[mine].tolist(), records.attack[mine], strict=True
    ):
        best[sample] = min(best.get(sample, (eps, str(stage))), (eps, str(stage)))
    if not best:
        raise RequestError(
            f"{source.folder} holds no adversarial example of {name} within {plan.eps_text}: give a larger "
            f"{option('eps')}, or leave it out"
        )
    return best


def of_run(plan: TransferPlan, source: Source) -> Examples:
    """The closest adversarial example within eps of each sample that has one, over all stages."""
    assert source.folder is not None
    run, (name,), best = Run.open(source.folder), source.members, closest(plan, source)
    records, held = run.records(), dict[int, Array]()
    for stage in {stage for _, stage in best.values()}:
        held |= run.adversarial(name, stage, [sample for sample, (_, of) in best.items() if of == stage])
    ids = np.array(sorted(held), dtype=np.int64)
    return Examples(
        source=source,
        sample_id=ids,
        label=np.asarray(plan.dataset.labels(), dtype=np.int64)[ids],
        distortion=[""] * len(ids),
        clean=plan.dataset.load(ids.tolist()),
        x=torch.as_tensor(np.stack([held[sample] for sample in ids.tolist()])),
        missing=len(np.unique(records.sample_id[records.model == name])) - len(ids),
    )


class Ensemble:
    """A model whose logits are the mean of those of its members, which are ready to be asked.

    Dong et al. 2018, Boosting adversarial attacks with momentum, section 3.3, equation 7, with equal weights: of the three
    fusions that it compares, that of logits makes the examples that transfer best.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        """Join the members.

        Args:
            members: models over one domain.

        Raises:
            RequestError: they tell different numbers of classes apart.
        """
        if len({one.classes for one in members}) > 1:
            told = ", ".join(f"{one.name} {one.classes}" for one in members)
            raise RequestError(f"models that tell different numbers of classes apart cannot be attacked as one: {told}")
        self._members = tuple(members)
        self.name = "+".join(one.name for one in members)
        self.domain, self.classes = members[0].domain, members[0].classes
        self.access = Access(min(one.access for one in members))
        self.info = ModelInfo(answers="logits")

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) to the mean of the members' logits (n, classes)."""
        return torch.stack([one.predict(x) for one in self._members]).mean(0)

    def digest(self) -> str:
        """Over those of the members."""
        told = " ".join(one.digest() for one in self._members)
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
