"""The examples of a source with their clean inputs: made here, read from a run, or read from a benchmark set."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import reach_of
from brinell.core.criterion import MISCLASSIFIED, Criterion, Worst
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model, ModelInfo
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.datasets.bench import Bench, pairs_of
from brinell.store.run import Run
from brinell.studies.transfer.plan import Source, TransferPlan


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of one source and the clean inputs that they were made from."""

    source: Source
    sample_id: Array
    """(n,) int64: positions in the data; for a benchmark set, positions among its clean inputs."""
    label: Array
    """(n,) int64: true classes."""
    distortion: list[str]
    """Distortions placed on each example, joined by +; empty for other attacks."""
    clean: Tensor
    """(n, *shape) clean inputs."""
    x: Tensor
    """(n, *shape) adversarial examples."""
    missing: int = 0
    """Samples of the source without an example."""


def check_sets(plan: TransferPlan) -> None:
    """Check that every benchmark set has the domain and the classes of the plan's data.

    Raises:
        RequestError: the inputs or the classes of a set differ.
    """
    for folder in dict.fromkeys(source.folder for source in plan.sources if source.kind == "set"):
        bench = Bench(path=str(folder), level="clean")()
        set_inputs, model_inputs = (
            f"{domain.kind}s of shape {domain.shape} from {domain.low} to {domain.high}"
            for domain in (bench.domain, plan.dataset.domain)
        )
        if set_inputs != model_inputs:
            raise RequestError(
                f"{folder} holds {set_inputs}, but the models take {model_inputs}: pass models that take the inputs of the set"
            )
        if bench.classes != tuple(plan.dataset.classes):
            raise RequestError(
                f"the classes of {folder} differ from those of {plan.dataset.name}: pass the set's data with {option('data')}"
            )


def make_slice(plan: TransferPlan, source: Source, models: Mapping[str, Model], rows: slice) -> tuple[Tensor, dict[str, Any]]:
    """Attack a slice of the samples, and return the strongest input within eps for each of them.

    The strongest input has the largest margin; a minimal attack returns the closest adversarial example if it finds one.

    Args:
        plan: the plan, with an attack.
        source: the source, whose members are attacked; several are attacked as one `Ensemble`.
        models: models by name, in a `session`.
        rows: positions in `plan.ids`.

    Returns:
        (rows, *shape) inputs, and their cost: `forwards` and `backwards`.
    """
    assert plan.stage is not None
    members = [models[name] for name in source.members]
    model = members[0] if len(members) == 1 else Ensemble(members)
    clean = plan.dataset.load(plan.ids[rows].tolist()).to(plan.device)
    minimal = plan.stage.attack.family == "minimal"
    criterion: Criterion = plan.threshold or MISCLASSIFIED
    criterion = criterion if minimal else Worst(criterion)
    eps = torch.full((len(clean),), plan.eps, device=plan.device)
    ledger = Ledger(
        model,
        Batch(
            ids=torch.arange(len(clean), device=plan.device), x=clean, y=torch.as_tensor(plan.labels[rows], device=plan.device)
        ),
        Threat(distance=plan.distance, eps=eps, domain=plan.dataset.domain, criterion=criterion),
        access=plan.stage.attack.access,
        batch_size=plan.request.batch_size,
        minimal=minimal,
        reach=reach_of(plan.stage.attack, plan.distance.name),
        eot=plan.stage.eot,
        strongest=True,
    )
    rng = Streams.of(plan.request.seed, torch.as_tensor(plan.ids[rows], device=plan.device)).fold(plan.stage.name)
    plan.stage.attack(ledger.oracle(), ledger.batch, ledger.threat, rng)
    fooled = ledger.fooled.reshape(-1, *[1] * (clean.ndim - 1))
    cost = {"forwards": int(ledger.costs.forwards.sum()), "backwards": int(ledger.costs.backwards.sum())}
    return torch.where(fooled, ledger.best.closest, ledger.best.strongest), cost


def clean_origin(source: Source) -> str:
    """The origin of a source's clean inputs: the folder of a benchmark set, or "data"."""
    return str(source.folder) if source.kind == "set" else "data"


def sample_ids(plan: TransferPlan, source: Source) -> Array:
    """(n,) int64: the samples of which a source has examples."""
    if source.kind == "made":
        return plan.ids
    if source.kind == "set":
        assert source.folder is not None and source.level is not None
        return np.array([clean_index for clean_index, _, _ in pairs_of(source.folder, source.level)], dtype=np.int64)
    return np.array(sorted(closest_examples(plan, source)), dtype=np.int64)


def load_clean(plan: TransferPlan, source: Source, ids: Array) -> Tensor:
    """Load the clean inputs (n, *shape) of samples of a source."""
    if source.kind == "set":
        return Bench(path=str(source.folder), level="clean")().load(ids.tolist())
    return plan.dataset.load(ids.tolist())


