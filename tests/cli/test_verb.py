"""An option stands in one place: a field of a request is an option, a TOML key and a keyword of the Python call."""

import inspect

import pytest
from pydantic import Field
from typer.testing import CliRunner

import brinell
from brinell import api
from brinell.cli import VERBS, command_line
from brinell.cli.verb import Asked, Verb, command_of, verb
from brinell.core.errors import RequestError, StoppedError
from brinell.engine.request import BaseRequest, Request
from brinell.engine.toml import dump
from brinell.studies.detection.request import DetectRequest


class Wider(Request):
    """An audit's request with one line more."""

    hurry: float = Field(default=0.5, gt=0)
    """How much of a hurry there is."""
    dry: bool = False
    """Whether it is dry."""


def made(kept="run.toml", does=lambda asked: 0):
    """A verb of that request, and what it was asked for."""
    seen = []

    @verb(Wider, kept=kept, resume="Go on.")
    def wide(asked: Asked) -> int:
        """A wide verb."""
        seen.append(asked.request(Wider))
        return does(asked)

    return wide, seen


def call(command, *words):
    import typer

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(command.command())
    return CliRunner().invoke(app, list(map(str, words)), standalone_mode=False, catch_exceptions=True, terminal_width=200)


def test_one_line_in_a_request_makes_an_option_a_key_and_a_keyword(tmp_path):
    wide, seen = made()
    help = call(wide, "--help").output
    assert "--hurry <float>" in help and "How much of a hurry there is. Default: 0.5." in help
    file = tmp_path / "wide.toml"
    file.write_text('hurry = 2.0\nattack = "fgsm"\n', encoding="utf-8")
    for words in ([], ["--hurry", "3"], [file], [file, "--hurry", "3", "--attack", "pgd", "--attack", "fab"]):
        assert call(wide, *words).exception is None
    assert [one.hurry for one in seen] == [0.5, 3.0, 2.0, 3.0]
    assert [one.attack for one in seen] == [("fast",), ("fast",), ("fgsm",), ("pgd", "fab")]
    assert "0" in str(call(wide, "--hurry", "0").exception) and len(seen) == 4

    @api.takes(Wider)
    def audit(model, **settings):
        return settings

    assert "hurry: float = 0.5" in str(inspect.signature(audit)) and "How much of a hurry" in audit.__doc__
    assert audit("m", hurry=3, eps=None) == {"hurry": 3}
    with pytest.raises(RequestError, match="there is no setting 'hury', did you mean 'hurry'"):
        audit("m", hury=3)


def test_a_file_in_place_of_the_argument(tmp_path):
    seen = []

    @verb(DetectRequest, argument="run")
    def look(asked: Asked) -> int:
        """Look."""
        seen.append(asked.request(DetectRequest))
        return 0

    file = tmp_path / "look.toml"
    file.write_text('run = "runs/a"\ntrain = "digits"\nfpr = 0.1\n', encoding="utf-8")
    for words in ([file], [file, "--fpr", "0.2"], ["runs/b", "--train", "mnist:x"]):
        assert call(look, *words).exception is None
    assert [(one.run, one.train, one.fpr) for one in seen] == [
        ("runs/a", "digits", 0.1),
        ("runs/a", "digits", 0.2),
        ("runs/b", "mnist:x", 0.05),
    ]
    assert "train is missing, and there is no default" in str(call(look, "runs/b").exception)


def test_the_command_of_a_request_repeats_it():
    request = Wider(hurry=2.0, attack=("fgsm", "pgd?steps=3"), samples=3, dry=True)
    wide, seen = made()
    words = command_of(request, "wide").replace("'", "").split()
    assert words[:2] == ["brinell", "wide"]
    call(wide, *words[2:])
    assert seen == [request]


def test_what_stops_midway_says_how_to_go_on(tmp_path, capsys):
    def stop(asked):
        asked.folder(asked.request(Wider), "wide")
        raise StoppedError("the disk is full")

    wide, _ = made(does=stop)
    answer = call(wide, "--out", tmp_path / "a folder")
    assert f"the disk is full (brinell wide --resume --out '{tmp_path / 'a folder'}')" in answer.stderr
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "run.toml").write_text(dump(Wider(hurry=7.0)), encoding="utf-8")
    wide, seen = made()
    assert call(wide, "--resume", "--out", tmp_path / "a folder").exception is None
    assert [one.hurry for one in seen] == [7.0]
    assert "--resume needs --out" in str(call(wide, "--resume").exception)


@pytest.mark.parametrize("name", [name for name, one in VERBS.items() if isinstance(one, Verb)])
def test_every_field_is_an_option_with_a_default_that_the_help_names(name):
    help = " ".join(CliRunner().invoke(command_line(), [name, "--help"], terminal_width=250).output.split())
    for request in VERBS[name].requests:
        assert issubclass(request, BaseRequest)
        for key, field in request.model_fields.items():
            assert field.description, f"{request.__name__}.{key} has no text"
            assert (key.upper() if key == VERBS[name].argument else f"--{key.replace('_', '-')}") in help
            if len(VERBS[name].requests) == 1 and isinstance(field.default, str) and field.default:
                assert f"Default: {field.default}." in help


@pytest.mark.parametrize("name", ["audit", "benchmark", "detect", "epsilon", "review", "unrestricted"])
def test_the_python_call_has_every_field_as_a_keyword(name):
    verb = VERBS.get(name, VERBS["epsilon"])
    request = verb.requests[-1 if name == "review" else 0]
    assert request.model_fields.keys() <= inspect.signature(getattr(brinell, name)).parameters.keys()
