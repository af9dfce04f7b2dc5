"""Carries out `brinell corrupt`: corrupts the samples, shows them to every model, and has RLAB place the same if asked."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.attacks.rlab import RLAB
from brinell.core.contracts import Access, Dataset, Distortion
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.norms import l2
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.distortions._published import Published
from brinell.engine.answers import settled
from brinell.engine.plan import check_classes, check_names, choose_device, facts_of, gaps, open_data, open_distance, opener_of
from brinell.engine.progress import Progress
from brinell.engine.selection import choose
from brinell.engine.shard import predict, session
from brinell.rlab.variants import SEVERITIES, distorted
from brinell.store import rows
from brinell.store.files import write_atomically
from brinell.store.table import Folder
from brinell.studies.corruption import page
from brinell.studies.corruption.analysis import FIFTEEN, summarise
from brinell.studies.corruption.records import LAYOUT, TABLE, Answers
from brinell.studies.corruption.request import CorruptRequest
from brinell.studies.corruption.results import CorruptResult
from brinell.studies.kit import Call

CLEAN = "clean"


@dataclass(frozen=True, kw_only=True)
class CorruptPlan:
    """What is corrupted how, resolved."""

    request: CorruptRequest
    dataset: Dataset
    ids: Array
    """(n,) int64."""
    labels: Array
    """(n,) int64."""
    kinds: Mapping[str, Distortion]
    severities: tuple[int, ...]
    models: tuple[tuple[str, Callable[[], Model], Mapping[str, Any]], ...]
    """Name, how to open it, and what is known of it."""
    device: torch.device


def make_plan(request: CorruptRequest, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()) -> CorruptPlan:
    """Resolve a request; `dataset` and `models` are in place of those that it names.

    Raises:
        RequestError: any part that cannot be carried out.
    """
    dataset = open_data(request.data) if dataset is None else dataset
    severities = tuple(sorted(set(request.severity)))
    if not severities or set(severities) - set(SEVERITIES):
        raise RequestError(f"severity is {', '.join(map(str, request.severity))}: severities are 1 to 5")
    openers = [_given(one) for one in models] or [opener_of(spec, dataset) for spec in request.model]
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    found = []
    for opener in openers:
        model = opener()
        check_classes(model, labels, tuple(dataset.classes))
        if request.placed and model.access < Access.SCORES:
            raise RequestError(
                f"{option('placed')} needs scores, and {model.name} gives labels only: leave {option('placed')} out"
            )
        found.append((model.name, opener, facts_of(model)))
    names = [name for name, _, _ in found]
    check_names(names)
    if request.reference is not None and request.reference not in names:
        raise RequestError(
            f"reference is {request.reference!r}, which is none of the models {', '.join(names)}: name one of them"
        )
    selection = choose(request, dataset)
    lost = gaps(dataset, selection.ids.tolist())
    ids = np.array([one for one in selection.ids.tolist() if one not in lost], dtype=np.int64)
    return CorruptPlan(
        request=request,
        dataset=dataset,
        ids=ids,
        labels=labels[ids],
        kinds=kinds_of(request.kind, dataset),
        severities=severities,
        models=tuple(found),
        device=choose_device(request.device),
    )


def _given(model: Model) -> Callable[[], Model]:
    return lambda: model


def kinds_of(names: Sequence[str], dataset: Dataset) -> dict[str, Distortion]:
    """The distortions of these names. Default: the published ones for pictures, and for other data the calibrated ones that fit.

    Raises:
        RequestError: an unknown one, or one for other data.
    """
    kind = dataset.domain.kind
    pictures = kind == "image" and dataset.domain.shape[0] in (1, 3)
    if not names:
        order = {name: number for number, name in enumerate(FIFTEEN)}
        every = {name: _distortion(name) for name in sorted(plugins.names("distortion"), key=lambda name: order.get(name, 15))}
        chosen = {name: distortion for name, distortion in every.items() if isinstance(distortion, Published) == pictures}
        return {name: one for name, one in chosen.items() if kind in one.domains and one.access < Access.GRADIENTS}
    kinds = {}
    for name in names:
        distortion = kinds[name] = _distortion(name)
        if kind not in distortion.domains or (isinstance(distortion, Published) and not pictures):
            channels = " of 1 or 3 channels" if isinstance(distortion, Published) else ""
            raise RequestError(f"{name} corrupts {', '.join(sorted(distortion.domains))}s{channels}, not this data: leave it out")
        if distortion.access == Access.GRADIENTS:
            raise RequestError(f"{name} follows the gradient of a model and is no corruption: leave it out")
    return kinds


def _distortion(name: str) -> Distortion:
    distortions: tuple[Distortion, ...] = plugins.parts("distortion", name)
    if len(distortions) != 1:
        raise RequestError(f"kind {name!r} names {len(distortions)} distortions: pass {option('kind')} once for each")
    return distortions[0]


def make(plan: CorruptPlan, folder: Path, progress: Progress, *, command: str) -> Folder[Answers]:
    """Corrupt, ask every model, place where asked, and write the folder.

    Raises:
        RequestError: the folder holds corruptions already.
        StoppedError: the folder cannot be written.
    """
    LAYOUT.begin(folder)
    kept: dict[str, Any] = {}
    with LAYOUT.lock(folder), ExitStack() as stack:
        models: dict[str, Model] = {}
        for name, opener, _ in plan.models:
            model = opener()
            stack.enter_context(session(model, plan.device))
            models[name] = settled(model, plan.dataset, kept, plan.device, name=name)
        x = plan.dataset.load(plan.ids.tolist()).to(plan.device)
        clean = {name: _classes(plan, model, x) for name, model in models.items()}
        parts = [_rows(plan, name, CLEAN, 0, clean[name]) for name in models]
        for kind, corruption in plan.kinds.items():
            progress.note(f"{kind}: severities {', '.join(map(str, plan.severities))}")
            for severity in plan.severities:
                made = corrupted(plan, corruption, kind, severity, x)
                if plan.request.keep:
                    _keep(plan, folder / "set" / kind.replace(":", "-") / f"{severity}.npz", made)
                size = l2(made - x).cpu().numpy()
                for name, model in models.items():
                    told = _placed(plan, model, corruption, severity, x, size, clean[name]) if plan.request.placed else {}
                    parts.append(_rows(plan, name, kind, severity, _classes(plan, model, made), l2=size, **told))
        about = {
            "request": plan.request.model_dump(mode="json"),
            "command": command,
            "data": {"name": plan.dataset.name, "classes": list(plan.dataset.classes), "n": len(plan.ids)},
            "kinds": list(plan.kinds),
            "severities": list(plan.severities),
            "models": [{"name": name, **facts} for name, _, facts in plan.models],
        }
        return TABLE.write(folder, about, rows.concatenate(parts))


def corrupted(plan: CorruptPlan, corruption: Distortion, kind: str, severity: int, x: Tensor) -> Tensor:
    """(n, *shape): every sample corrupted, in batches that do not decide what comes out."""
    stream = kind.removeprefix("published-") if isinstance(corruption, Published) else f"distortion:{kind}"
    rng = Streams.of(plan.request.seed, torch.as_tensor(plan.ids, device=x.device)).fold(f"{stream} {severity}")
    size, found = plan.request.batch_size, []
    for start in range(0, len(x), size):
        at = torch.arange(start, min(start + size, len(x)), device=x.device)
        found.append(distorted(corruption, x[at], severity, rng.select(at), domain=plan.dataset.domain))
    return torch.cat(found)


def _classes(plan: CorruptPlan, model: Model, x: Tensor) -> Array:
    found: Array = predict(model, x, plan.request.batch_size).argmax(1).cpu().numpy()
    return found


def _rows(plan: CorruptPlan, model: str, kind: str, severity: int, pred: Array, **more: Any) -> Answers:
    shared = {"model": model, "kind": kind, "severity": severity, "sample_id": plan.ids, "label": plan.labels, "pred": pred}
    return rows.build(Answers, len(plan.ids), **shared, **more)


def _placed(
    plan: CorruptPlan, model: Model, corruption: Distortion, severity: int, x: Tensor, size: Array, clean: Array
) -> dict[str, Any]:
    """RLAB with this corruption at this severity, on the first samples that are right, within what the whole one changes."""
    at = np.flatnonzero((clean == plan.labels) & (size > 0))[: plan.request.placed]
    queries = np.zeros(len(x), dtype=np.int64)
    placed: Any = np.ma.MaskedArray(np.zeros(len(x), dtype=bool), mask=True)
    if len(at):
        index = torch.as_tensor(at, device=x.device)
        batch = Batch(ids=torch.arange(len(at), device=x.device), x=x[index], y=torch.as_tensor(plan.labels[at], device=x.device))
        eps = torch.as_tensor(size[at], dtype=torch.float32, device=x.device)
        threat = Threat(distance=open_distance("l2"), eps=eps, domain=plan.dataset.domain)
        attack = RLAB(distortions=(corruption,), severities=(severity,), steps=plan.request.steps, clean_up=False)
        ledger = Ledger(model, batch, threat, access=attack.access, batch_size=plan.request.batch_size)
        rng = Streams.of(plan.request.seed, torch.as_tensor(plan.ids[at], device=x.device)).fold(f"placed {severity}")
        attack(ledger.oracle(), ledger.batch, ledger.threat, rng)
        placed[at], queries[at] = ledger.fooled.cpu().numpy(), ledger.costs.forwards.cpu().numpy()
    return {"placed": placed, "queries": queries}


def _keep(plan: CorruptPlan, file: Path, x: Tensor) -> None:
    """Corrupted inputs and labels as a file that `npz:` reads; pictures in 8 bits."""
    domain = plan.dataset.domain
    if domain.kind == "image":
        low, high = domain.bounds(x)
        stored = ((x - low) / (high - low) * 255).round().to(torch.uint8).cpu().numpy()
    else:
        stored = x.cpu().numpy()
    names = np.array(plan.dataset.classes)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as opened:
            np.savez_compressed(opened, x=stored, y=plan.labels, classes=names)

    write_atomically(file, write)


def carry_out(call: Call) -> CorruptResult:
    """Corrupt the samples, ask every model, and write the folder and its page.

    Raises:
        RequestError: what cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    plan = make_plan(call.request, dataset=call.dataset(), models=call.models())
    folder = call.folder(plan.request.data)
    made = make(plan, folder, call.progress, command=call.command)
    page.write(folder)
    return summarise(made)


def open_result(folder: Path) -> CorruptResult:
    """What a corruption study's folder says, from its records alone."""
    return summarise(TABLE.read(folder))
