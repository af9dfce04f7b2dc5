"""Verifies the folders of all studies but audits: repeats them if their models and data may be used, else checks the files."""

from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, option
from brinell.engine.request import IN_MEMORY
from brinell.engine.toml import parse_request
from brinell.store.differences import Comparison
from brinell.store.folder import fitting
from brinell.store.trust import MARK, check_directory, find_origin, refusal, request_text
from brinell.studies import repetition
from brinell.studies.kit import Call, Study
from brinell.studies.verification.premises import list_study_premises, list_unopened
from brinell.studies.verification.request import VerifyRequest
from brinell.studies.verification.result import Notes, Status, VerifyResult


def data_of(settings: Mapping[str, Any]) -> str:
    """Data that a folder names. They decide which inputs a model in memory takes."""
    _, manifest = repetition.identify(Path(settings["run"]))
    return str(manifest["request"].get("data", "digits"))


def verify_study(study: Study, manifest: Mapping[str, Any], call: Call) -> VerifyResult:
    """Verify the folder or the file of a study. Models and data that the call names replace those of the folder.

    Args:
        study: the study that made the folder.
        manifest: its manifest.
        call: the call of `brinell verify`.

    Raises:
        RequestError: the folder is damaged or unfinished, or its request cannot be carried out again.
    """
    options: VerifyRequest = call.request
    folder = Path(options.run).absolute()
    _check_finished(study, folder, manifest)
    if (comparison := _compare_inventory(study, folder, manifest)).differences:
        return _of(study, folder, comparison, list_unopened(manifest))
    replaced = _replacements(study, options, manifest["request"])
    specs = {name: value for name, value in replaced.items() if name not in (*call.datasets, *call.objects)}
    text = request_text(manifest)
    origin = find_origin(folder, text, manifest.get(MARK), call.trust)
    if origin is None:
        reason = str(refusal(folder))
        call.progress.warn(reason)
        return check_files(study, folder, manifest, reason)
    if specs:
        check_directory(folder, text, origin)
    with chdir(origin):
        request = parse_request(study.request, {**manifest["request"], **specs})
        _check_in_memory(study, folder, request, call)
        call.progress.note(f"carrying out brinell {study.verb} again, to compare what comes out")
        command, defaults = str(manifest.get("command")), study.options and study.options()
        proved = repetition.proved_manifests(study, folder, manifest)
        comparison = repetition.repeat(call, folder, replaced, study=study, request=request, command=command, options=defaults)
        premises = list_study_premises(proved, {*replaced, *call.datasets, *call.objects}, options.digest)
        return _result(study, folder, comparison, premises)


def _replacements(study: Study, options: VerifyRequest, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the folder's request that the person replaces, with their values."""
    replaced: dict[str, Any] = {}
    for name, given in (("model", list(options.model)), ("data", options.data)):
        if not given:
            continue
        if name not in study.request.model_fields:
            raise RequestError(f"brinell {study.verb} has no setting {name}: leave out {option(name)}")
        several = isinstance(values.get(name), list | tuple)
        if isinstance(given, list) and not several and len(given) > 1:
            raise RequestError(f"brinell {study.verb} has one model: give {option(name)} once")
        specs = [given] if isinstance(given, str) else given
        replaced[name] = specs if several else specs[0]
    return replaced


def _check_in_memory(study: Study, folder: Path, request: Any, call: Call) -> None:
    """Refuse a call without the models or data that the study had in memory."""
    for name in study.in_memory():
        value = getattr(request, name)
        texts = value if isinstance(value, tuple) else (value or "",)
        if any(text.startswith(IN_MEMORY) for text in texts) and name not in (*call.datasets, *call.objects):
            raise RequestError(
                f"{folder} was made with {name} in memory, and verification needs it again: "
                + ("pass it to brinell.verify(folder, model, data)" if name in ("model", "data") else f"name a file as {name}")
            )


def _check_finished(study: Study, folder: Path, manifest: Mapping[str, Any]) -> None:
    if manifest.get("state", "finished") != "finished":
        raise RequestError(f"{folder} is not finished: go on with brinell {study.verb} {option('resume')}, then verify it")


def _compare_inventory(study: Study, folder: Path, manifest: Mapping[str, Any]) -> Comparison:
    comparison = Comparison()
    for name, problem in study.resolve(study.layout).find_faults(folder, manifest) if folder.is_dir() else ():
        comparison.note(name, f"the file {problem}")
    return comparison


def check_files(study: Study, folder: Path, manifest: Mapping[str, Any], reason: str) -> VerifyResult:
    """Check files, request, tables and page of a folder whose models and data are not used.

    Args:
        study: the study that made it.
        folder: the folder.
        manifest: its manifest.
        reason: why models and data are not used.
    """
    _check_finished(study, folder, manifest)
    comparison = _compare_inventory(study, folder, manifest)
    if folder.is_dir() and not comparison.differences:
        with fitting(folder):
            repetition.check_texts(folder, repetition.claims_of(study), comparison)
    sentence = "the request file, the tables and the page are those that the manifest and the records produce"
    return _of(
        study,
        folder,
        comparison,
        list_unopened(manifest),
        [sentence],
        ["every figure, since neither the model nor the data was used"],
        reason,
    )


def _result(study: Study, folder: Path, comparison: Comparison, premises: Sequence[str]) -> VerifyResult:
    if folder.is_file():
        sentence = f"what brinell {study.verb} measures comes out again, with the data and the model and the stored weights"
        return _of(study, folder, comparison, premises, [sentence], repetition.claims_of(study).reasons())
    sentences = [
        f"brinell {study.verb} was carried out again from its request: the manifest comes out again, and no file is missing or "
        "foreign",
        f"{comparison.rows:,} rows and {comparison.arrays:,} arrays come out again"
        + (f", {comparison.boundary} of them otherwise by no more than rounding may change" if comparison.boundary else ""),
        "the request file, the tables and the page are those that the manifest and the records produce",
    ]
    unverified = repetition.claims_of(study).reasons()
    if not repetition.same_version(folder):
        unverified = [*unverified, "the tables and the page, since another version of brinell wrote them"]
        sentences = sentences[:-1]
    return _of(study, folder, comparison, premises, sentences, unverified)


def _of(
    study: Study,
    folder: Path,
    comparison: Comparison,
    premises: Sequence[str],
    verified: Sequence[str] = (),
    unverified: Sequence[str] = (),
    reason: str = "",
) -> VerifyResult:
    notes = Notes()
    for difference in comparison.differences:
        notes.note(difference.location, difference.description, difference.samples or None)
    status = Status.CONSISTENT if reason or not repetition.same_version(folder) else Status.PROVED
    status = Status.REFUSED if notes.problems else status
    return VerifyResult(
        run=str(folder),
        status=status,
        passed=status == Status.PROVED,
        premises=list(premises),
        rows=comparison.rows,
        replayed=0 if reason else comparison.rows,
        deviations=comparison.boundary,
        verified_claims=[] if notes.problems else list(verified),
        unverified_claims=list(unverified),
        claimed=sorted(repetition.claims_of(study).patterns),
        problems=notes.problems,
        refusal=reason,
    )
