"""Planted violators for the checker of studies: the example from outside, with one promise broken
each.
"""

import dataclasses
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel

from _refusals import refused
from brinell import calls
from brinell.core.errors import ContractError, RequestError
from brinell.engine.progress import SilentProgress
from brinell.engine.request import BaseRequest, DataSpec, SampleCount
from brinell.studies import register
from brinell.studies.kit import Call, Study
from brinell.studies.work import open_plan
from brinell.testing import check_study
from brinell.testing import studies as checker

EXAMPLE = {"samples": 8, "size": [0.0, 0.3]}


@pytest.fixture(scope="module", autouse=True)
def tally(root):
    """The example of a study, registered as an installed one would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "examples" / "study")
        entries = register.entries() | {"tally": register._read("brinell_tally")}
        patch.setattr(register, "entries", lambda: entries)
        yield register.load("tally")
    for name in [name for name in sys.modules if name.partition(".")[0] == "brinell_tally"]:
        del sys.modules[name]


def part(name: str) -> Any:
    return import_module(f"brinell_tally.{name}")


@pytest.fixture(scope="module")
def run(tally, tmp_path_factory):
    """Its finished example."""
    return checker.finish(tally, EXAMPLE, tmp_path_factory.mktemp("tally"))


@pytest.mark.slow
def test_the_example_passes(tally):
    check_study(tally, EXAMPLE)


# What a record says


def with_field(tally, **fields):
    """Its request with further fields."""
    annotations = {name: hint for name, (hint, _) in fields.items()}
    values = {name: field for name, (_, field) in fields.items()}
    kind = type(
        "Broken",
        (tally.request,),
        {"__annotations__": annotations, "__module__": __name__, **values},
    )
    return dataclasses.replace(tally, request=kind)


ON_PAPER = {
    "is not found: name its package": lambda study: dataclasses.replace(study, verb="absent"),
    "names result:nobody as its result": lambda study: dataclasses.replace(
        study, result="result:nobody"
    ),
    "names elsewhere:Rows as its rows": lambda study: dataclasses.replace(
        study, rows="elsewhere:Rows"
    ),
    "has no example for its help": lambda study: dataclasses.replace(study, examples=()),
    "has a layout of another verb": lambda study: dataclasses.replace(
        study, table_of="brinell.store.run:TABLE"
    ),
    "does not say what extra is": lambda study: with_field(study, extra=(bool, False)),
}


def test_on_paper(tally):
    for line, change in ON_PAPER.items():
        with pytest.raises(ContractError, match=line):
            check_study(change(tally), EXAMPLE)


# What a run does


class Less(BaseModel):
    """A schema that describes less than is printed."""

    model: str


class Restless(Study):
    """A study whose page is longer the second time."""

    def write_page(self, folder, *place):
        page = super().write_page(folder, *place)
        page.write_text(page.read_text() + "x")
        return page


def restless(study):
    return Restless(
        **{field.name: getattr(study, field.name) for field in dataclasses.fields(study)}
    )


def printing(kind):
    """The type of the result, whose schema is another one."""
    content = {
        "__annotations__": {"printed": ClassVar[dict[str, Any]]},
        "__module__": __name__,
        "printed": {"tally": kind},
    }
    return type("Printing", (part("result").TallyResult,), content)


def deaf(call):
    """A study that does nothing, whatever it is asked."""


def wordy(call):
    """A study that refuses in two lines."""
    raise RequestError("no\nway")


def changing(call):
    """A study that removes the rows of a folder and then refuses it."""
    (call.out / "rows.parquet").unlink()
    raise RequestError(f"{call.out} is full")


RECORDS = {
    "opens its folder as another result": lambda run: replace(
        run, result=run.result.model_copy(update={"data": "x"})
    ),
    "keeps another request in run.toml": lambda run: replace(run, example=EXAMPLE | {"samples": 9}),
    "writes another page from the same records": lambda run: replace(
        run, study=restless(run.study)
    ),
    "leaves no report.html": lambda run: (run.folder / "report.html").unlink() or run,
}
REQUESTS = {
    "lets itself, without a resume, into": lambda run: replace(
        run, study=replace(run.study, rows=None, run=deaf)
    ),
    "lets another request into its folder": lambda run: replace(
        run, study=replace(run.study, run=deaf)
    ),
    "refuses another request without one line": lambda run: replace(
        run, study=replace(run.study, run=wordy)
    ),
    "changes rows as it refuses": lambda run: replace(run, study=replace(run.study, run=changing)),
}


def test_records_and_requests(run):
    for rule, violators in (
        (checker.check_records, RECORDS),
        (checker.check_other_request, REQUESTS),
    ):
        rule(run)
        for line, change in violators.items():
            with pytest.raises(ContractError, match=line):
                rule(change(run))


def test_a_folder_without_rows_and_a_result_of_another_type(tally, tmp_path, monkeypatch):
    with pytest.raises(ContractError, check=refused("testing.form.demand")):
        checker.finish(replace(tally, result=printing(Less)), EXAMPLE, tmp_path / "result")
    monkeypatch.setattr(checker, "rows_of", lambda folder: {})
    with pytest.raises(ContractError, check=refused("testing.form.demand")):
        checker.finish(tally, EXAMPLE, tmp_path / "rows")


@pytest.mark.slow
def test_a_command_with_other_rows_and_of_another_schema(run, tmp_path, monkeypatch):
    checker.check_command(replace(run, parent=tmp_path / "good"))
    with pytest.raises(ContractError, check=refused("testing.form.demand")):
        checker.check_command(replace(run, parent=tmp_path / "fast", writes=10**6))
    with pytest.raises(ContractError, check=refused("testing.form.demand")):
        checker.check_command(
            replace(run, parent=tmp_path / "more", study=replace(run.study, result=printing(Less)))
        )
    with pytest.raises(ContractError, check=refused("testing.form.demand")):
        checker.check_command(
            replace(
                run, parent=tmp_path / "other", study=replace(run.study, result=printing(list[int]))
            )
        )
    predict = part("run").predict
    monkeypatch.setattr(
        part("run"),
        "predict",
        lambda *inputs: replace(rows := predict(*inputs), label=rows.label + 1),
    )
    with pytest.raises(ContractError, check=refused("testing.form.demand")):
        checker.check_command(replace(run, parent=tmp_path / "rows"))


# What a refusal leaves


def refusing(number):
    """The pieces of the example, of which one is refused: None for all, before the first."""
    pieces = part("run").pieces

    def refuse():
        raise RequestError("this cannot be done")

    def some(plan, call):
        if number is None:
            refuse()
        return [
            replace(piece, make=refuse) if place == number else piece
            for place, piece in enumerate(pieces(plan, call))
        ]

    return some


def test_a_refusal_before_the_first_piece_is_done_leaves_nothing(tally, monkeypatch, tmp_path):
    call = calls.call_of(tally)
    for number in (None, 0):
        monkeypatch.setattr(part("run"), "pieces", refusing(number))
        new = tmp_path / str(number)
        with pytest.raises(RequestError, match="this cannot be done"):
            call(**EXAMPLE, out=new)
        assert not new.exists()
        there = tmp_path / f"there-{number}"
        there.mkdir()
        with pytest.raises(RequestError, match="this cannot be done"):
            call(**EXAMPLE, out=there)
        monkeypatch.undo()
        assert call(**EXAMPLE, out=there).levels

    monkeypatch.setattr(part("run"), "pieces", refusing(1))
    with pytest.raises(RequestError, match="this cannot be done"):
        call(**EXAMPLE, out=tmp_path / "begun")
    monkeypatch.undo()
    assert call(**EXAMPLE, out=tmp_path / "begun", resume=True).levels


class Seedless(BaseRequest):
    """A request without a seed."""

    data: DataSpec = "digits"
    samples: SampleCount = 8


def test_a_request_needs_no_seed(tally):
    call = Call(study=tally, request=Seedless(), command="", progress=SilentProgress())
    with_seed = call.study.request(samples=8, seed=0)
    plans = [open_plan(dataclasses.replace(call, request=r)) for r in (Seedless(), with_seed)]
    assert len(plans[0].ids) == 8 and np.array_equal(plans[0].ids, plans[1].ids)
