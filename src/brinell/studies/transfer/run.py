"""Carries out `brinell transfer`: makes or reads each source's examples, and shows them to every model."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.batch import Batch
from brinell.core.contracts import reach_of
from brinell.core.criterion import MISCLASSIFIED, Worst
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.norms import l2, linf
from brinell.core.record import Array, Outcome
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.datasets.bench import Bench, pairs_of
from brinell.engine.answers import settled
from brinell.engine.progress import Progress
from brinell.engine.shard import predict, session
from brinell.store import rows
from brinell.store.run import Run
from brinell.studies.transfer.ensemble import Ensemble
from brinell.studies.transfer.plan import Source, TransferPlan
from brinell.studies.transfer.records import LAYOUT, Answers, Transfer, save_examples


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
    cost: Mapping[str, float] = field(default_factory=dict)
    """Of made ones: forwards, backwards, seconds."""
    missing: int = 0
    """Samples of the source without an example."""


def make(plan: TransferPlan, folder: Path, progress: Progress, *, command: str) -> Transfer:
    """Make or read every source's examples, show them to every model, and write the folder.

    Raises:
        RequestError: the folder holds a transfer, or a source's data are not these models' data.
        StoppedError: the folder cannot be written.
    """
    LAYOUT.begin(folder)
    started = time.perf_counter()
    kept: dict[str, Any] = {}
    with LAYOUT.lock(folder), ExitStack() as stack:
        models: dict[str, Model] = {}
        for shown in plan.models:
            model = shown.open()
            stack.enter_context(session(model, plan.device))
            models[shown.name] = settled(model, plan.dataset, kept, plan.device, name=shown.name)
        _check_sets(plan)
        parts, told = [], []
        clean: dict[tuple[str, str], Array] = {}
        passes = 0
        for number, source in enumerate(plan.sources):
            progress.message(f"source {number + 1} of {len(plan.sources)}: {source.name}")
            examples = _examples(plan, source, models)
            if source.kind == "made":
                named = {str(one): x.numpy() for one, x in zip(examples.sample_id.tolist(), examples.x.cpu(), strict=True)}
                save_examples(folder, number, named)
            for name, model in models.items():
                answers, asked = _answered(plan, examples, name, model, clean)
                parts.append(answers)
                passes += asked
            told.append(_told(plan, examples))
        about = {
            "request": plan.request.model_dump(mode="json"),
            "command": command,
            "data": {"name": plan.dataset.name, "classes": list(plan.dataset.classes)},
            "distance": plan.distance.name,
            "eps": plan.eps,
            "eps_text": plan.eps_text,
            "attack": plan.stage.name if plan.stage else None,
            "title": plan.stage.title if plan.stage else None,
            "sources": told,
            "models": [{"name": one.name, **one.facts} for one in plan.models],
            "passes": passes,
            "seconds": time.perf_counter() - started,
        }
        return Transfer.make(folder, about, rows.concatenate(parts))


def _check_sets(plan: TransferPlan) -> None:
    """Refuse sets whose inputs are not of the models' domain, before anything is made."""
    for folder in dict.fromkeys(source.folder for source in plan.sources if source.kind == "set"):
        other = Bench(path=str(folder), level="clean")()
        holds, asked = (
            f"{one.kind}s of shape {one.shape} from {one.low} to {one.high}" for one in (other.domain, plan.dataset.domain)
        )
        if holds != asked:
            raise RequestError(f"{folder} holds {holds}, and the models are asked about {asked}: name models of these inputs")
        if other.classes != tuple(plan.dataset.classes):
            raise RequestError(f"the classes of {folder} are not those of {plan.dataset.name}: name the --data of this set")


def _told(plan: TransferPlan, examples: Examples) -> dict[str, Any]:
    source = examples.source
    facts = {one.name: one.facts["digest"] for one in plan.models}
    # By the digest, so that a retrained model of the same name is another; of a set, whose exact inputs have no levels any more
    # and so another domain, which is part of a digest, by the name as well.
    known = set(source.digests) or {facts[name] for name in source.members}
    names = set(source.members) if source.kind == "set" else set()
    return {
        "name": source.name,
        "kind": source.kind,
        "members": list(source.members),
        "white_box": [name for name, digest in facts.items() if digest in known or name in names],
        "level": source.level,
        "n": len(examples.label),
        "missing": examples.missing,
        "folder": None if source.folder is None else str(source.folder),
        **{key: examples.cost.get(key, 0) for key in ("forwards", "backwards", "seconds")},
    }


def _examples(plan: TransferPlan, source: Source, models: Mapping[str, Model]) -> Examples:
    if source.kind == "made":
        return _made(plan, source, models)
    return _of_set(source) if source.kind == "set" else _of_run(plan, source)


