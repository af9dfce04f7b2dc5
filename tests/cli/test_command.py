"""An option stands in one place: a field of a request is an option, a key of run.toml and a keyword
of the Python call.
"""

import shlex

import numpy as np
import pytest
import typer
from pydantic import Field
from typer.main import get_command
from typer.testing import CliRunner

from _refusals import refused
from brinell.analysis.folder_result import Result
from brinell.calls import call_of, parameters_of
from brinell.cli import command_line
from brinell.cli.command import command_of, function_of
from brinell.core.errors import RequestError, StoppedError
from brinell.engine.request import BaseRequest, DataSpec, Folder, Request
from brinell.engine.toml import dump
from brinell.store.trust import add_mark
from brinell.studies import register
from brinell.studies.kit import Output, Study


class Looking(BaseRequest):
    """A request about a folder."""

    run: Folder
    """A folder."""
    train: DataSpec
    """Data."""
    fpr: float = Field(default=0.05, gt=0, lt=0.5)
    """A rate."""


class Wider(Request):
    """An audit's request with one line more."""

    hurry: float = Field(default=0.5, gt=0)
    """How much of a hurry there is."""
    dry: bool = False
    """True for a dry run."""


class EmptyResult(Result):
    """An answer that says nothing."""

    def lines(self, *, verbose=False):
        return ()


def wide_study(does=lambda call: None, **settings):
    """A study of that request, and the calls that it was asked for."""
    calls = []

    def run(call):
        calls.append(call)
        does(call)
        return EmptyResult()

    values = {"request": Wider, "resume": True, "verb": "audit"} | settings
    return Study(package=__name__, run=run, result=EmptyResult, examples=(), **values), calls


def invoke(study, *words):
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(function_of(study, "A wide verb."))
    return CliRunner().invoke(
        app, list(map(str, words)), standalone_mode=False, catch_exceptions=True, terminal_width=200
    )


def test_one_line_in_a_request_makes_an_option_a_key_and_a_keyword(tmp_path):
    study, calls = wide_study()
    help = invoke(study, "--help").output
    assert "--hurry <float>" in help and "How much of a hurry there is. Default: 0.5." in help
    file = tmp_path / "wide.toml"
    file.write_text('hurry = 2.0\nattack = "fgsm"\n', encoding="utf-8")
    for words in (
        [],
        ["--hurry", "3"],
        [file],
        [file, "--hurry", "3", "--attack", "pgd", "--attack", "fab"],
    ):
        assert invoke(study, *words).exception is None
    assert [call.request.hurry for call in calls] == [0.5, 3.0, 2.0, 3.0]
    assert [call.request.attack for call in calls] == [
        ("fast",),
        ("fast",),
        ("fgsm",),
        ("pgd", "fab"),
    ]
    assert "0" in str(invoke(study, "--hurry", "0").exception) and len(calls) == 4
    function = call_of(study)
    assert (
        parameters_of(study)["hurry"].default == 0.5 and "How much of a hurry" in function.__doc__
    )
    function("digits-cnn", "digits", hurry=3, eps=None)
    assert calls[-1].request.hurry == 3 and calls[-1].request.eps is None
    with pytest.raises(RequestError, check=refused("engine.toml.check_keys")):
        function("digits-cnn", "digits", hury=3)


def test_a_file_in_place_of_the_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/a", "runs/b", "x"):  # what a command names is there
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").write_text("{}", encoding="utf-8")
    study, calls = wide_study(request=Looking, positional=("run",), resume=False, memory=())
    file = tmp_path / "look.toml"
    file.write_text('run = "runs/a"\ntrain = "digits"\nfpr = 0.1\n', encoding="utf-8")
    for words in ([file], [file, "--fpr", "0.2"], ["runs/b", "--train", "digits?split=train"]):
        assert invoke(study, *words).exception is None
    assert [(call.request.run, call.request.train, call.request.fpr) for call in calls] == [
        ("runs/a", "digits", 0.1),
        ("runs/a", "digits", 0.2),
        ("runs/b", "digits?split=train", 0.05),
    ]
    assert "train is missing, and there is no default" in str(invoke(study, "runs/b").exception)


def test_the_command_of_a_request_repeats_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study, calls = wide_study()
    for data in ("digits", "my data.npz", "it's; rm -r.npz", 'a "b" & $c.npz'):
        np.savez(data, x=np.zeros((2, 2)), y=np.arange(2))  # what a command names is there
        request = Wider(
            hurry=2.0, attack=("fgsm", "pgd?steps=3&restarts=2"), samples=3, dry=True, data=data
        )
        words = shlex.split(command_of(request, study))
        assert words[:2] == ["brinell", "audit"]
        invoke(study, *words[2:])
        made = calls.pop().request
        assert (
            made.data.removeprefix("npz:") == data
            and made.model_copy(update={"data": data}) == request
        )


def test_what_stops_midway_says_how_to_go_on(tmp_path):
    def stop(call):
        call.folder("digits")
        raise StoppedError("the disk is full")

    study, _ = wide_study(stop)
    answer = invoke(study, "--out", tmp_path / "a folder")
    assert (
        f"the disk is full (brinell audit --resume --out '{tmp_path / 'a folder'}')"
        in answer.stderr
    )
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "run.toml").write_text(
        add_mark(tmp_path / "a folder", dump(Wider(hurry=7.0))), encoding="utf-8"
    )
    study, calls = wide_study()
    assert invoke(study, "--resume", "--out", tmp_path / "a folder").exception is None
    assert [call.request.hurry for call in calls] == [7.0]
    assert "--resume needs --out" in str(invoke(study, "--resume").exception)


@pytest.fixture(scope="module")
def commands():
    """All commands, as typer has them."""
    root = get_command(command_line())
    return root.commands | {
        f"train {name}": command for name, command in root.commands["train"].commands.items()
    }


def test_every_field_is_an_option_with_a_default_that_the_help_names_and_a_keyword(commands):
    faults = []
    for verb, study in ((verb, register.load(verb)) for verb in register.commands()):
        command = commands[verb]
        help = " ".join(
            command.get_help(
                command.make_context(verb, [], resilient_parsing=True, terminal_width=250)
            ).split()
        )
        parameters = parameters_of(study) if study.call else study.fields()
        for key, field in study.fields().items():
            option = key.upper() if key in study.positional else f"--{key.replace('_', '-')}"
            default = (
                f"Default: {field.default}."
                if isinstance(field.default, str) and field.default
                else ""
            )
            if not (field.description and option in help and default in help and key in parameters):
                faults.append(f"{verb} {key}")
    assert not faults


@pytest.mark.slow
def test_help_and_lists_import_neither_torch_nor_the_code_of_a_study():
    import subprocess
    import sys

    script = (
        "import sys; from brinell.cli import run; run({words!r}); "
        "print([one for one in sys.modules if one == 'torch' or "
        "one.startswith('brinell.studies.') and one.count('.') > 2])"
    )
    for words in (["--help"], ["transfer", "--help"], ["audit", "--help"], ["--version"]):
        process = subprocess.run(
            [sys.executable, "-c", script.format(words=words)],
            capture_output=True,
            text=True,
            check=True,
        )
        names = [
            *map(
                str.strip,
                process.stdout.strip().splitlines()[-1].strip("[]").replace("'", "").split(","),
            )
        ]
        assert "torch" not in names and all(
            not name or name.endswith(".request") for name in names
        ), (words, names)


def test_output_of_a_file_must_be_named():
    study, _ = wide_study(output=Output.FILE)
    assert "out" in str(invoke(study).exception).lower()
