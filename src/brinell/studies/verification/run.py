"""Runs a verification, from the folder to the verdict."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

from brinell.core.errors import BrinellError, RequestError, option
from brinell.core.record import CLEAN, has_broken
from brinell.core.version import VERSION
from brinell.engine.audit import plan_facts
from brinell.engine.plan import Plan
from brinell.engine.request import IN_MEMORY
from brinell.engine.toml import parse_request
from brinell.store.differences import Comparison, compare_folders, compare_json
from brinell.store.folder import MANIFEST, fitting
from brinell.store.proofs import PROOFS
from brinell.store.row_rules import make_cells
from brinell.store.run import LAYOUT, Run
from brinell.store.signature import signers
from brinell.store.standing import claimed_names
from brinell.store.trust import MARK, check_directory, find_origin, refusal, request_text
from brinell.studies import repetition
from brinell.studies.audit.plan import plan_audit
from brinell.studies.audit_detectors import FOLDER as DETECTORS
from brinell.studies.kit import Call, Study
from brinell.studies.verification.premises import list_premises, list_unopened
from brinell.studies.verification.repeated_audit import MOST_DEVIATIONS, Repetition, take_served
from brinell.studies.verification.request import VerifyRequest
from brinell.studies.verification.result import VerifyResult

FILES_ALONE = "every figure, since neither the model nor the data was used"
DERIVED = "the request file, the tables and the page are those that the manifest and the records produce"


def carry_out(call: Call) -> VerifyResult:
    """Verify the folder or the file of a study. Models and data that the call names replace those of the folder.

    Raises:
        RequestError: the folder is damaged or unfinished, no signer signed it, or its request cannot be carried out again.
    """
    options: VerifyRequest = call.request
    study, manifest = repetition.identify(Path(options.run))
    folder = Path(options.run).absolute()  # the directory changes below
    signatures = signers(options.run, options.signed_by)
    replaced = _replacements(study, options, manifest["request"])
    specs = {name: value for name, value in replaced.items() if name not in (*call.datasets, *call.objects)}
    text = request_text(manifest)
    origin = find_origin(folder, text, manifest.get(MARK), call.trust)
    if folder.is_dir() and manifest["brinell"] != VERSION:
        reason = f"another version of brinell ({manifest['brinell']}) made it, and this is {VERSION}"
        return _with_sources(call, study, folder, manifest, verify_files(folder, reason, signatures))
    if origin is None:
        call.progress.warn(str(refusal(folder)))
        return _with_sources(call, study, folder, manifest, verify_files(folder, str(refusal(folder)), signatures))
    if specs:
        check_directory(folder, text, origin)
    with chdir(origin):
        request: Any = parse_request(study.request, {**manifest["request"], **specs})
        _check_in_memory(study, folder, request, call)
        premises = list_premises(
            repetition.proved_manifests(study, folder, manifest),
            {*replaced, *call.datasets, *call.objects},
            options.digest if study.sources is None else (),
        )
        call.progress.note(f"carrying out brinell {study.verb} again, to compare what comes out")
        if study.verb != LAYOUT.verb:
            comparison = Comparison()
            if _check_files(study, folder, manifest, comparison):
                pass
            elif study.sources is not None:
                with fitting(folder):
                    repetition.check_texts(folder, _claims(study, folder), comparison)
            else:
                settings = {"command": str(manifest.get("command")), "options": study.options and study.options()}
                repetition.repeat(call, folder, comparison, replaced, study=study, request=request, **settings)
            return _with_sources(call, study, folder, manifest, _of_study(study, folder, comparison, premises, signatures))
        run, models = Run(folder, manifest), call.models()
        _check_names(run, [model.name for model in models])
        plan = plan_audit(request, dataset=call.dataset(), models=models)
        result = verify_run(run, plan, count=options.replay, premises=premises, signatures=signatures, replaced=replaced)
    for name in (PROOFS, DETECTORS):
        if (folder / name / MANIFEST).is_file() and not result.problems:
            within = call.request.model_copy(update={"run": str(folder / name), "signed_by": None, "digest": ()})
            result = result.joined(carry_out(replace(call, request=within)), name)
    return result


def _with_sources(call: Call, study: Study, folder: Path, manifest: Mapping[str, Any], result: VerifyResult) -> VerifyResult:
    """The result of a folder with those of the folders that it is made from."""
    if study.sources is not None and not result.problems:
        for source in study.resolve(study.sources)(folder, manifest):
            request = call.request.model_copy(update={"run": str(source), "signed_by": None})
            result = result.joined(carry_out(replace(call, request=request)), source.name)
    return result


def data_of(settings: Mapping[str, Any]) -> str:
    """Data that a folder names. They decide which inputs a model in memory takes."""
    _, manifest = repetition.identify(Path(settings["run"]))
    return str(manifest["request"].get("data", "digits"))


def verify_files(path: Path, reason: str, signatures: Sequence[str] = ()) -> VerifyResult:
    """Verify a folder from its files alone, whatever it names: digests, rules of rows, request, tables and page.

    Args:
        path: the folder, of a run or of another study.
        reason: why its models and data are not used.
        signatures: a sentence about each signature that it carries.

    Raises:
        RequestError: it is no folder of ours, damaged, or not finished.
    """
    study, manifest = repetition.identify(path)
    comparison = Comparison()
    if path.is_dir() and not _check_files(study, path, manifest, comparison) and manifest["brinell"] == VERSION:
        with fitting(path):
            repetition.check_texts(path, _claims(study, path), comparison)
    claimed = claimed_names(repetition.claims_of(study).patterns)
    unverified = [FILES_ALONE if "version" not in reason else f"every figure, since {reason}"]
    verified = [*signatures, "the files are those that the manifest lists, with its hashes", DERIVED]
    return VerifyResult.of(path, comparison, list_unopened(manifest), verified, unverified, claimed, reason)


def verify_run(
    run: Run,
    plan: Plan,
    *,
    count: int | None = None,
    premises: Sequence[str] = (),
    signatures: Sequence[str] = (),
    replaced: Mapping[str, Any] | None = None,
) -> VerifyResult:
    """Carry an audit out again on drawn samples, judge each stored input again, and compare what comes out.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request, with the data and models that it names.
        count: samples of each model to attack again; None for 8 or 5 %, whichever is more.
        premises: a sentence about each premise of the verdict.
        signatures: a sentence about each signature that the run carries.
        replaced: settings of the request that the person gave.
    """
    (study, _), comparison = repetition.identify(run.path), Comparison()
    claims = _claims(study, run.path, replaced)
    if not _check_files(study, run.path, run.manifest, comparison):
        facts = json.loads(json.dumps({key: value for key, value in plan_facts(plan).items() if key != "warnings"}))
        take_served(facts, run.manifest)
        compare_json(MANIFEST, {key: run.manifest.get(key) for key in facts}, facts, claims, comparison)
        for source in plan.models if not comparison.differences else ():
            if run.part(source.name, CLEAN).sample_id.tolist() != plan.ids.tolist():
                comparison.note(f"{source.name} clean", "the rows are not one for each sample in order")
    if comparison.differences:
        return VerifyResult.of(run.path, comparison, list(premises), [], [FILES_ALONE], claimed_names(claims.patterns))
    comparison.rows = 0
    repeated = Repetition(run, plan, count, comparison)
    try:
        with tempfile.TemporaryDirectory(prefix="brinell-") as place, fitting(run.path):
            repeated.carry_out(Path(place) / "again")
            compare_folders(run.path, Path(place) / "again", claims, comparison, derived=False)
            if not comparison.differences:
                repetition.check_texts(run.path, claims, comparison)
    except BrinellError:
        if not comparison.differences:
            raise
        unverified = ["every figure, since the repetition stopped at what is false"]
        return VerifyResult.of(run.path, comparison, list(premises), [], unverified, claimed_names(claims.patterns))
    if comparison.boundary > max(1, MOST_DEVIATIONS * repeated.replayed):
        comparison.note(MANIFEST, f"{comparison.boundary} of {repeated.replayed} rows come out differently")
    drawn = {name: int(samples.sum()) for name, samples in repeated.drawn.items()}
    left = [
        f"{name}: the attacked samples, since none was to be repeated"
        for name in drawn
        if repeated.attacked[name] > drawn[name] == 0
    ]
    left += [f"{name}: exact rows and costs, since the model answers at random" for name in sorted(repeated.random)]
    return VerifyResult.of(
        run.path,
        comparison,
        list(premises),
        [*signatures, *_sentences(repeated, drawn)],
        [*left, *repeated.unsettled, *claims.reasons()],
        claimed_names(claims.patterns),
        repeated=count != 0 or not any(repeated.attacked.values()),
        predictions=repeated.predictions,
        successes=repeated.successes,
        replayed=repeated.replayed,
        samples=sum(drawn.values()),
    )


def _sentences(repeated: Repetition, drawn: Mapping[str, int]) -> list[str]:
    """What was found of an audit that holds."""
    sentences = [
        "the manifest follows from the request, the data and the models, and no file is missing, changed or foreign",
        f"the models predict the recorded classes for all {repeated.predictions:,} clean inputs, and checks come out as recorded",
        f"each of {repeated.successes:,} stored adversarial inputs is a success within its budget",
        DERIVED,
    ]
    for name, attacked in repeated.attacked.items():
        tenth = max(1, round(0.1 * attacked))
        single, several = (miss_probability(attacked, drawn[name], forged) for forged in (1, tenth))
        missed = f"this misses {tenth} forged samples with probability {several:.2g}, and a single one with {single:.2g}"
        if name in repeated.random:
            missed = "up to 2 forged ones among them, or more that answers leave open, pass for chance"
        if drawn[name]:
            sentences.append(f"{name}: {drawn[name]} of {attacked} attacked samples were attacked again; {missed}")
    return sentences


def miss_probability(samples: int, drawn: int, forged: int) -> float:
    """Probability that none of `forged` false samples, of `samples`, is among the `drawn` ones."""
    return comb(samples - forged, drawn) / comb(samples, drawn) if forged <= samples else 0.0


def _of_study(
    study: Study, folder: Path, comparison: Comparison, premises: Sequence[str], signatures: Sequence[str]
) -> VerifyResult:
    boundary = f", {comparison.boundary} of them otherwise by no more than rounding may change" if comparison.boundary else ""
    repeated = (
        f"brinell {study.verb} was carried out again from its request: {comparison.rows:,} rows and {comparison.arrays:,} arrays "
        f"come out again{boundary}"
    )
    verified = [
        *signatures,
        *([repeated] if study.sources is None else []),
        DERIVED if folder.is_dir() else "what the file says of itself comes out again, with the stored weights",
    ]
    claims = repetition.claims_of(study)
    claimed = claimed_names(claims.patterns)
    return VerifyResult.of(folder, comparison, list(premises), verified, claims.reasons(), claimed, replayed=comparison.rows)


def _claims(study: Study, folder: Path, replaced: Mapping[str, Any] | None = None) -> Any:
    """What is claimed in a folder; folders that other commands keep in a run are verified by themselves."""
    nested = [path.parent.name for path in folder.glob(f"*/{MANIFEST}")] if study.verb == LAYOUT.verb else []
    claims = repetition.claims_of(study, replaced)
    return replace(claims, patterns={**claims.patterns, **{f"{name}/*": "the folders in it" for name in nested}})


def _check_files(study: Study, folder: Path, manifest: Mapping[str, Any], comparison: Comparison) -> bool:
    """Note files that are missing, changed or foreign, and rows that break a rule; True if there are any."""
    for name, problem in study.resolve(study.layout).find_faults(folder, manifest) if folder.is_dir() else ():
        comparison.note(name, f"the file {problem}")
    if study.verb == LAYOUT.verb and not comparison.differences:
        with fitting(folder):
            run = Run(folder, dict(manifest))
            for location, violation in run.violations():
                comparison.note(location, violation.description, violation.samples.tolist())
            for cell in make_cells(manifest):
                rows = run.part(cell.model, cell.stage)
                comparison.rows += len(rows)
                if odd := set(rows.sample_id[has_broken(rows)].tolist()) ^ run.stored(cell.model, cell.stage):
                    comparison.note(cell.location, "an input is stored, and no row says so, or the other way round", sorted(odd))
    return bool(comparison.differences)


def _replacements(study: Study, options: VerifyRequest, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the folder's request that the person replaces, with their values."""
    replaced: dict[str, Any] = {}
    if study.sources is not None:  # they are those of what it is made from
        return replaced
    for name, given in (("model", list(options.model)), ("data", options.data)):
        if not given:
            continue
        if name not in study.request.model_fields:
            raise RequestError(f"brinell {study.verb} has no setting {name}: leave out {option(name)}")
        several = isinstance(values.get(name), list | tuple)
        if isinstance(given, list) and not several and len(given) > 1:
            raise RequestError(f"brinell {study.verb} has one model: give {option(name)} once")
        replaced[name] = given if several or isinstance(given, str) else given[0]
    return replaced


def _check_in_memory(study: Study, folder: Path, request: Any, call: Call) -> None:
    """Refuse a call without the models or data that the study had in memory."""
    for name in (name for name in study.in_memory() if name in study.request.model_fields):
        value = getattr(request, name)
        texts = value if isinstance(value, tuple) else (value or "",)
        if any(text.startswith(IN_MEMORY) for text in texts) and name not in (*call.datasets, *call.objects):
            raise RequestError(
                f"{folder} was made with {name} in memory, and verification needs it again: "
                + ("pass it to brinell.verify(folder, model, data)" if name in ("model", "data") else f"name a file as {name}")
            )


def _check_names(run: Run, given: Sequence[str]) -> None:
    """Refuse models of other names than those of a run."""
    names = [str(entry["name"]) for entry in run.manifest["models"]]
    if given and list(given) != names:
        raise RequestError(
            f"{run.path} contains {', '.join(names)}, but the call gives {', '.join(given)}: pass the models of the run"
        )
