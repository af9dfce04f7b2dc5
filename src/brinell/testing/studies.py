"""The rules of studies: one record, from which a command, a call, a folder and a page follow (`studies.kit`)."""

import dataclasses
import inspect
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from brinell import calls
from brinell.cli.command import Command, function_of
from brinell.cli.options import LOUDNESS
from brinell.core.errors import BrinellError, RequestError
from brinell.core.settings import mark_of
from brinell.engine import toml
from brinell.engine.progress import SilentProgress
from brinell.engine.texts import settings_texts
from brinell.store.folder import MANIFEST, PAGE
from brinell.studies.kit import Study
from brinell.testing import form
from brinell.testing.pages import page_faults

UNLIKE = ("seconds",)
"""Columns that differ between two runs of the same request."""
ENDLESS = 10**18
"""More than any count may be. A seed counts nothing."""


def check_study(study: Study, example: Mapping[str, Any]) -> None:
    """Check that a study keeps the promises of its record, by its declarations and in a few small runs.

    Args:
        study: the record.
        example: settings of a small run, models and data as specs, that leaves a folder and takes seconds.

    Raises:
        ContractError: the first rule that is broken.
    """
    check_record(study)
    check_settings(study)
    with tempfile.TemporaryDirectory(prefix="brinell-") as directory:
        check_runs(study, example, Path(directory))


def check_record(study: Study) -> None:
    """Every reference of the record leads to something.

    Raises:
        ContractError: one does not.
    """
    required = ("run", "result", "lines") if study.plan is None else ("plan", "parts", "table", "summarise", "result", "lines")
    for field in dataclasses.fields(study):
        reference = getattr(study, field.name)
        is_reference = "Reference" in str(field.type) or "Callable[..., typing.Any]" in str(field.type)
        if field.name in required:
            _demand(study, reference is not None, f"has no {field.name}")
        if is_reference and isinstance(reference, str):
            _demand(study, _resolves(study, reference), f"names {reference} as its {field.name}, which is not there")
    for name, reference in study.more_schemas:
        _demand(study, not isinstance(reference, str) or _resolves(study, reference), f"has no type for the schema {name}")
    _demand(study, bool(study.examples), "has no example for its help")
    _demand(study, isinstance(study.resolve(study.result), type), "has a result that is no type")
    if study.layout is not None:
        _demand(study, study.resolve(study.layout).verb == study.verb, "has a layout of another verb")


def check_settings(study: Study) -> None:
    """Every setting is an option, a keyword and a key of a file, has help, a mark where it is a text, and an end where it counts.

    Raises:
        ContractError: one lacks one of these.
    """
    keywords, options = calls.signature_of(study).parameters, inspect.signature(function_of(study, "")).parameters
    for name, field in study.fields().items():
        _demand(study, bool(field.description), f"does not say what {name} is")
        marked = study.names_of(name) is not None or mark_of(field.annotation, field.metadata) is not None
        _demand(study, marked, f"does not say what the text of {name} names: mark it by Names or Plain")
        _demand(study, name in options, f"has no option for {name}")
        _demand(study, name in keywords, f"has no keyword for {name}")
        _demand(study, not (_counts(field.annotation) and _takes(study, name, ENDLESS)), f"has no ceiling for {name}")


def check_runs(study: Study, example: Mapping[str, Any], folder: Path) -> None:
    """Check that the example leaves the same records when run in one go, stopped and resumed, in shards, and by the command.

    Args:
        study: the record.
        example: the settings, as in `check_study`.
        folder: parent of the runs' folders.

    Raises:
        ContractError: the records differ.
    """
    full, call = folder / "whole", partial(calls.call_of(study), **example, progress=SilentProgress())
    with _writes() as written:
        result = call(out=full)
    _demand(study, (full / MANIFEST).exists(), f"leaves no {MANIFEST}")
    _demand(study, isinstance(result, study.resolve(study.result)), "returns something else than its result")
    rows = rows_of(full)
    _demand(study, bool(rows), "leaves no rows")
    _check_again(study, result, full)
    _check_other_request(study, call, example, full)
    if study.resume:
        _check_file(study, example, full)
        _check_resume(study, call, folder / "resumed", rows, len(written))
    if study.shards:
        _check_shards(study, call, folder / "shards", rows)
    _check_command(study, example, folder / "command", rows)
    _check_page(study, full)


