"""The rules of studies: a command, a call, a folder and a page follow from one record."""

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from brinell import calls
from brinell.cli.command import Command
from brinell.cli.options import ROOT
from brinell.core.errors import BrinellError
from brinell.engine import toml
from brinell.engine.progress import SilentProgress
from brinell.engine.texts import settings_texts
from brinell.store.folder import MANIFEST, PAGE
from brinell.studies import register
from brinell.studies.kit import WORK, Study
from brinell.testing import form


def check_study(study: Study, example: Mapping[str, Any]) -> None:
    """Check that a study keeps the promises of its record, in a few small runs.

    Args:
        study: the record.
        example: settings of a small run, models and data as specs, that leaves a folder and takes
            seconds.

    Raises:
        ContractError: the first rule that is broken.
    """
    check_record(study)

    with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        run = finish(study, example, Path(directory))
        for rule in (check_records, check_other_request, check_command):
            rule(run)


def check_record(study: Study) -> None:
    """Check that a study is found by its verb, refers to what is there, and explains its settings.

    Raises:
        ContractError: one does not.
    """
    rule = "is not found: name its package as an entry point, and install it"
    _demand(study, study.verb in register.studies(), rule)
    references = {name: getattr(study, name) for name in ("run", "result", "rows")}
    if study.rows is not None:
        references["summary"] = "result:summarise"
    if study.run == f"{WORK}:carry_out":
        references["pieces"] = "run:pieces"
    for name, reference in references.items():
        is_there = reference is None or _resolves(study, reference)
        _demand(study, is_there, f"names {reference} as its {name}, which is not there")

    for name, setting in study.fields().items():
        _demand(study, bool(setting.description), f"does not say what {name} is")
    _demand(study, bool(study.examples), "has no example for its help")

    # A result shows itself on a terminal by its lines.
    result = study.resolve(study.result)
    _demand(study, isinstance(result, type), "has a result that is no type")
    _demand(study, hasattr(result, "lines"), "has a result without lines for a terminal")
    has_layout = not study.leaves_folder or study.layout.verb == study.verb
    _demand(study, has_layout, "has a layout of another verb")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A small run of a study that has ended: the rules are checked on it one by one."""

    study: Study
    example: Mapping[str, Any]
    """Its settings."""
    parent: Path
    """The folder of its folder, and of those that the rules make."""
    result: Any
    rows: Mapping[str, Any]
    """What `rows_of` reads from its folder."""
    writes: int
    """Files that it put in place."""

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.parent / "whole"

    def call(self, **settings: Any) -> Any:
        """Call the study with the example and further settings."""
        return calls.call_of(self.study)(**self.example, progress=SilentProgress(), **settings)


def finish(study: Study, example: Mapping[str, Any], folder: Path) -> FinishedRun:
    """Run the example of a study in a folder within `folder`.

    Raises:
        ContractError: the folder lacks manifest or rows, or the result has another type.
    """
    full = folder / "whole"
    with _writes() as written:
        result = calls.call_of(study)(**example, progress=SilentProgress(), out=full)

    _demand(study, (full / MANIFEST).exists(), f"leaves no {MANIFEST}")
    is_result = isinstance(result, study.resolve(study.result))
    _demand(study, is_result, "returns something else than its result")
    rows = rows_of(full)
    _demand(study, bool(rows) or study.rows is None, "leaves no rows")

    return FinishedRun(
        study=study, example=example, parent=folder, result=result, rows=rows, writes=len(written)
    )


def rows_of(folder: Path) -> dict[str, Any]:
    """All rows of a folder by the folder of their files, without seconds, in a fixed order.

    Of a folder without rows they are its arrays.
    """
    tables_by_folder: dict[str, list[pa.Table]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.read_table(path).replace_schema_metadata(None)
        # Seconds differ between two runs of the same.
        table = table.drop_columns([name for name in table.column_names if name == "seconds"])
        tables_by_folder.setdefault(str(path.parent.relative_to(folder)), []).append(table)
    if not tables_by_folder:
        return {path.name: path.read_bytes() for path in folder.rglob("*.safetensors")}
    return {name: _in_order(pa.concat_tables(tables)) for name, tables in tables_by_folder.items()}


def rows_match(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """True if two mappings of tables, as `rows_of` returns them, hold equal rows."""
    if first.keys() != second.keys():
        return False
    return all(
        _same_table(rows, second[name]) if isinstance(rows, pa.Table) else rows == second[name]
        for name, rows in first.items()
    )


def _same_table(first: pa.Table, second: pa.Table) -> bool:
    """True if two tables hold equal rows."""
    if first.schema != second.schema or len(first) != len(second):
        return False

    for name in first.column_names:
        a = first[name]
        b = second[name]
        # Kernels differ by the size of a batch, so that real numbers are compared with a tolerance.
        if pa.types.is_floating(a.type):
            numbers = np.array([np.nan if value is None else value for value in a.to_pylist()])
            second_numbers = np.array(
                [np.nan if value is None else value for value in b.to_pylist()]
            )
            if not np.allclose(numbers, second_numbers, rtol=1e-5, atol=1e-6, equal_nan=True):
                return False
        elif a != b:
            return False
    return True


def _in_order(table: pa.Table) -> pa.Table:
    """Sorted by names and whole numbers, and among equal ones by floats."""
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    keys = [
        field.name
        for field in table.schema
        if pa.types.is_string(field.type) or pa.types.is_primitive(field.type)
    ]
    # Floats last: their last bits may differ between two runs and must not decide the order.
    return table.sort_by([(name, "ascending") for name in sorted(keys, key=floats.__contains__)])


def check_records(run: FinishedRun) -> None:
    """Check that the records alone give result, page and request again.

    Raises:
        ContractError: they do not.
    """
    study = run.study
    folder = run.folder
    is_equal = study.open(folder) == run.result
    _demand(study, is_equal, "opens its folder as another result than it returned")

    page = folder / PAGE
    _demand(study, page.exists(), f"leaves no {PAGE}")
    # The page follows from the records alone, so it can be written anew.
    before = page.read_bytes()
    study.write_page(folder)
    _demand(study, page.read_bytes() == before, "writes another page from the same records")

    if study.resume:
        settings = toml.load(folder / "run.toml").items()
        recorded = {name: value for name, value in settings if name in study.request.model_fields}
        expected = toml.parse_request(study.request, _settings(study, run.example))
        is_equal = toml.parse_request(study.request, recorded) == expected
        _demand(study, is_equal, "keeps another request in run.toml")


def check_other_request(run: FinishedRun) -> None:
    """Check that a folder refuses another request, and the same request without a resume.

    Raises:
        ContractError: it takes one of them, changes, or says so in more than a line.
    """
    study = run.study
    folder = run.folder
    # Studies without a resume make the same folder again.
    requests: list[dict[str, Any]] = [{}] if study.resume else []
    if study.resume and "seed" in study.request.model_fields:
        # The same command with another seed is the likeliest mistake.
        requests.append({"seed": int(run.example.get("seed", 0)) + 1, "resume": True})

    for settings in requests:
        request = "another request" if settings else "itself, without a resume,"
        try:
            run.call(out=folder, **settings)
        except BrinellError as error:
            is_one_line = "\n" not in str(error) and str(folder) in str(error)
            _demand(study, is_one_line, f"refuses {request} without one line about the folder")
        else:
            _demand(study, False, f"lets {request} into its folder")
    _demand(study, rows_match(rows_of(folder), run.rows), "changes rows as it refuses")


class _Stopped(BaseException):
    """Ends a process in the middle of its work."""


@contextmanager
def _writes(most: int | None = None) -> Iterator[list[str]]:
    """Lists the files that are put in place meanwhile; at the one after `most`, everything stops.

    Raises:
        _Stopped: it did.
    """
    written: list[str] = []
    replace = Path.replace

    def counted(path: Path, target: Path) -> Path:
        """Write a file and stop after the last permitted one."""
        if len(written) == most:
            raise _Stopped
        written.append(str(target))
        return replace(path, target)

    with mock.patch.object(Path, "replace", counted):
        yield written


def check_command(run: FinishedRun) -> None:
    """Check that the command ends a stopped call with the rows of an uninterrupted one.

    A study without a resume begins anew. The schema describes what the command prints.

    Raises:
        ContractError: rows or schema differ.
    """
    study = run.study
    out = run.parent / "command"
    if study.resume:
        # Stopped when half of the files are in place, as by a loss of power.
        with suppress(_Stopped), _writes(run.writes // 2):
            run.call(out=out)
            _demand(study, False, "was not stopped in the middle: it writes less the second time")

    request = toml.parse_request(study.request, _settings(study, run.example))
    values = request.model_dump(exclude_unset=True)
    other = {name: value for name, value in run.example.items() if name not in values}
    # What is not part of the request is an option of the call.
    options = settings_texts(other)
    with redirect_stdout(StringIO()) as printed, mock.patch.object(ROOT, "quiet", True):
        Command(
            study, values, options, file=None, out=out, resume=bool(study.resume), json=True
        ).execute()
    way = "by the command than by the call"
    if study.resume:
        way = "after a stop of the call and a resume by the command"
    _demand(study, rows_match(rows_of(out), run.rows), f"has other rows {way}")

    printed_type = TypeAdapter[Any](next(iter(study.printed().values())))
    try:
        answer = json.loads(printed.getvalue())
        parsed = printed_type.validate_python(answer)
        # A key that the schema does not name would be lost on the way.
        round_trip = printed_type.dump_python(parsed, mode="json", by_alias=True)
    except ValueError as error:
        problem = " ".join(str(error).split())[:200]
        _demand(study, False, f"prints what is not of its schema: {problem}")
    _demand(study, round_trip == answer, "prints more than its schema describes")


def _settings(study: Study, example: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of an example that belong to the request, as texts."""
    fields = study.request.model_fields
    return settings_texts({name: value for name, value in example.items() if name in fields})


def _resolves(study: Study, reference: Any) -> bool:
    """True if a reference of a record leads to something."""
    try:
        study.resolve(reference)
    except (ImportError, AttributeError):
        return False
    return True


def _demand(study: Study, holds: bool, rule: str) -> None:
    """Demand a rule of a study."""
    form.demand(f"study {study.verb}", holds, rule)
