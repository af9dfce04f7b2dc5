"""Runs `brinell corrupt`: corrupts the samples and evaluates every model on them."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Dataset, Distortion
from brinell.core.errors import RequestError, option
from brinell.core.norms import l2
from brinell.core.record import Array
from brinell.core.settings import Suite
from brinell.core.streams import Streams
from brinell.distortions._shared import suite_of
from brinell.rlab.distort import SEVERITIES, distorted
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies import work
from brinell.studies.corruption import CorruptRequest
from brinell.studies.corruption.result import (
    CLEAN,
    FIFTEEN,
    CorruptFacts,
    CorruptionRows,
    example_path,
)
from brinell.studies.kit import Call, Piece, Plan


@dataclass(frozen=True, kw_only=True)
class CorruptPlan(Plan):
    """A resolved corruption study."""

    request: CorruptRequest
    kinds: Mapping[str, Distortion]
    severities: tuple[int, ...]


def make_plan(call: Call) -> CorruptPlan:
    """Open data and models, and choose the corruptions."""
    request: CorruptRequest = call.request
    severities = tuple(sorted(set(request.severity)))
    if not severities or set(severities) - set(SEVERITIES):
        raise RequestError(
            f"severity is {', '.join(map(str, request.severity))}: severities are 1 to 5"
        )

    plan = CorruptPlan(
        **vars(work.open_plan(call)), request=request, kinds={}, severities=severities
    )
    if request.reference is not None and request.reference not in plan.models:
        names = ", ".join(plan.models)
        raise RequestError(
            f"reference is {request.reference!r}, which is not one of the models "
            f"{names}: choose one of them"
        )

    kinds = open_kinds(request.kind, plan.dataset)
    return replace(
        plan, kinds=kinds, facts=CorruptFacts(kinds=list(kinds), severities=list(severities))
    )


def open_kinds(names: Sequence[str], dataset: Dataset) -> dict[str, Distortion]:
    """The distortions of these names and suites.

    Default: the published ones where they fit, else the calibrated ones.
    """
    suites = [name for name in names if name in get_args(Suite)]
    kinds = {name: _distortion(name) for name in names if name not in suites}
    for name, distortion in kinds.items():
        if misfit := _misfit(distortion, dataset):
            raise RequestError(f"{name} {misfit}: remove it")
    if kinds and not suites:
        return kinds

    # The published kinds in their published order, then the others by name.
    order = {name: number for number, name in enumerate(FIFTEEN)}
    every_name = sorted(plugins.names("distortion"), key=lambda name: order.get(name, len(FIFTEEN)))
    distortions = {name: _distortion(name) for name in every_name}
    members: dict[str, dict[str, Distortion]] = {suite: {} for suite in get_args(Suite)}
    for name, distortion in distortions.items():
        if not _misfit(distortion, dataset):
            members[suite_of(distortion)][name] = distortion
    for suite in suites:
        if not members[suite]:
            fits = ", ".join(name for name, group in members.items() if group)
            shape = "x".join(map(str, dataset.domain.shape))
            raise RequestError(
                f"no {suite} distortion fits {dataset.domain.kind} data of shape "
                f"{shape}: choose {option('kind', fits)}"
            )

    default = "published" if members["published"] else "calibrated"
    for suite in suites or (default,):
        kinds |= members[suite]
    return kinds


def _misfit(distortion: Distortion, dataset: Dataset) -> str:
    """Why a distortion cannot corrupt this data; empty if it can."""
    kind, shape = dataset.domain.kind, dataset.domain.shape
    published = suite_of(distortion) == "published"
    if kind not in distortion.domains or (published and shape[0] not in (1, 3)):
        channels = " of 1 or 3 channels" if published else ""
        return f"corrupts {', '.join(sorted(distortion.domains))}s{channels}, not this data"
    return ""


def _distortion(name: str) -> Distortion:
    distortions: tuple[Distortion, ...] = plugins.build_list("distortion", name)
    if len(distortions) != 1:
        raise RequestError(
            f"kind {name!r} names {len(distortions)} distortions: pass "
            f"{option('kind')} once for each"
        )
    return distortions[0]


def pieces(plan: CorruptPlan, call: Call) -> list[Piece]:
    """The units of work: the clean inputs, and each kind of corruption at all severities."""
    # Inputs and clean answers are made once in a process, and only where a piece needs them.
    x = functools.cache(lambda: plan.dataset.load(plan.ids.tolist()).to(plan.device))
    size = plan.request.batch_size
    clean = functools.cache(
        lambda: {name: work.classes(model, x(), size) for name, model in plan.models.items()}
    )

    def predict_clean() -> CorruptionRows:
        """Clean predictions of all models."""
        return rows.concatenate(
            [
                _rows(plan, name, CLEAN, severity=0, pred=predicted)
                for name, predicted in clean().items()
            ]
        )

    def corrupt(number: int, kind: str) -> CorruptionRows:
        """Predictions of all models under one corruption at every severity."""
        parts: list[CorruptionRows] = []
        for severity in plan.severities:
            corrupted_x = corrupt_inputs(plan, plan.kinds[kind], kind, severity, x())
            length = l2(corrupted_x - x()).cpu().numpy()
            for name, model in plan.models.items():
                parts.append(
                    _rows(
                        plan,
                        name,
                        kind,
                        severity,
                        work.classes(model, corrupted_x, size),
                        l2=length,
                    )
                )
            # The answers of the first model to the last severity, where the change is easiest to
            # see: of each severity there is one part by model.
            if severity == plan.severities[-1]:
                _save_example(
                    plan,
                    number,
                    x(),
                    corrupted_x,
                    next(iter(clean().values())),
                    parts[-len(plan.models)].pred,
                )

        return rows.concatenate(parts)

    levels = ", ".join(map(str, plan.severities))
    return [
        Piece(name="clean inputs", make=predict_clean),
        *(
            Piece(
                name=f"{kind}: severities {levels}",
                make=functools.partial(corrupt, number, kind),
                files=(example_path(number),),
            )
            for number, kind in enumerate(plan.kinds)
        ),
    ]


def corrupt_inputs(
    plan: CorruptPlan, corruption: Distortion, kind: str, severity: int, x: Tensor
) -> Tensor:
    """Every sample corrupted, (n, *shape); the result does not depend on the batches."""
    stream = (
        kind.removeprefix("published-")
        if suite_of(corruption) == "published"
        else f"distortion:{kind}"
    )
    rng = Streams.of(plan.request.seed, torch.as_tensor(plan.ids, device=x.device)).fold(
        f"{stream} {severity}"
    )
    size = plan.request.batch_size
    batches = []

    for start in range(0, len(x), size):
        index = torch.arange(start, min(start + size, len(x)), device=x.device)
        batches.append(
            distorted(corruption, x[index], severity, rng.select(index), domain=plan.dataset.domain)
        )
    return torch.cat(batches)


def _rows(
    plan: CorruptPlan, model: str, kind: str, severity: int, pred: Array, **columns: Any
) -> CorruptionRows:
    shared = {
        "model": model,
        "kind": kind,
        "severity": severity,
        "sample_id": plan.ids,
        "label": plan.labels,
        "pred": pred,
    }
    return rows.build(CorruptionRows, len(plan.ids), **shared, **columns)


def _save_example(
    plan: CorruptPlan, number: int, x: Tensor, corrupted: Tensor, clean_pred: Array, pred: Array
) -> None:
    """Write the first sample that the corruption makes the first model misclassify, or the first of
    all, for the page.
    """
    errors = np.flatnonzero((clean_pred == plan.labels) & (pred != plan.labels))
    index = int(errors[0]) if len(errors) else 0
    arrays = {"clean": x[index].cpu().numpy(), "corrupted": corrupted[index].cpu().numpy()}
    answers = np.array([plan.labels[index], clean_pred[index], pred[index]], dtype=np.int64)
    write_arrays(
        plan.folder / example_path(number),
        arrays | {"sample": plan.ids[index : index + 1], "classes": answers},
    )
