"""Carries out `brinell corrupt`: corrupts the samples, shows them to every model, and has RLAB place the same if asked."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from brinell.engine.plan import open_distance
from brinell.rlab.variants import SEVERITIES, distorted
from brinell.store import rows
from brinell.store.files import write_atomically
from brinell.studies import work
from brinell.studies.corruption.analysis import CLEAN, FIFTEEN
from brinell.studies.corruption.records import Answers
from brinell.studies.corruption.request import CorruptRequest
from brinell.studies.kit import Call, Piece, Plan


@dataclass(frozen=True, kw_only=True)
class CorruptPlan(Plan):
    """What is corrupted how, resolved."""

    request: CorruptRequest
    kinds: Mapping[str, Distortion]
    severities: tuple[int, ...]


def make_plan(call: Call) -> CorruptPlan:
    """Resolve a request.

    Raises:
        RequestError: any part that cannot be carried out.
    """
    request: CorruptRequest = call.request
    severities = tuple(sorted(set(request.severity)))
    if not severities or set(severities) - set(SEVERITIES):
        raise RequestError(f"severity is {', '.join(map(str, request.severity))}: severities are 1 to 5")
    plan = work.opened(call, CorruptPlan, request=request, kinds={}, severities=severities)
    for name, model in plan.models.items():
        if request.placed and model.access < Access.SCORES:
            raise RequestError(f"{option('placed')} needs scores, and {name} gives labels only: leave {option('placed')} out")
    if request.reference is not None and request.reference not in plan.models:
        names = ", ".join(plan.models)
        raise RequestError(f"reference is {request.reference!r}, which is none of the models {names}: name one of them")
    kinds = kinds_of(request.kind, plan.dataset)
    return replace(plan, kinds=kinds, about={"kinds": list(kinds), "severities": list(severities)})


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


def pieces(plan: CorruptPlan, call: Call) -> list[Piece]:
    """The clean inputs, and each kind of corruption at all severities."""
    x = functools.cache(lambda: plan.dataset.load(plan.ids.tolist()).to(plan.device))
    clean = functools.cache(lambda: {name: _classes(plan, model, x()) for name, model in plan.models.items()})

    def show_clean() -> Answers:
        return rows.concatenate([_rows(plan, name, CLEAN, 0, predicted) for name, predicted in clean().items()])

    def corrupt(kind: str) -> Answers:
        parts = []
        for severity in plan.severities:
            made = corrupted(plan, plan.kinds[kind], kind, severity, x())
            if plan.request.keep:
                _keep(plan, plan.folder / file_of(kind, severity), made)
            size = l2(made - x()).cpu().numpy()
            for name, model in plan.models.items():
                more = {}
                if plan.request.placed:
                    more = _placed(plan, model, plan.kinds[kind], severity, x(), size, clean()[name])
                parts.append(_rows(plan, name, kind, severity, _classes(plan, model, made), l2=size, **more))
        return rows.concatenate(parts)

    levels = ", ".join(map(str, plan.severities))
    return [
        Piece(name="clean inputs", make=show_clean),
        *(
            Piece(
                name=f"{kind}: severities {levels}",
                make=functools.partial(corrupt, kind),
                files=tuple(file_of(kind, severity) for severity in plan.severities) if plan.request.keep else (),
            )
            for kind in plan.kinds
        ),
    ]


def file_of(kind: str, severity: int) -> str:
    """The file of kept inputs, by its path in the folder."""
    return f"set/{kind.replace(':', '-')}/{severity}.npz"


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
    return work.classes(model, x, plan.request.batch_size)


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
