"""Verifies a folder, and reads its figures if it holds."""

from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.curve import grid, worst_case
from brinell.analysis.results import ModelResult
from brinell.analysis.robust_accuracy import criterion, summarise
from brinell.core.errors import RequestError
from brinell.core.record import Records
from brinell.engine.eps_grid import parse_eps
from brinell.engine.progress import SilentProgress
from brinell.store.run import Run
from brinell.studies import register
from brinell.studies.board.arrangement import BoardFigures
from brinell.studies.kit import Call, Study
from brinell.studies.verification import VerifyRequest
from brinell.studies.verification.premises import selection_of
from brinell.studies.verification.run import carry_out as verify
from brinell.studies.verification.run import verify_files

PLACED = ("audit", "certify")
"""Verbs whose folders have a place on a board."""


def examine(path: Path, level: str, trust: Path | None) -> list[BoardFigures]:
    """Verify a folder and read its figures.

    Raises:
        BrinellError: it is refused, or has no figures for a board.
    """
    study = register.study_of(path)
    if study.verb not in PLACED:
        raise RequestError(
            f"brinell {study.verb} made it, which gives no robust accuracy: name "
            "a run of brinell audit"
        )
    request = VerifyRequest(run=str(path))
    verb = register.load("verify")
    call = Call(study=verb, request=request, command="", progress=SilentProgress(), trust=trust)
    result = (
        verify_files(path, reason="the board reads files alone")
        if level == "rows"
        else verify(call)
    )
    if result.problems:
        first = result.problems[0]
        further = len(result.problems) - 1
        samples = f" (samples {', '.join(map(str, first.samples))})" if first.samples else ""
        raise RequestError(
            f"{first.location}: "
            f"{first.description}{samples}{f' and {further} more' * bool(further)}"
        )

    common = {
        "run": str(path),
        "verb": study.verb,
        "verified": result.passed,
        "repeated": result.samples,
        "attacked": result.attacked,
        "drawn": selection_of(study.layout.read(path)),
    }

    # A result with rates has figures of one model, and no state of a sample that could be paired.
    if hasattr(study.resolve(study.result), "rates"):
        return [_of_rates(study, path, common)]
    run = Run.open(path)
    records = run.rows
    models = summarise(run.manifest, records, str(path)).models
    if max(run.manifest["eps"]) <= 0:
        raise RequestError("it has no budget above 0, and a board compares robust accuracy")
    return [_of_model(run, records, model, common) for model in models]


def _of_model(
    run: Run, records: Records, model: ModelResult, common: dict[str, Any]
) -> BoardFigures:
    """The figures of a model of an audit; `common` are the fields that its models share."""
    manifest = run.manifest
    cells = grid(records, manifest, model.name)
    above = cells.eps > 0
    # The board has no budget of 0: its first column is that of the clean inputs.
    states = np.column_stack([cells.clean, worst_case(cells)[:, above]])
    index = np.flatnonzero(above).tolist()
    outcomes = [check.passed for check in model.checks]

    return BoardFigures(
        **common,
        model=model.name,
        digest=next(entry["digest"] for entry in manifest["models"] if entry["name"] == model.name),
        data=manifest["data"]["name"],
        data_digest=manifest["data"]["digest"],
        distance=model.distance,
        criterion=criterion(manifest),
        unit=str((manifest.get("recommended") or {}).get("digest", "")),
        eps=[model.eps[i] for i in index],
        eps_text=[model.eps_text[i] for i in index],
        clean=model.clean_accuracy,
        robust=[model.robust_accuracy[i] for i in index],
        per_class=[
            c.model_copy(update={"robust": [c.robust[i] for i in index]}) for c in model.per_class
        ],
        attacks=model.attacks + (" (weaker than fast)" if model.weak else ""),
        checks=" / ".join(str(outcomes.count(outcome)) for outcome in (True, False, None)),
        date=str(manifest["finished"] or "")[:10],
        ids=cells.ids.tolist(),
        states=states.tolist(),
    )


def _of_rates(study: Study, path: Path, common: dict[str, Any]) -> BoardFigures:
    """The proofs of a folder, of the model or of another that is made of it, such as the smoothed
    one.
    """
    manifest: dict[str, Any] = study.layout.open(path)
    request = manifest["request"]
    model = manifest["models"][0]
    result = study.open(path)
    rates = {**result.rates(), "certified": result.certified}  # without what is claimed
    by_eps = {
        name: {rate.eps: rate for rate in series if rate.eps > 0} for name, series in rates.items()
    }
    certified = by_eps.get("certified", {})
    robust = by_eps.get("robust", {})
    # A budget that only one of both has gives no band.
    eps = sorted(certified.keys() & robust.keys() if robust else certified.keys())
    budget = parse_eps(request["eps"]) if request.get("eps") else None
    texts = dict(zip(budget.values, budget.texts, strict=True)) if budget else {}
    smoothed = any(str(method).startswith("smoothing") for method in request.get("method") or ())

    return BoardFigures(
        **common,
        model=f"{model['name']}, smoothed" if smoothed else model["name"],
        digest=model["digest"],
        data=manifest["data"]["name"],
        data_digest=manifest["data"]["digest"],
        distance=str(request.get("norm", "l2")),
        criterion="misclassified",
        eps=eps,
        eps_text=[texts.get(value, f"{value:.3g}") for value in eps],
        clean=next(iter(rates.get("clean", [])), None),
        robust=[robust[value] for value in eps] if robust else [],
        certified=[certified[value] for value in eps],
        attacks=f"brinell {study.verb}",
        date=str(manifest.get("finished") or "")[:10],
    )