def _made(plan: TransferPlan, source: Source, models: Mapping[str, Model]) -> Examples:
    """The input of the largest margin that the attack finds of each sample within eps; of a minimal attack the closest."""
    assert plan.stage is not None
    started = time.perf_counter()
    members = [models[name] for name in source.members]
    model = members[0] if len(members) == 1 else Ensemble(members)
    clean = plan.dataset.load(plan.ids.tolist()).to(plan.device)
    labels = torch.as_tensor(plan.labels, device=plan.device)
    minimal = plan.stage.attack.family == "minimal"
    x, forwards, backwards = [], 0, 0
    for at in _parts(len(clean), plan.request.batch_size):
        here, eps = clean[at], torch.full((at.stop - at.start,), plan.eps, device=plan.device)
        criterion = MISCLASSIFIED if minimal else Worst(MISCLASSIFIED)
        ledger = Ledger(
            model,
            Batch(ids=torch.arange(len(here), device=plan.device), x=here, y=labels[at]),
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
        found = ledger.fooled.reshape(-1, *[1] * (here.ndim - 1))
        x.append(torch.where(found, ledger.closest, ledger.strongest))
        forwards, backwards = forwards + int(ledger.forwards.sum()), backwards + int(ledger.backwards.sum())
    return Examples(
        source=source,
        sample_id=plan.ids,
        label=plan.labels,
        distortion=[""] * len(plan.ids),
        clean=clean,
        x=torch.cat(x),
        cost={"forwards": forwards, "backwards": backwards, "seconds": time.perf_counter() - started},
    )


def _of_set(source: Source) -> Examples:
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


def _of_run(plan: TransferPlan, source: Source) -> Examples:
    """The closest adversarial example within eps of each sample that has one, over all stages."""
    assert source.folder is not None
    run, (name,) = Run.open(source.folder), source.members
    if run.manifest["data"]["digest"] != plan.dataset.digest():
        raise RequestError(
            f"{plan.dataset.name} is not the data of {source.folder}, which is {run.manifest['data']['spec']}: name it by --data"
        )
    records = run.records()
    mine = (records.model == name) & (records.outcome == Outcome.FOOLED) & (records.radius <= plan.eps * (1 + 1e-9))
    best: dict[int, tuple[float, str]] = {}
    for sample, eps, stage in zip(
        records.sample_id[mine].tolist(), records.eps[mine].tolist(), records.attack[mine], strict=True
    ):
        best[sample] = min(best.get(sample, (eps, str(stage))), (eps, str(stage)))
    held: dict[int, Array] = {}
    for stage in {stage for _, stage in best.values()}:
        held |= run.adversarial(name, stage, [sample for sample, (_, of) in best.items() if of == stage])
    ids = np.array(sorted(held), dtype=np.int64)
    if not len(ids):
        raise RequestError(
            f"{source.folder} holds no adversarial example of {name} within {plan.eps_text}: give a larger --eps, or leave it out"
        )
    return Examples(
        source=source,
        sample_id=ids,
        label=np.asarray(plan.dataset.labels(), dtype=np.int64)[ids],
        distortion=[""] * len(ids),
        clean=plan.dataset.load(ids.tolist()),
        x=torch.as_tensor(np.stack([held[sample] for sample in ids.tolist()])),
        missing=len(np.unique(records.sample_id[records.model == name])) - len(ids),
    )


def _answered(
    plan: TransferPlan, examples: Examples, name: str, model: Model, clean: dict[tuple[str, str], Array]
) -> tuple[Answers, int]:
    """What one model makes of a source's examples, and how many inputs it was shown; `clean` keeps its answers to clean ones."""
    where = str(examples.source.folder) if examples.source.kind == "set" else "data"
    n = 1 + int(examples.sample_id.max())
    known = clean.get((where, name), np.full(0, -1))
    known = np.concatenate([known, np.full(max(n - len(known), 0), -1)])
    unknown = np.flatnonzero(known[examples.sample_id] < 0)
    size = plan.request.batch_size
    if len(unknown):
        known[examples.sample_id[unknown]] = _classes(model, examples.clean[torch.as_tensor(unknown)], size, plan.device)
    clean[where, name] = known
    change = examples.x.cpu() - examples.clean.cpu()
    answers = rows.build(
        Answers,
        len(examples.label),
        source=examples.source.name,
        model=name,
        sample_id=examples.sample_id,
        label=examples.label,
        distortion=np.array(examples.distortion, dtype=object),
        linf=linf(change).numpy(),
        l2=l2(change).numpy(),
        clean_pred=known[examples.sample_id],
        pred=_classes(model, examples.x, size, plan.device),
    )
    return answers, len(unknown) + len(examples.label)


def _classes(model: Model, x: Tensor, size: int, device: torch.device) -> Array:
    found: Array = predict(model, x.to(device), size).argmax(1).cpu().numpy()
    return found


def _parts(n: int, size: int) -> Iterator[slice]:
    """Slices of some batches each, so that a ledger's copies stay small."""
    step = 4 * size
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
