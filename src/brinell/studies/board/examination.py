"""Verifies a folder, and reads its figures if it holds: the part of a board that several processes do side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.curve import grid, worst_case
from brinell.analysis.results import ModelResult
from brinell.analysis.robust_accuracy import criterion, judging, summarise
from brinell.core.bounded import digest
from brinell.core.errors import BrinellError, RequestError, one_line
from brinell.engine.progress import SilentProgress
from brinell.store.differences import Comparison, Difference
from brinell.store.folder import MANIFEST, fitting
from brinell.store.run import Run
from brinell.studies import register
from brinell.studies.board.analysis import ClassFigures, Figures, pack
from brinell.studies.kit import Call, Study
from brinell.studies.verification.labels import check_labels
from brinell.studies.verification.request import VerifyRequest
from brinell.studies.verification.result import Status, VerifyResult
from brinell.studies.verification.run import carry_out as verify
from brinell.studies.verification.run import verify_files

ROWS, LABELS, REPLAY = "files and rows", "files, rows and labels", "replay with the model"
"""Levels of verification, as the pages name them."""
NOT_USED = "the board checks files, rows and labels alone"


def examine(path: str, level: str, trust: str | None) -> dict[str, Any]:
    """Verify a folder and read its figures.

    Args:
        path: the folder.
        level: rows or replay.
        trust: a folder from elsewhere whose models, data and code may be used.

    Returns:
        `figures`, a list of `Figures` as JSON, or `why`, the reason of a refusal.
    """
    try:
        figures = _examine(Path(path), level, None if trust is None else Path(trust))
        return {"figures": [entry.model_dump(mode="json", by_alias=True) for entry in figures]}
    except BrinellError as error:
        return {"why": one_line(error, 600)}
    except Exception as error:  # a damaged file breaks in more ways than anybody lists, and the others are to be shown
        return {"why": f"its files contradict each other ({type(error).__name__}: {one_line(error, 200)})"}


def _examine(path: Path, level: str, trust: Path | None) -> list[Figures]:
    """The figures of a folder that holds.

    Raises:
        RequestError: it does not, or it has no figures for a board.
    """
    study = register.study_of(path)
    if study.verb == "claim":
        return _examine_claim(study, path)
    if study.verb != "audit" and not study.has_rates():
        raise RequestError(f"brinell {study.verb} made it, which gives no robust accuracy: name a run of brinell audit")
    result, grade = _verify(path, level, trust)
    _refuse(result.problems)
    if study.verb != "audit":
        with fitting(path):
            return [_of_rates(study, path, grade)]
    run = Run.open(path)
    if grade == ROWS:
        comparison = Comparison()
        grade = ROWS if check_labels(run, trust, comparison) else LABELS
        _refuse(comparison.differences)
    with fitting(path):
        records = run.records()
        models = summarise(run.manifest, records, str(path)).models
        figures = [_of_model(run, records, model, grade) for model in models]
    if not any(rate.eps > 0 for model in models for rate in model.robust_accuracy):
        raise RequestError("it has no budget above 0, and a board compares robust accuracy")
    return figures


def _verify(path: Path, level: str, trust: Path | None) -> tuple[VerifyResult, str]:
    """The verification of a folder, and the level that it grade."""
    if level == "rows":
        return verify_files(path, NOT_USED), ROWS
    request = VerifyRequest(run=str(path))
    call = Call(study=register.load("verify"), request=request, command="", progress=SilentProgress(), trust=trust)
    result = verify(call)
    return result, REPLAY if result.status == Status.PROVED else ROWS


def _refuse(problems: list[Difference]) -> None:
    """Refuse a folder with problems.

    Raises:
        RequestError: there is one.
    """
    if problems:
        first, remark = problems[0], f" and {len(problems) - 1} more problems" if len(problems) > 1 else ""
        samples = f" (samples {', '.join(map(str, first.samples))})" if first.samples else ""
        raise RequestError(f"{first.location}: {first.description}{samples}{remark}")


def _of_model(run: Run, records: Any, model: ModelResult, level: str) -> Figures:
    manifest = run.manifest
    cells = grid(records, manifest, model.model)
    above = cells.eps > 0
    states = np.concatenate([cells.clean[:, None], worst_case(cells, judging(cells))[:, above]], axis=1).astype(np.int8)
    facts: Mapping[str, Any] = next(entry for entry in manifest["models"] if entry["name"] == model.model)
    index = np.flatnonzero(above).tolist()
    return Figures(
        run=str(run.path),
        verb="audit",
        key=digest(run.path / MANIFEST),
        model=model.model,
        digest=facts["digest"],
        data=manifest["data"]["name"],
        data_digest=manifest["data"]["digest"],
        distance=model.distance,
        criterion=criterion(manifest),
        unit=str((manifest.get("recommended") or {}).get("digest", "")),
        eps=[model.eps[i] for i in index],
        eps_text=[model.eps_text[i] for i in index],
        clean=model.clean_accuracy,
        robust=[model.robust_accuracy[i] for i in index],
        certified=[],
        per_class=[
            ClassFigures(class_=c.class_, name=c.name, n=c.n, clean=c.clean, robust=[c.robust[i] for i in index])
            for c in model.per_class
        ],
        attacks=model.attacks,
        weak=model.weak is not None,
        checks=model.caveat or "all passed",
        failed=sum(check.passed is False for check in model.checks),
        forwards=sum(stage.forwards for stage in model.stages),
        backwards=sum(stage.backwards for stage in model.stages),
        seconds=model.seconds,
        date=str(manifest["finished"] or "")[:10],
        brinell=manifest["brinell"],
        level=level,
        ids=pack(cells.ids.astype(np.int64)),
        states=pack(states),
    )


def _of_rates(study: Study, path: Path, level: str) -> Figures:
    manifest = study.resolve(study.layout).open(path)
    rates = study.rates_of(study.resolve(study.open)(path))
    pairs = {name: {rate.eps: rate for rate in series if rate.eps > 0} for name, series in rates.items()}
    certified, robust = pairs.get("certified", {}), pairs.get("robust", {})
    eps = sorted(certified.keys() & robust.keys() if robust else certified.keys())
    model = manifest["models"][0]
    clean = rates.get("clean", [])
    return Figures(
        run=str(path),
        verb=study.verb,
        key=digest(path / MANIFEST),
        model=model["name"] if study.verb == "certify" else f"{model['name']}, {study.verb}",
        digest=model["digest"],
        data=manifest["data"]["name"],
        data_digest=manifest["data"]["digest"],
        distance=str(manifest["request"].get("norm", "l2")),
        criterion="misclassified",
        unit="",
        eps=eps,
        eps_text=[f"{value:.6g}" for value in eps],
        clean=clean[0] if clean else None,
        robust=[robust[value] for value in eps] if robust else [],
        certified=[certified[value] for value in eps],
        per_class=[],
        attacks=f"brinell {study.verb}",
        weak=False,
        checks="not made",
        failed=0,
        forwards=0,
        backwards=0,
        seconds=manifest.get("seconds"),
        date=str(manifest.get("finished") or "")[:10],
        brinell=str(manifest["brinell"]),
        level=level,
        ids="",
        states="",
    )


def _examine_claim(study: Study, path: Path) -> list[Figures]:
    """Check that a claim says what its run says. The figures are those of the run, which the board takes from the run alone."""
    _refuse(verify_files(path, NOT_USED).problems)
    study.resolve(study.open)(path)
    return []