def read_set(source: Source) -> Examples:
    """Read the adversarial examples of a benchmark set at the level of the source, with their clean inputs.

    Raises:
        RequestError: the set holds no such examples.
    """
    assert source.folder is not None and source.level is not None
    folder = str(source.folder)
    pairs = pairs_of(source.folder, source.level)
    if not pairs:
        raise RequestError(f"{folder} holds no input at level {source.level:g} with a clean counterpart: create the set again")
    level = "adversarial" if source.level == 1 else f"{source.level:g}"
    clean, changed = Bench(path=folder, level="clean")(), Bench(path=folder, level=level)()
    labels = np.asarray(clean.labels(), dtype=np.int64)
    clean_rows = [clean_index for clean_index, _, _ in pairs]
    return Examples(
        source=source,
        sample_id=np.array(clean_rows, dtype=np.int64),
        label=labels[clean_rows],
        distortion=[distortion for _, _, distortion in pairs],
        clean=clean.load(clean_rows),
        x=changed.load([adversarial_index for _, adversarial_index, _ in pairs]),
        missing=len(labels) - len(pairs),
    )


def closest_examples(plan: TransferPlan, source: Source) -> dict[int, tuple[float, str]]:
    """For each sample of a run that has an adversarial example within eps: its smallest eps, and the stage that reached it.

    Raises:
        RequestError: the run is over other data, or holds no adversarial example within eps.
    """
    assert source.folder is not None
    run, (name,) = Run.open(source.folder, thresholds=True), source.members
    if run.manifest["data"]["digest"] != plan.dataset.digest():
        raise RequestError(
            f"{plan.dataset.name} is not the data of {source.folder}: pass {option('data')} {run.manifest['data']['spec']}"
        )
    records = run.records()
    radius = np.ma.filled(records.broken * records.unit, np.inf)
    mask = (records.model == name) & (radius <= plan.eps * (1 + 1e-9))
    best: dict[int, tuple[float, str]] = {}
    for sample, eps, stage in zip(
        records.sample_id[mask].tolist(), records.broken[mask].tolist(), records.attack[mask], strict=True
    ):
        best[sample] = min(best.get(sample, (eps, str(stage))), (eps, str(stage)))
    if not best:
        raise RequestError(
            f"{source.folder} holds no adversarial example of {name} within {plan.eps_text}: pass a larger "
            f"{option('eps')}, or omit it"
        )
    return best


def read_run(plan: TransferPlan, source: Source) -> Examples:
    """Read the closest adversarial example within eps, over all stages, of each sample of a run that has one."""
    assert source.folder is not None
    run, (name,), best = Run.open(source.folder, thresholds=True), source.members, closest_examples(plan, source)
    records, inputs = run.records(), dict[int, Array]()
    for stage in {stage for _, stage in best.values()}:
        inputs |= run.adversarial(name, stage, [sample for sample, (_, best_stage) in best.items() if best_stage == stage])
    ids = np.array(sorted(inputs), dtype=np.int64)
    return Examples(
        source=source,
        sample_id=ids,
        label=np.asarray(plan.dataset.labels(), dtype=np.int64)[ids],
        distortion=[""] * len(ids),
        clean=plan.dataset.load(ids.tolist()),
        x=torch.as_tensor(np.stack([inputs[sample] for sample in ids.tolist()])),
        missing=len(np.unique(records.sample_id[records.model == name])) - len(ids),
    )


class Ensemble:
    """A model whose logits are the mean of its members' logits.

    Dong et al. 2018, Boosting adversarial attacks with momentum, section 3.3, equation 7, with equal weights. Of the three
    fusions that the paper compares, the fusion of logits makes the examples that transfer best.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        """Create an ensemble.

        Args:
            members: models over one domain, each in a `session`.

        Raises:
            RequestError: the members have different numbers of classes.
        """
        if len({member.classes for member in members}) > 1:
            counts = ", ".join(f"{member.name} {member.classes}" for member in members)
            raise RequestError(f"models with different numbers of classes cannot be attacked as one: {counts}")
        self._members = tuple(members)
        self.name = "+".join(member.name for member in members)
        self.domain, self.classes = members[0].domain, members[0].classes
        self.access = Access(min(member.access for member in members))
        self.info = ModelInfo(answers="logits")

    def predict(self, x: Tensor) -> Tensor:
        """Mean of the members' logits, (n, classes), for inputs x (n, *shape)."""
        return torch.stack([member.predict(x) for member in self._members]).mean(0)

    def digest(self) -> str:
        """Hash of the members' digests."""
        digests = " ".join(member.digest() for member in self._members)
        return hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()
