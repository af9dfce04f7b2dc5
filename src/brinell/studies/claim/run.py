"""Carries out `brinell claim`: verifies the run, counts each sample at each budget, and writes the claim."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.compare import Side, side
from brinell.analysis.curve import RIGHT, grid, worst_case
from brinell.analysis.curve import WRONG as MISCLASSIFIED
from brinell.analysis.proofs import proven_budgets
from brinell.analysis.robust_accuracy import judging, summarise_model
from brinell.core.bounded import digest
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.user_files import user_path
from brinell.engine.eps_grid import parse_eps
from brinell.engine.job import settings_text
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST, fitting
from brinell.store.proofs import PROOFS
from brinell.store.proofs import TABLE as CERTIFICATE
from brinell.studies import register
from brinell.studies.claim import page
from brinell.studies.claim.analysis import ClaimResult, open_claim
from brinell.studies.claim.ranking import published_budget, table_for
from brinell.studies.claim.records import BROKEN, FAILED, LAYOUT, OPEN, PROVEN, TABLE, WRONG, Outcomes
from brinell.studies.claim.request import ClaimRequest
from brinell.studies.kit import Call
from brinell.studies.verification.request import VerifyRequest
from brinell.studies.verification.result import Status, VerifyResult
from brinell.studies.verification.run import carry_out as verify
from brinell.studies.verification.run import verify_files

LEVELS_OFF = "you asked for files and rows alone"
"""Why the model and the data are not used at the level of rows."""


def carry_out(call: Call) -> ClaimResult:
    """Verify the run of a call, and write the claim.

    Raises:
        RequestError: no finished run, a budget or a model that it has not, proofs that do not fit, or a folder that is refused.
        StoppedError: the folder cannot be written.
    """
    request: ClaimRequest = call.request
    path = user_path(request.run)
    tested, eps, text = _open(request, path)
    folder = call.folder(str(tested.manifest["data"]["spec"]))
    LAYOUT.begin(folder)
    budgets, table = _outcomes(tested, request)
    checked = [_verify(call, place) for place in (path, find_proofs(request)) if place is not None]
    _write(call, folder, tested, (eps, text), budgets, table, _verification(checked, request.level))
    return open_claim(folder)


def repeat(call: Call, folder: Path) -> ClaimResult:
    """Write the claim of a folder again, with the verification that it states."""
    request: ClaimRequest = call.request
    tested, eps, text = _open(request, user_path(request.run))
    budgets, table = _outcomes(tested, request)
    verification = LAYOUT.open(folder)["verification"]
    target = call.out or folder
    _write(call, target, tested, (eps, text), budgets, table, verification)
    return open_claim(target)


def _open(request: ClaimRequest, path: Path) -> tuple[Side, float, str]:
    """The model of a run with its rows, and the budget of the claim as a number and as it was written."""
    if (path / MANIFEST).is_file() and (verb := register.study_of(path).verb) != "audit":
        advice = (
            f"name the run of an audit, and {path} by {option('proofs')}" if verb == "certify" else "name the run of an audit"
        )
        raise RequestError(f"{path} was made by brinell {verb}, and a claim is made of a run: {advice}")
    tested = side(path, request.model)
    manifest = tested.manifest
    pairs = [(eps, text) for eps, text in zip(manifest["eps"], manifest["eps_text"], strict=True) if eps > 0]
    if not pairs:
        raise RequestError(f"{path} has no budget above 0, and a claim is about one: audit the model with {option('eps')}")
    table = table_for(manifest["data"]["name"], manifest["data"]["digest"], manifest["distance"]) if request.against else None
    usual = [pair for pair in pairs if table is not None and math.isclose(pair[0], published_budget(table), rel_tol=1e-6)]
    if request.eps is None:
        return tested, *(usual or pairs)[-1]
    values = parse_eps(request.eps).values
    matches = [pair for pair in pairs if len(values) == 1 and math.isclose(pair[0], values[0], rel_tol=1e-6)]
    if not matches:
        texts = ", ".join(text for _, text in pairs)
        raise RequestError(f"a claim is about one budget of the run, and eps {request.eps} is none: {path} has {texts}")
    return tested, *matches[0]


def _outcomes(tested: Side, request: ClaimRequest) -> tuple[list[float], Outcomes]:
    """The budgets above 0, and a row for each sample and budget."""
    with fitting(Path(tested.run)):
        cells = grid(tested.records, tested.manifest, tested.model)
        states = np.concatenate([cells.clean[:, None], worst_case(cells, judging(cells))[:, cells.eps > 0]], axis=1)
    eps = np.concatenate([[0.0], cells.eps[cells.eps > 0]])
    outcome = np.full(states.shape, FAILED, dtype=object)
    outcome[states == RIGHT] = OPEN
    outcome[states == MISCLASSIFIED] = BROKEN
    outcome[cells.clean == MISCLASSIFIED] = WRONG
    if (proofs := find_proofs(request)) is not None:
        _add_proofs(outcome, cells.ids, eps, _proven_budgets(tested, proofs), (str(proofs), request.run))
    return eps[1:].tolist(), Outcomes(
        sample_id=np.repeat(cells.ids, len(eps)),
        label=np.repeat(cells.labels, len(eps)),
        eps=np.tile(eps, len(cells.ids)),
        outcome=outcome.reshape(-1).astype(str),
    )


def _add_proofs(outcome: Array, ids: Array, eps: Array, proven: Mapping[int, float], folders: tuple[str, str]) -> None:
    """Mark the samples and budgets that are proven.

    Raises:
        RequestError: a sample is proven and broken at one budget, or the proofs leave samples out.
    """
    if missing := sorted(set(ids.tolist()) - proven.keys()):
        raise RequestError(
            f"{folders[0]} says nothing of {len(missing)} of {len(ids)} samples of {folders[1]}, the first {missing[0]}: "
            f"certify the same samples, with {option('samples', str(len(ids)))}"
        )
    most = np.array([proven[int(sample)] for sample in ids])
    holds = (most[:, None] >= eps[None] * (1 - 1e-9)) & (eps > 0)[None]
    if (contradicted := (holds & np.isin(outcome, (BROKEN, WRONG))).any(1)).any():
        raise RequestError(
            f"sample {ids[contradicted][0]} is proven in {folders[0]} and has a counterexample in {folders[1]}: one of both "
            "is false; verify both with brinell verify"
        )
    outcome[holds & (outcome == OPEN)] = PROVEN


def _proven_budgets(tested: Side, folder: Path) -> Mapping[int, float]:
    """The largest proven budget of each sample, from a folder about the same model, data and distance.

    Raises:
        RequestError: the folder holds no proofs, or they are about something else.
    """
    content = CERTIFICATE.read(folder)
    manifest = content.manifest
    model = next(model for model in tested.manifest["models"] if model["name"] == tested.model)
    parts = (
        ("data", manifest["data"]["digest"], tested.manifest["data"]["digest"]),
        ("model", manifest["models"][0]["digest"], model["digest"]),
        ("distance", manifest["request"]["norm"], tested.manifest["distance"]),
    )
    for part, value, expected in parts:
        if value != expected:
            raise RequestError(
                f"{folder} is about another {part} than {tested.run} ({value}, not {expected}): certify that of the run"
            )
    return proven_budgets(content.rows)


def find_proofs(request: ClaimRequest) -> Path | None:
    """The folder of the proofs: the one that was named, or that of an audit with --certify; None if there is none."""
    if request.proofs is not None:
        return user_path(request.proofs)
    nested = user_path(request.run) / PROOFS
    return nested if (nested / MANIFEST).is_file() else None


def _verify(call: Call, path: Path) -> VerifyResult:
    """Verify a folder as far as the call asks.

    Raises:
        RequestError: something in it is false.
    """
    if call.request.level == "rows":
        result = verify_files(path, LEVELS_OFF)
    else:
        request = VerifyRequest(run=str(path))
        result = verify(replace(call, study=register.load("verify"), request=request, out=None, datasets={}, objects={}))
    if result.status == Status.REFUSED:
        problem = result.problems[0]
        raise RequestError(f"{path} is refused ({problem.location}: {problem.description}): brinell verify {path} says more")
    return result


def _verification(results: list[VerifyResult], level: str) -> dict[str, Any]:
    """The verification of all folders, for the manifest."""
    proved = all(result.status == Status.PROVED for result in results)
    return {
        "status": str(Status.PROVED if proved else Status.CONSISTENT),
        "level": level,
        "rows": sum(result.rows for result in results),
        "replayed": sum(result.replayed for result in results),
        "premises": _drop_repetitions(sentence for result in results for sentence in result.premises),
        "verified": _drop_repetitions(sentence for result in results for sentence in result.verified_claims),
        "unverified": _drop_repetitions(sentence for result in results for sentence in result.unverified_claims),
        "refusal": "; ".join(result.refusal for result in results if result.refusal),
    }


def _drop_repetitions(sentences: Any) -> list[str]:
    return list(dict.fromkeys(sentences))


def _write(
    call: Call,
    folder: Path,
    tested: Side,
    budget: tuple[float, str],
    budgets: list[float],
    table: Outcomes,
    verification: Mapping[str, Any],
) -> None:
    """Write rows, manifest, page and files of a claim."""
    request: ClaimRequest = call.request
    manifest = tested.manifest
    result = summarise_model(manifest, tested.records, tested.run, tested.model)
    proofs = find_proofs(request)
    skipped = {entry["stage"] for entry in manifest.get("skipped", []) if entry["model"] == tested.model}
    stages = [stage for stage in result.stages if stage.attack not in skipped and (stage.forwards or stage.surrogate_passes)]
    write_text(folder / REQUEST, settings_text(LAYOUT, request, call.command, folder))
    facts = {
        "command": call.command,
        "request": request.model_dump(mode="json"),
        "source": {"path": request.run, "manifest": digest(user_path(request.run) / MANIFEST)},
        "proofs": None if proofs is None else {"path": str(proofs), "manifest": digest(proofs / MANIFEST)},
        "finished": manifest["finished"],
        "data": manifest["data"],
        "model": next(model for model in manifest["models"] if model["name"] == tested.model),
        "distance": manifest["distance"],
        "criterion": result.criterion,
        "eps": budget[0],
        "budgets": budgets,
        "texts": [text for eps, text in zip(result.eps, result.eps_text, strict=True) if eps > 0],
        "attacks": result.attacks,
        "stages": [stage.attack for stage in stages],
        "titles": [stage.title for stage in stages],
        "weak": result.weak,
        "caveat": result.caveat,
        "checks": [check.model_dump(include={"code", "passed", "text"}) for check in result.checks],
        "verdict": result.verdict,
        "per_sample": bool(manifest.get("recommended")),
        "repeat": manifest["command"],
        "verification": dict(verification),
    }
    TABLE.write(folder, facts, table)
    page.write(folder)


def recount(manifest: Mapping[str, Any], run: Path) -> list[tuple[int, int, float, str]]:
    """The rows that the claim with this manifest has if it says what a run says: sample, label, budget, outcome."""
    settings = dict(manifest["request"]) | {"run": str(run)}
    request = ClaimRequest.model_validate(settings)
    tested, *_ = _open(request, run)
    return _list_rows(_outcomes(tested, request)[1])


def count_rows(path: Path) -> list[tuple[int, int, float, str]]:
    """The rows that a claim has."""
    return _list_rows(TABLE.read(path).rows)


def _list_rows(rows: Outcomes) -> list[tuple[int, int, float, str]]:
    columns = (rows.sample_id, rows.label, rows.eps, rows.outcome)
    return list(zip(*(column.tolist() for column in columns), strict=True))
