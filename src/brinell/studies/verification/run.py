"""Runs a verification, from the folder to the verdict: the request of a folder is carried out again, and both are compared."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

from brinell.core import bounded
from brinell.core.errors import BrinellError, RequestError, option
from brinell.core.record import CLEAN, has_broken
from brinell.core.version import VERSION
from brinell.engine.audit import plan_facts
from brinell.engine.job import settings_text
from brinell.engine.plan import Plan
from brinell.engine.progress import SilentProgress
from brinell.engine.request import IN_MEMORY
from brinell.engine.toml import parse_request
from brinell.store.folder import MANIFEST, REQUEST, fitting, read_json
from brinell.store.row_rules import find_violations
from brinell.store.run import LAYOUT, Run
from brinell.store.run_manifest import stages_of
from brinell.store.signature import signers
from brinell.store.standing import CLAIMED, claimed_names
from brinell.store.trust import MARK, check_directory, find_origin, refusal, request_text, without_mark
from brinell.studies.audit.plan import plan_audit
from brinell.studies.kit import Call, Study
from brinell.studies.register import study_of
from brinell.studies.verification import VerifyRequest
from brinell.studies.verification.audit import Repetition, take_served
from brinell.studies.verification.differences import (
    DATA,
    Claims,
    Comparison,
    compare_folders,
    compare_json,
    compare_texts,
    content_of,
    list_files,
)
from brinell.studies.verification.premises import list_premises
from brinell.studies.verification.result import VerifyResult

FILES_ALONE = "every figure, since neither the model nor the data was used"
DERIVED = "the request file, the tables and the page are those that the manifest and the records produce"


def carry_out(call: Call) -> VerifyResult:
    """Verify the folder of a study, the folders in it and those that it derives from.

    Models and data that the call names replace those of the folder.
    """
    folder = Path(call.request.run).absolute()
    result = _verify(call, folder)
    nested = [path.parent for path in sorted(folder.glob(f"*/{MANIFEST}"))] if study_of(folder).verb == LAYOUT.verb else []
    for place in nested if not result.problems else ():
        of_nested = call.request.model_copy(update={"run": str(place), "digest": ()})
        result = result.joined(_verify(replace(call, request=of_nested), place, nested=True), place.name)
    return result


def data_of(settings: Mapping[str, Any]) -> str:
    """Data that a folder names. They decide which inputs a model in memory takes."""
    return str(read_json(Path(settings["run"]) / MANIFEST)["request"].get("data", "digits"))


def _verify(call: Call, folder: Path, *, nested: bool = False) -> VerifyResult:
    """Verify one folder and, unless it is `nested` in one that is verified, those that it derives from."""
    study = study_of(folder)
    manifest = study.layout.read(folder)
    result = _verify_alone(call, study, folder, manifest)
    if nested or result.problems:
        return result
    for source in () if study.sources is None else study.resolve(study.sources)(folder, manifest):
        request = call.request.model_copy(update={"run": str(source), "signed_by": None})
        result = result.joined(carry_out(replace(call, request=request)), source.name)
    derived_from = {**manifest.get("derived_from", {}), **manifest.get("runs", {})}  # a comparison has an audit in its folder
    for path, digest in derived_from.items():
        place = folder / path.removeprefix("FOLDER/") if path.startswith("FOLDER/") else _origin(folder, manifest, call) / path
        result = result.joined(_verify_source(call, place, digest), path)
    return result


def _origin(folder: Path, manifest: Mapping[str, Any], call: Call) -> Path:
    """The directory that relative names in a folder are meant from; this one for a folder from elsewhere."""
    return find_origin(folder, request_text(manifest), manifest.get(MARK), call.trust) or Path.cwd()


def _verify_alone(call: Call, study: Study, folder: Path, manifest: Mapping[str, Any]) -> VerifyResult:
    options, text, signatures = call.request, request_text(manifest), signers(folder, call.request.signed_by)
    replaced = {} if study.sources is not None else _replacements(study, options, manifest["request"])
    specs = {name: value for name, value in replaced.items() if name not in (*call.datasets, *call.objects)}
    origin = find_origin(folder, text, manifest.get(MARK), call.trust)
    if manifest["brinell"] != VERSION:
        reason = f"another version of brinell ({manifest['brinell']}) made it, and this is {VERSION}"
        return verify_files(folder, reason, signatures)
    if origin is None:
        call.progress.warn(str(refusal(folder)))
        return verify_files(folder, str(refusal(folder)), signatures)
    if specs:
        check_directory(folder, text, origin)
    with chdir(origin):
        request: Any = parse_request(study.request, {**manifest["request"], **specs})
        _check_in_memory(study, folder, request, call)
        digests = options.digest if study.sources is None else ()
        premises = list_premises(_without_claims(study, folder, manifest), {*replaced, *call.datasets, *call.objects}, digests)
        call.progress.note(f"carrying out brinell {study.verb} again, to compare what comes out")
        if study.verb == LAYOUT.verb:
            run, models = Run(folder, dict(manifest)), call.models()
            _check_names(run, [model.name for model in models])
            plan = plan_audit(request, dataset=call.dataset(), models=models)
            return verify_run(run, plan, count=options.replay, premises=premises, signatures=signatures, replaced=replaced)
        repeat = replace(call, study=study, request=request, options=study.options and study.options())
        return _verify_study(repeat, folder, manifest, premises, signatures, replaced)


def _verify_source(call: Call, folder: Path, digest: str) -> VerifyResult:
    """Verify a folder that another one derives from, which names it by the digest of its manifest."""
    file = folder / MANIFEST
    if not file.is_file() or bounded.digest(file) != digest:
        text = f"{folder}, which it derives from: it is not there, or is another one than the manifest names"
        return VerifyResult.of(folder, Comparison(), unverified=[text], refusal="it is not there")
    request = call.request.model_copy(update={"run": str(folder), "signed_by": None, "digest": (), "model": (), "data": None})
    return _verify(replace(call, request=request, datasets={}, objects={}), folder)


def _verify_study(
    call: Call,
    folder: Path,
    manifest: Mapping[str, Any],
    premises: Sequence[str],
    signatures: Sequence[str],
    replaced: Mapping[str, Any],
) -> VerifyResult:
    """Carry the call of a folder out again in another folder, and compare both."""
    study, claims, comparison = call.study, _claims(call.study, folder, replaced), Comparison()
    if _check_files(study, folder, manifest, comparison):
        pass
    elif study.sources is not None:  # it holds nothing of its own
        with fitting(folder):
            _check_texts(folder, claims, comparison)
    else:
        with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
            repeat = Path(directory) / "again"
            quiet = replace(call, command=str(manifest.get("command")), out=repeat, progress=SilentProgress())
            if study.repeat is None:
                study.resolve(study.run)(quiet)
            else:
                study.resolve(study.repeat)(quiet, folder)
            with fitting(folder):
                compare_folders(folder, repeat, claims, comparison)
                if not comparison.differences:
                    _check_texts(folder, claims, comparison)
    boundary = f", {comparison.boundary} of them otherwise by no more than rounding may change" if comparison.boundary else ""
    counts = f"{comparison.rows:,} rows and {comparison.arrays:,} arrays come out again{boundary}"
    repeated = f"brinell {study.verb} was carried out again from its request: {counts}"
    return VerifyResult.of(
        folder,
        comparison,
        premises=premises,
        verified=[*signatures, *([repeated] if study.sources is None else []), DERIVED],
        unverified=_reasons(claims),
        claimed=claimed_names(claims.patterns),
        replayed=comparison.rows,
    )


def verify_files(path: Path, reason: str, signatures: Sequence[str] = ()) -> VerifyResult:
    """Verify a folder from its files alone, whatever it names: digests, rules of rows, request, tables and page.

    Args:
        path: the folder, of a run or of another study.
        reason: why its models and data are not used.
        signatures: a sentence about each signature that it carries.
    """
    study, comparison = study_of(path), Comparison()
    manifest = study.layout.read(path)
    claims = _claims(study, path)
    if not _check_files(study, path, manifest, comparison) and manifest["brinell"] == VERSION:
        with fitting(path):
            _check_texts(path, claims, comparison)
    return VerifyResult.of(
        path,
        comparison,
        premises=list_premises([manifest], (), (), is_open=False),
        verified=[*signatures, "the files are those that the manifest lists, with its hashes", DERIVED],
        unverified=[FILES_ALONE if "version" not in reason else f"every figure, since {reason}"],
        claimed=claimed_names(claims.patterns),
        refusal=reason,
    )


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
    study, comparison = study_of(run.path), Comparison()
    claims = _claims(study, run.path, replaced)
    repetition = Repetition(run, plan, count, comparison, claims)
    try:
        if not _check_files(study, run.path, run.manifest, comparison):
            facts = json.loads(json.dumps({key: value for key, value in plan_facts(plan).items() if key != "warnings"}))
            take_served(facts, run.manifest)
            compare_json(MANIFEST, {key: run.manifest.get(key) for key in facts}, facts, claims, comparison)
            for source in plan.models:
                if run.part(source.name, CLEAN).sample_id.tolist() != plan.ids.tolist():
                    comparison.note(f"{source.name} clean", "the rows are not one for each sample in order")
        if not comparison.differences:
            with tempfile.TemporaryDirectory(prefix="brinell-") as place, fitting(run.path):
                repetition.carry_out(Path(place) / "again")
                if not comparison.differences:
                    _check_texts(run.path, claims, comparison)
    except BrinellError:
        if not comparison.differences:
            raise
    open_points = ["every figure, since something is false"] if comparison.differences else []
    open_points += [
        f"{name}: the attacked samples, since none was to be repeated"
        for name, draws in repetition.drawn.items()
        if repetition.attacked[name] > draws == 0
    ]
    open_points += [f"{name}: exact rows and costs, since the model answers at random" for name in sorted(repetition.random)]
    return VerifyResult.of(
        run.path,
        comparison,
        premises=premises,
        verified=[*signatures, *_sentences(repetition)],
        unverified=[*open_points, *repetition.unsettled, *_reasons(claims)],
        claimed=claimed_names(claims.patterns),
        repeated=count != 0 or not any(repetition.attacked.values()),
        predictions=repetition.predictions,
        successes=repetition.successes,
        replayed=repetition.replayed,
        samples=sum(repetition.drawn.values()),
    )


def _sentences(repetition: Repetition) -> list[str]:
    """What was found of an audit that holds."""
    sentences = [
        "the manifest follows from the request, the data and the models, and no file is missing, changed or foreign",
        f"the models predict the recorded classes for all {repetition.predictions:,} clean inputs, and checks come out as "
        "recorded",
        f"each of {repetition.successes:,} stored adversarial inputs is a success within its budget",
        DERIVED,
    ]
    for name, attacked in repetition.attacked.items():
        draws, tenth = repetition.drawn[name], max(1, round(0.1 * attacked))
        single, multiple = (miss_probability(attacked, draws, forged) for forged in (1, tenth))
        missed = f"this misses {tenth} forged samples with probability {multiple:.2g}, and a single one with {single:.2g}"
        if name in repetition.random:
            missed = "up to 9 forged ones among them, or more that answers leave open, pass for chance"
        if draws:
            sentences.append(f"{name}: {draws} of {attacked} attacked samples were attacked again; {missed}")
    return sentences


def miss_probability(samples: int, draws: int, forged: int) -> float:
    """Probability that none of `forged` false samples, of `samples`, is among the `drawn` ones."""
    return comb(samples - forged, draws) / comb(samples, draws) if forged <= samples else 0.0


def _claims(study: Study, folder: Path, replaced: Mapping[str, Any] | None = None) -> Claims:
    """What is claimed in a folder, with the reasons.

    Folders that other commands keep in a run are verified by themselves; `replaced` are settings that the person gave in place of
    the folder's.
    """
    nested = [path.parent.name for path in folder.glob(f"*/{MANIFEST}")] if study.verb == LAYOUT.verb else []
    names = [f"{MANIFEST}:request.{name}" for name in replaced or {}]
    names += [f"{MANIFEST}:{key}" for key in ("cell", "*.spec", "data.name")] if replaced else []
    defaults = dict.fromkeys(names, "the names of models and data that you replaced")
    return Claims({**CLAIMED, **dict(study.claimed), **defaults, **{f"{name}/*": "the folders in it" for name in nested}})


def _reasons(claims: Claims) -> list[str]:
    return list(dict.fromkeys(claims.patterns.values()))


def _check_files(study: Study, folder: Path, manifest: Mapping[str, Any], comparison: Comparison) -> bool:
    """Note files that are missing, changed or foreign, and rows that break a rule; True if there are any."""
    for name, problem in study.layout.find_faults(folder, manifest):
        comparison.note(name, f"the file {problem}")
    if study.verb == LAYOUT.verb and not comparison.differences:
        with fitting(folder):
            run = Run(folder, dict(manifest))
            parts = run.parts()
            for location, description, samples in find_violations(manifest, parts):
                comparison.note(location, description, samples.tolist())
            comparison.rows = sum(map(len, parts))
            for (model, stage), rows in zip(stages_of(manifest), parts, strict=True):
                if odd := set(rows.sample_id[has_broken(rows)].tolist()) ^ run.stored(model, stage):
                    description = "an input is stored, and no row says so, or the other way round"
                    comparison.note(f"{model} {stage}", description, sorted(odd))
    return bool(comparison.differences)


def _check_texts(folder: Path, claims: Claims, comparison: Comparison) -> None:
    """Compare request files, tables and page of a folder with those that its manifest and records produce.

    An audit that has neither table nor page shows nothing.
    """
    names = [name for name in list_files(folder) if not claims.covers(name)]
    for place in (folder / name for name in names if Path(name).name == MANIFEST):
        _check_request_file(place.parent, folder, comparison)
    if study_of(folder).verb != LAYOUT.verb or not all(name.endswith(DATA) for name in names):
        with _written_anew(folder) as anew:
            compare_texts(folder, anew, claims, comparison)


def _check_request_file(place: Path, folder: Path, comparison: Comparison) -> None:
    file, study, manifest = place / REQUEST, study_of(place), read_json(place / MANIFEST)
    if file.exists():
        request = parse_request(study.request, dict(manifest["request"]))
        text = settings_text(study.layout, request, str(manifest.get("command")), place)
        if without_mark(bounded.text(file)) != without_mark(text):
            comparison.note(str(file.relative_to(folder)), "the file differs from the request in the manifest")


@contextmanager
def _written_anew(folder: Path) -> Iterator[Path]:
    """A copy of a folder with its data, and with tables and pages that are written anew from them."""
    with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        copy = Path(directory) / "copy"
        for name in (name for name in list_files(folder) if name.endswith(DATA)):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(content_of(folder / name))
        for manifest in sorted(copy.rglob(MANIFEST), key=lambda path: -len(path.parts)):
            study = study_of(manifest.parent)
            if study.leaves_folder:
                place = () if study.sources is None else (folder / manifest.parent.relative_to(copy),)
                study.write_page(manifest.parent, *place)
        yield copy


def _without_claims(study: Study, folder: Path, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The manifest of a study and those of the audits in its folder, without the keys that they claim."""
    nested = [path for path in folder.glob(f"*/{MANIFEST}")]
    claims = _claims(study, folder)
    return [
        {key: value for key, value in content.items() if not claims.covers(MANIFEST, key)}
        for content in (manifest, *map(read_json, nested))
    ]


def _replacements(study: Study, options: VerifyRequest, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the folder's request that the person replaces, with their values."""
    replaced: dict[str, Any] = {}
    for name, stated in (("model", list(options.model)), ("data", options.data)):
        if not stated:
            continue
        if name not in study.request.model_fields:
            raise RequestError(f"brinell {study.verb} has no setting {name}: leave out {option(name)}")
        multiple = isinstance(values.get(name), list | tuple)
        if isinstance(stated, list) and not multiple and len(stated) > 1:
            raise RequestError(f"brinell {study.verb} has one model: give {option(name)} once")
        replaced[name] = stated if multiple or isinstance(stated, str) else stated[0]
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


def _check_names(run: Run, stated: Sequence[str]) -> None:
    """Refuse models of other names than those of a run."""
    names = [str(entry["name"]) for entry in run.manifest["models"]]
    if stated and list(stated) != names:
        raise RequestError(
            f"{run.path} contains {', '.join(names)}, but the call gives {', '.join(stated)}: pass the models of the run"
        )
