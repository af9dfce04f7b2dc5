"""Runs a verification, from the folder to the verdict: the request of a folder is carried out
again, and both are compared.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.analysis.robust_accuracy import summarise
from brinell.analysis.robustness_field import differing_keys, field_of
from brinell.core import bounded
from brinell.core.errors import BrinellError, RequestError, option
from brinell.core.record import Records, claimed_columns
from brinell.core.version import VERSION
from brinell.engine.model_process import Code, running
from brinell.engine.progress import SilentProgress
from brinell.engine.request import IN_MEMORY, FitOptions
from brinell.engine.toml import parse_request
from brinell.plugins import ForeignCodeError
from brinell.store.folder import MANIFEST, REQUEST, fitting, read_json
from brinell.store.run import Run
from brinell.store.signature import signers
from brinell.store.trust import MARK, check_directory, find_origin, refusal, request_text
from brinell.studies.differences import (
    DATA,
    DERIVED,
    Claims,
    Difference,
    FolderComparison,
    Repetition,
    Statements,
    compare_folders,
    compare_json,
    compare_texts,
    content_of,
    list_files,
    size_of_data,
)
from brinell.studies.job import settings_text
from brinell.studies.kit import Call, Study
from brinell.studies.register import load, study_of
from brinell.studies.verdicts import recall
from brinell.studies.verification import VerifyRequest
from brinell.studies.verification.premises import list_premises
from brinell.studies.verification.result import VerifyResult

REPLACED = "the names of models and data that you replaced"
NAMES: tuple[tuple[str | None, ...], ...] = (
    ("cell",),
    ("data", "spec"),
    ("data", "name"),
    ("models", None, "spec"),
    ("more_models", None, "spec"),
)
"""Their places in a manifest; None stands for each number in a list."""


def carry_out(call: Call) -> VerifyResult:
    """Verify the folder of a study, the folders in it and those that it derives from, by the
    digests of their manifests.

    Models and data that the call names replace those of the folder.
    """
    result = _walk(call, set())
    return result if call.request.field is None else _with_field(call, result)


def _with_field(call: Call, result: VerifyResult) -> VerifyResult:
    """The result of a run with that of a field about one of its models."""
    run = Run.open(call.request.run)
    audit = summarise(run.manifest, run.rows, call.request.run)
    path = Path(call.request.field)
    field = read_json(path)
    models = {model.name: model for model in audit.models}
    # A field of a model that the run does not hold differs from that of the first in its name.
    expected = field_of(models.get(str(field.get("model")), audit.models[0]), run.manifest)

    problems = [
        Difference(location=key, description="this is not what the run says")
        for key in differing_keys(field, expected)
    ]
    claims = [] if problems else ["it says what the run says"]
    part = VerifyResult(run=str(path), problems=problems, verified_claims=claims)
    return result.joined(part, path.name)


def _walk(call: Call, places: set[Path]) -> VerifyResult:
    """Verify a folder, and those that it names or holds, but for those that were seen."""
    folder = Path(call.request.run).absolute()
    places.add(folder.resolve())
    study = study_of(folder)
    result = _verify_alone(call, study, folder)

    inner = [(place.name, place) for place in _inner_folders(study, folder)]
    for name, place in [*inner, *_origins(call, study, folder)]:
        # One problem refuses all, and a folder that several name is verified once.
        if result.problems or (place is not None and place.resolve() in places):
            continue
        reason = "it is not there, or is another one than the manifest names"
        part = VerifyResult(run=name, refusal=reason)
        if place is not None:
            part = _walk(_call_for(call, study, folder, place), places)
        result = result.joined(part, name)
    return result


def _call_for(call: Call, study: Study, folder: Path, place: Path) -> Call:
    """The call for a folder that another one holds or names, with as much of what the person named
    as concerns both.
    """
    is_inner = place.parent == folder and study.hosts
    is_source = not is_inner and study.function("sources") is not None
    # A study of the data alone has no model to replace.
    takes_model = is_source or (is_inner and "model" in study_of(place).request.model_fields)
    data = [
        (read_json(path / MANIFEST).get("data") or {}).get("digest") for path in (folder, place)
    ]
    takes_data = is_inner or is_source or data[0] == data[1] is not None

    settings = {
        "run": str(place),
        "model": call.request.model if takes_model else (),
        "data": call.request.data if takes_data else None,
        "digest": call.request.digest if is_source else (),
        "signed_by": call.request.signed_by if is_inner else None,
    }
    return replace(
        call,
        request=call.request.model_copy(update=settings),
        objects=call.objects if takes_model else {},
        datasets=call.datasets if takes_data else {},
    )


def data_of(settings: Mapping[str, Any], trust: Path | None) -> str:
    """Data that a folder names. They decide which inputs a model in memory takes."""
    return str(read_json(Path(settings["run"]) / MANIFEST)["request"].get("data", "digits"))


def _origins(call: Call, study: Study, folder: Path) -> Iterator[tuple[str, Path | None]]:
    """The folders that one derives from; None in the place of one that has another manifest."""
    manifest = study.layout.read(folder)
    sources = study.function("sources")
    yield from ((source.name, source) for source in (sources(folder, manifest) if sources else ()))

    # Relative names are meant from where the folder was made; those of a folder from elsewhere from
    # here.
    origin = _origin_of(folder, manifest, call.trust) or Path.cwd()
    # An audit may have its budgets from a folder that recommended them.
    budgets = manifest.get("recommended") or {}
    digests = {**manifest.get("derived_from", {}), **manifest.get("runs", {})}
    for path, digest in [*digests.items(), (budgets.get("folder"), budgets.get("manifest"))]:
        if path is not None:
            # So a manifest names what lies in its own folder, which may be moved.
            inner = path.removeprefix("FOLDER/")
            place = (folder if inner != path else origin) / inner
            file = place / MANIFEST
            yield path, place if file.is_file() and bounded.digest(file) == digest else None


def _origin_of(folder: Path, manifest: Mapping[str, Any], trust: Path | None) -> Path | None:
    return find_origin(folder, request_text(manifest), manifest.get(MARK), trust)


def _verify_alone(call: Call, study: Study, folder: Path) -> VerifyResult:
    """Verify a folder without those in it and those that it derives from."""
    signatures = signers(folder, call.request.signed_by)
    manifest = study.layout.read(folder)
    origin = _origin_of(folder, manifest, call.trust)
    if manifest["brinell"] != VERSION:
        made_by = f"another version of brinell ({manifest['brinell']}) made it"
        result = verify_files(folder, f"{made_by}, and this is {VERSION}")
    elif origin is None:
        call.progress.warn(str(refusal(folder)))
        result = verify_files(folder, str(refusal(folder)))
    else:
        result = _verify_from(origin, call, study, folder)
    claims = [*signatures, *result.verified_claims] if not result.problems else []
    return result.model_copy(update={"verified_claims": claims})


def _verify_from(origin: Path, call: Call, study: Study, folder: Path) -> VerifyResult:
    """Verify a folder by a repetition, in the directory from which its names are meant."""
    manifest = study.layout.read(folder)
    is_derived = study.function("sources") is not None
    replaced = {} if is_derived else _replacements(study, call.request, manifest["request"])
    in_memory = {*call.datasets, *call.objects}
    if replaced.keys() - in_memory:
        check_directory(folder, request_text(manifest), origin)

    with chdir(origin):
        specs = {name: value for name, value in replaced.items() if name not in in_memory}
        request: Any = parse_request(study.request, {**manifest["request"], **specs})
        _check_in_memory(study, folder, request, in_memory)
        manifests = [manifest, *map(read_json, folder.glob(f"*/{MANIFEST}"))]
        digests = () if is_derived else call.request.digest
        premises = list_premises(manifests, replaced.keys() | in_memory, digests)

        result = recall(
            call,
            folder,
            manifest["request"],
            VerifyResult,
            lambda: _verify_apart(call, study, folder, request, replaced),
            # The reason of others may have been mended since.
            keeps=lambda outcome: not outcome.problems and not outcome.refusal,
        )
    return result.model_copy(update={"premises": premises})


def _verify_apart(
    call: Call, study: Study, folder: Path, request: Any, replaced: Mapping[str, Any]
) -> VerifyResult:
    """Verify a study without running the code of a folder from elsewhere in this process.

    The models of the user's own folders run in it where their study needs more than answers.
    """
    call.progress.note(f"carrying out brinell {study.verb} again, to compare what comes out")
    mark = _origin_of(folder, study.layout.read(folder), trust=None)
    place = Code.APART
    if mark is not None:
        # A study with its own repetition needs answers alone, which a separate process gives.
        has_repetition = study.function("repetition") is not None
        place = Code.MODELS_APART if has_repetition else Code.TOGETHER
    with running(place) as models:
        try:
            return _verify_study(call, study, folder, request, replaced)
        except BrinellError as error:
            if mark is not None or not (models or isinstance(error, ForeignCodeError)):
                raise
            reason = f"its code runs apart, where the study cannot be carried out ({error})"
    return verify_files(folder, reason)


def _verify_study(
    call: Call, study: Study, folder: Path, request: Any, replaced: Mapping[str, Any]
) -> VerifyResult:
    """Carry the request of a study out again, unless it derives from others, and compare what comes
    out.
    """
    recorded = study.layout.read(folder)
    claims, scale = claims_of(study, folder, replaced), size_of_data(recorded)
    comparison = FolderComparison(claims, call.request.replay, scale)
    if study.function("sources") is not None:
        compare_json(
            MANIFEST,
            recorded["request"],
            request.model_dump(mode="json"),
            comparison,
            claims.manifest,
            ("request",),
        )
        _compare(study, folder, comparison)
        coverage = "it was made again, whole, from the folders that it names"
        return _result(folder, comparison, Statements(verified=[DERIVED], coverage=coverage))

    # Of the options, what was expected of the models decides what the folder says.
    options = study.options and study.options()
    if isinstance(options, FitOptions):
        options = options.model_copy(update={"expect": recorded.get("expect")})
    repeated_call = replace(
        call,
        study=study,
        request=request,
        options=options,
        command=str(recorded.get("command")),
        progress=SilentProgress(),
    )
    make_repetition = study.function("repetition") or _WholeRepetition
    return repeat_study(
        study, folder, comparison, make_repetition(repeated_call, folder, comparison)
    )


def repeat_study(
    study: Study, folder: Path, comparison: FolderComparison, repetition: Repetition
) -> VerifyResult:
    """Verify a folder by a repetition of its study, which notes in the comparison what it sees."""
    try:
        _compare(study, folder, comparison, repetition.carry_out)
    except BrinellError:
        if not comparison.differences:  # what is false may stop a repetition
            raise
    return _result(folder, comparison, repetition.statements())


class _WholeRepetition:
    """A study that is carried out again from its request, whole."""

    def __init__(self, call: Call, folder: Path, comparison: FolderComparison) -> None:
        self._call, self._folder, self._comparison = call, folder, comparison

    def carry_out(self, folder: Path) -> None:
        """Carry the call out into a folder, or what the study does in its place."""
        study, call = self._call.study, replace(self._call, out=folder)
        if (repeat := study.function("repeat")) is not None:
            repeat(call, self._folder)
        else:
            study.resolve(study.run)(call)

    def statements(self) -> Statements:
        """How many rows and arrays come out again."""
        comparison, verb = self._comparison, self._call.study.verb
        odd = f", {comparison.boundary} of them otherwise by no more than rounding may change"
        sentence = (
            f"brinell {verb} was carried out again from its request: {comparison.rows:,} rows and "
            f"{comparison.arrays:,} arrays come out again{odd if comparison.boundary else ''}"
        )
        coverage = f"brinell {verb} was carried out again, whole, which misses nothing but claims"
        return Statements(verified=[sentence, DERIVED], replayed=comparison.rows, coverage=coverage)


def verify_files(path: Path, reason: str) -> VerifyResult:
    """Verify a folder from its files alone: digests, rules of rows, request, tables and page;
    `reason` says why.
    """
    study = study_of(path)
    manifest, comparison = study.layout.read(path), FolderComparison(claims_of(study, path))
    _compare(study, path, comparison, has_texts=manifest["brinell"] == VERSION)
    verified = ["the files are those that the manifest lists, with its hashes", DERIVED]
    result = _result(path, comparison, Statements(verified=verified, refusal=reason))
    premises = list_premises([manifest], (), (), is_open=False)
    return result.model_copy(
        update={"premises": premises, "unverified_claims": [f"every figure, since {reason}"]}
    )


def _result(folder: Path, comparison: FolderComparison, statements: Statements) -> VerifyResult:
    return VerifyResult(
        run=str(folder),
        deviations=comparison.boundary,
        verified_claims=[] if comparison.differences else list(statements.verified),
        unverified_claims=[
            *statements.unverified,
            *dict.fromkeys(reason for reason, _ in comparison.claims.listing()),
        ],
        claimed=sorted({_short(place) for _, place in comparison.claims.listing()}),
        problems=comparison.differences,
        refusal=statements.refusal,
        replayed=statements.replayed,
        samples=statements.samples,
        attacked=statements.attacked,
        coverage=statements.coverage,
        undecided=statements.undecided,
    )


def _short(place: str) -> str:
    """The name of a claimed key or column; the path of a claimed file."""
    file, colon, key = place.partition(":")
    return key.rpartition(".")[2] if colon else file


def _inner_folders(study: Study, folder: Path) -> list[Path]:
    """The folders that other commands keep in one, sorted."""
    return sorted(file.parent for file in folder.glob(f"*/{MANIFEST}") if study.hosts)


def claims_of(study: Study, folder: Path, replaced: Mapping[str, Any] | None = None) -> Claims:
    """What is claimed in a folder.

    Folders that other commands keep in a run are verified by themselves; `replaced` are settings
    that the person gave in place of the folder's.
    """
    places = [*(("request", name) for name in replaced or {}), *(NAMES if replaced else ())]
    claims = declared_claims(study)
    return replace(
        claims,
        folders=frozenset(path.name for path in _inner_folders(study, folder)),
        keys={**claims.keys, **dict.fromkeys(places, REPLACED)},
    )


def declared_claims(study: Study) -> Claims:
    """The parts of a folder that the declarations of its study call claimed."""
    rows = study.resolve(study.rows) if study.rows else Records
    return Claims(
        manifest=study.layout.manifest,
        columns=claimed_columns(rows),
        files=dict(study.claimed),
        keys=dict(study.claimed_keys),
        types=lambda verb: load(verb).layout.manifest,
    )


def _compare(
    study: Study,
    folder: Path,
    comparison: FolderComparison,
    repeat: Callable[[Path], object] | None = None,
    *,
    has_texts: bool = True,
) -> None:
    """Compare a folder with its manifest, with what `repeat` makes of its request elsewhere, and
    with the texts of its data.
    """
    with fitting(folder), tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        _check_files(study, folder, comparison)
        if repeat is not None and not comparison.differences:
            again = Path(directory) / "again"
            repeat(again)
            compare_folders(folder, again, comparison)
        if has_texts and not comparison.differences:
            _check_texts(folder, comparison)


def _check_files(study: Study, folder: Path, comparison: FolderComparison) -> None:
    """Note files that are missing, changed or foreign, and rows that break a rule."""
    manifest = study.layout.read(folder)
    for name, problem in study.layout.find_faults(folder, manifest):
        comparison.note(name, f"the file {problem}")
    for file in folder.glob(f"*/**/{MANIFEST}") if study.function("sources") else ():
        name = file.relative_to(folder).as_posix()
        comparison.note(name, "the folder does not name what lies here")
    find_faults = study.function("faults")
    if find_faults is not None and not comparison.differences:
        for location, description, samples in find_faults(folder, manifest):
            comparison.note(location, description, samples.tolist())


def _check_texts(folder: Path, comparison: FolderComparison) -> None:
    """Compare request files, tables and page of a folder with those that are written anew from a
    copy of its data.
    """
    with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        copy, above = Path(directory) / "copy", folder.resolve().parent / MANIFEST
        if above.is_file():  # to which the page links
            (Path(directory) / MANIFEST).write_bytes(content_of(above))
        for name in (name for name in list_files(folder) if name.endswith(DATA)):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(content_of(folder / name))
        # The innermost come first, since the page of a folder shows those in it.
        for manifest in sorted(copy.rglob(MANIFEST), key=lambda path: -len(path.parts)):
            study, origin = study_of(manifest.parent), folder / manifest.parent.relative_to(copy)
            if (origin / REQUEST).exists():
                content = read_json(manifest)
                request = parse_request(study.request, dict(content["request"]))
                text = settings_text(study.layout, request, str(content.get("command")), origin)
                (manifest.parent / REQUEST).write_text(text, encoding="utf-8")
            if study.leaves_folder:
                study.write_page(manifest.parent, *((origin,) if study.function("sources") else ()))
        compare_texts(folder, copy, comparison)


def _replacements(
    study: Study, options: VerifyRequest, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of the folder's request that the person replaces, with their values."""
    models: Any = (
        options.model[0]
        if isinstance(values.get("model"), str) and len(options.model) == 1
        else list(options.model)
    )
    replaced = {name: value for name, value in (("model", models), ("data", options.data)) if value}
    if unknown := sorted(replaced.keys() - study.request.model_fields.keys()):
        raise RequestError(
            f"brinell {study.verb} has no setting {unknown[0]}: leave out {option(unknown[0])}"
        )
    return replaced


def _check_in_memory(study: Study, folder: Path, request: Any, given: set[str]) -> None:
    """Refuse a call without the models or data that the study had in memory."""
    for name in study.in_memory():
        value = getattr(request, name, None)
        texts = value if isinstance(value, tuple) else (value or "",)
        if any(text.startswith(IN_MEMORY) for text in texts) and name not in given:
            raise RequestError(
                f"{folder} was made with {name} in memory, and verification needs it again: "
                + (
                    "pass it to brinell.verify(folder, model, data)"
                    if name in ("model", "data")
                    else f"name a file as {name}"
                )
            )