def rows_of(folder: Path) -> dict[str, Any]:
    """All rows of a folder by the folder of their files, without the columns that differ between two runs, in a fixed order.

    Of a folder without rows its arrays, as bytes by file.
    """
    found: dict[str, list[pa.Table]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.read_table(path)
        table = table.drop_columns([name for name in UNLIKE if name in table.column_names]).replace_schema_metadata(None)
        found.setdefault(str(path.parent.relative_to(folder)), []).append(table)
    if not found:
        return {path.name: path.read_bytes() for path in folder.rglob("*.safetensors")}
    return {name: _in_order(pa.concat_tables(tables)) for name, tables in found.items()}


def rows_match(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """True if two mappings of tables, as `rows_of` returns them, hold equal rows."""
    if first.keys() != second.keys():
        return False
    return all(
        _same_table(first[name], second[name]) if isinstance(first[name], pa.Table) else first[name] == second[name]
        for name in first
    )


def _same_table(one: pa.Table, other: pa.Table) -> bool:
    """True if two tables hold equal rows."""
    if one.schema != other.schema or len(one) != len(other):
        return False
    for name in one.column_names:
        a, b = one[name], other[name]
        if pa.types.is_floating(a.type):
            first, second = (np.array([np.nan if value is None else value for value in column.to_pylist()]) for column in (a, b))
            if not np.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True):
                return False
        elif a != b:
            return False
    return True


def _in_order(table: pa.Table) -> pa.Table:
    """Sorted by names and whole numbers, and among equal ones by floats."""
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    keys = [field.name for field in table.schema if pa.types.is_string(field.type) or pa.types.is_primitive(field.type)]
    return table.sort_by([(name, "ascending") for name in sorted(keys, key=floats.__contains__)])


def _check_again(study: Study, result: Any, full: Path) -> None:
    """The records alone give the result and the page again."""
    if study.open is not None:
        _demand(study, study.resolve(study.open)(full) == result, "opens its folder as another result than it returned")
    if study.page is not None:
        page = full / PAGE
        _demand(study, page.exists(), f"leaves no {PAGE}")
        before = page.read_bytes()
        study.resolve(study.page)(full)
        _demand(study, page.read_bytes() == before, "writes another page from the same records")


def _check_other_request(study: Study, call: Callable[..., Any], example: Mapping[str, Any], full: Path) -> None:
    """Check that a folder refuses another request, and the same request without a resume."""
    before = rows_of(full)
    requests: list[dict[str, Any]] = [{}]
    if study.resume and "seed" in study.request.model_fields:
        requests.append({"seed": int(example.get("seed", 0)) + 1, "resume": True})
    for settings in requests:
        request = "another request" if settings else "itself, without a resume,"
        try:
            call(out=full, **settings)
        except BrinellError as error:
            _demand(
                study, "\n" not in str(error) and str(full) in str(error), f"refuses {request} without one line about the folder"
            )
        else:
            _demand(study, False, f"lets {request} into its folder")
    _demand(study, rows_match(rows_of(full), before), "changes rows as it refuses")


def _check_file(study: Study, example: Mapping[str, Any], full: Path) -> None:
    """The file of settings in the folder says the request again."""
    recorded = {name: value for name, value in toml.load(full / "run.toml").items() if name in study.request.model_fields}
    expected = toml.parse_request(study.request, _settings(study, example))
    _demand(study, toml.parse_request(study.request, recorded) == expected, "keeps another request in run.toml")


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


def _check_resume(study: Study, call: Callable[..., Any], out: Path, rows: Mapping[str, Any], writes: int) -> None:
    """A stopped run resumes and ends with the rows of an uninterrupted run."""
    try:
        with _writes(writes // 2):
            call(out=out)
    except _Stopped:
        pass
    else:
        _demand(study, False, "was not stopped in the middle: it writes less the second time")
    call(out=out, resume=True)
    _demand(study, rows_match(rows_of(out), rows), "has other rows after a stop and a resume")


def _check_shards(study: Study, call: Callable[..., Any], out: Path, rows: Mapping[str, Any]) -> None:
    """Two processes in one folder make the rows of one; here they are threads."""
    answers: list[Any] = []

    def work(number: int) -> None:
        """Run one shard and keep its answer."""
        try:
            answers.append(call(out=out, shard=f"{number}/2"))
        except Exception as error:
            answers.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        _demand(study, not isinstance(answer, Exception), f"fails in shards: {answer!r}")
    _demand(study, rows_match(rows_of(out), rows), "has other rows in two shards")


def _check_command(study: Study, example: Mapping[str, Any], out: Path, rows: Mapping[str, Any]) -> None:
    """The command makes the same rows, and what it prints is what the schema describes."""
    values = toml.parse_request(study.request, _settings(study, example)).model_dump(exclude_unset=True)
    options = settings_texts({name: value for name, value in example.items() if name not in values})
    with redirect_stdout(StringIO()) as printed, mock.patch.object(LOUDNESS, "quiet", True):
        Command(study, values, options, None, out, False, True, None, None).execute()
    _demand(study, rows_match(rows_of(out), rows), "has other rows by the command than by the call")
    printed_type = TypeAdapter[Any](study.resolve(study.printed or study.result))
    try:
        answer = json.loads(printed.getvalue())
        round_trip = printed_type.dump_python(printed_type.validate_python(answer), mode="json", by_alias=True)
    except ValueError as error:
        _demand(study, False, f"prints what is not of its schema: {' '.join(str(error).split())[:200]}")
    else:
        _demand(study, round_trip == answer, "prints more than its schema describes")


def _check_page(study: Study, full: Path) -> None:
    """The page keeps the rules of pages, if there is a browser to measure it in."""
    faults = page_faults(full / PAGE) if study.page is not None else []
    _demand(study, not faults, f"has a page with faults: {'; '.join(faults)[:300]}")


def _settings(study: Study, example: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the example that are of the request."""
    return settings_texts({name: value for name, value in example.items() if name in study.request.model_fields})


def _counts(hint: Any) -> bool:
    """True if a setting is a count."""
    return hint is int or int in get_args(hint)


def _takes(study: Study, name: str, value: Any) -> bool:
    """True if a setting accepts this value."""
    kind = study.request if name in study.request.model_fields else study.options
    assert kind is not None
    fields = kind.model_fields
    needed = {key: "x" for key, field in fields.items() if field.is_required()}
    one = fields[name]
    if name == "seed" or "tuple" in str(one.annotation):
        return False
    try:
        toml.parse_request(kind, needed | {name: value})
    except RequestError:
        return False
    return True


def _resolves(study: Study, reference: str) -> bool:
    """True if a reference leads to an object."""
    try:
        study.resolve(reference)
    except (ImportError, AttributeError):
        return False
    return True


def _demand(study: Study, holds: bool, rule: str) -> None:
    """Raise unless a rule holds."""
    form.demand(f"study {study.verb}", holds, rule)
