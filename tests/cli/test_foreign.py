"""A folder from elsewhere names files, code and hosts: none of them is imported, opened or asked before a person says so."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import brinell
from _helpers import workspace
from brinell.cli import run as cli
from brinell.engine import trust
from brinell.engine.request import Request
from brinell.store.run import Run

EVIL = """
import pathlib
pathlib.Path({mark!r}).touch()
from dataclasses import dataclass
@dataclass(frozen=True, kw_only=True)
class Thing:
    path: str = ""
    def __call__(self, *given):
        return None
def net():
    return None
"""
HOST = "http://127.0.0.1:9/v2/models/x"

NAMES = [
    ("model", "torch:{evil}:net"),
    ("model", "torch:{evil}:net?weights={secret}"),
    ("model", "{evil}:net"),
    ("model", "{evil}:Thing"),
    ("model", "evil_package.thing:Thing"),
    ("model", "onnx:{secret}"),
    ("model", "{secret}"),
    ("model", "sklearn:{secret}?trusted=os.system"),
    ("model", "timm:resnet18?weights={secret}"),
    ("model", HOST),
    ("model", HOST + "?token_env=BRINELL_TOKEN"),
    ("model", HOST + "?token_env=HOME"),
    ("model", "digits-cnn?weights={secret}"),
    ("surrogate", "torch:{evil}:net"),
    ("surrogate", HOST),
    ("data", "npz:{secret}"),
    ("data", "{secret}"),
    ("data", "table:{secret}"),
    ("data", "image-folder:{folder}"),
    ("data", "bench:{folder}"),
    ("data", "wfdb:{folder}"),
    ("data", "{evil}:Thing"),
    ("data", "evil_package.thing:Thing"),
    ("data", "npz:/dev/zero"),
    ("attack", "{evil}:Thing"),
    ("attack", "{evil}:Thing?eot=2"),
    ("attack", "evil_package.thing:Thing"),
    ("attack", "rlab?policy={secret}"),
    ("attack", "rlab?distortions=gaussian-noise+{evil}:Thing"),
    ("attack", "rlab?distortions={evil}:Thing(path=x)"),
    ("attack", "rlab?distortions=evil_package.thing:Thing"),
    ("attack", "pgd?unknown={secret}"),
    ("norm", "embedding:{secret}"),
    ("norm", "{evil}:Thing"),
    ("eps", "recommended:{folder}"),
    ("eps", "recommended:{folder}?by=class"),
]
HARMLESS = [
    ("model", "digits-cnn"),
    ("data", "digits"),
    ("data", "in-memory:mine"),
    ("attack", "fast"),
    ("attack", "autoattack"),
    ("attack", "apgd-ce"),
    ("attack", "pgd?steps=50&restarts=3&random_start=false"),
    ("attack", "square?steps=1000&alone=true&within=0.5"),
    ("attack", "rlab?distortions=gaussian-noise+occlusion&policy=greedy&patch=4x16x16&severities=1+2"),
    ("norm", "linf"),
    ("eps", "0:8/255:9"),
    ("eps", "recommended?by=class"),
    ("targeted", "cat/../../dog"),
    ("device", "cuda:1"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("home"), n=12)


@pytest.fixture(scope="module")
def run_folder(home):
    """A run that was made here, of files that are named in full."""
    words = ["audit", "--data", f"npz:{home}/data.npz", "--model", f"torch:{home}/model.py:parabola", "--eps", "0.1"]
    assert cli([*words, "--attack", "fgsm", "--out", str(home / "run")]) == 0
    return home / "run"


@pytest.fixture
def watched_paths(tmp_path):
    """Places that must not be touched, and what opened or imported them."""
    places = {"evil": tmp_path / "evil.py", "secret": tmp_path / "secret.npz", "folder": tmp_path / "private"}
    package = tmp_path / "evil_package"
    (package / "thing").mkdir(parents=True)
    for file in (places["evil"], package / "__init__.py", package / "thing" / "__init__.py"):
        file.write_text(EVIL.format(mark=str(tmp_path / "ran")))
    places["secret"].write_bytes(b"secret")
    places["folder"].mkdir()
    (places["folder"] / "inside").write_bytes(b"secret")
    return places


ACCESSES: list[str] = []
FORBIDDEN: list[str] = []


def _hook(event, arguments):
    if FORBIDDEN and event in ("open", "socket.connect", "os.listdir", "os.scandir", "subprocess.Popen"):
        text = str(arguments)
        if event == "socket.connect" or any(address in text for address in FORBIDDEN):
            ACCESSES.append(f"{event}: {text}")


sys.addaudithook(_hook)


@pytest.fixture
def untouched(tmp_path, watched_paths, monkeypatch):
    """Fails the test where anything was run, opened or asked."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BRINELL_TOKEN", "a-secret")
    ACCESSES.clear()
    FORBIDDEN[:] = ["evil", "secret", "private", "/dev/zero"]
    yield
    FORBIDDEN.clear()
    assert ACCESSES == [] and not (tmp_path / "ran").exists() and "evil_package" not in sys.modules


def hostile(run_folder, folder, setting, text):
    """The run as somebody else hands it over: its request names something else."""
    shutil.copytree(run_folder, folder)
    run = Run.open(folder)
    is_list = isinstance(run.manifest["request"][setting], list)
    run.manifest["request"][setting] = [text] if is_list else text
    run.save_manifest()
    lines = [line for line in (folder / "run.toml").read_text().splitlines() if not line.startswith(f"{setting} =")]
    value = json.dumps([text] if is_list else text)
    (folder / "run.toml").write_text("\n".join([*lines, f"{setting} = {value}"]) + "\n")
    return folder


@pytest.mark.parametrize("part", range(4))
def test_nothing_that_a_hostile_folder_names_is_touched(
    part, run_folder, tmp_path_factory, watched_paths, untouched, capsys, subtests
):
    """Each name by `verify`, and by one of four other ways in turn."""
    for place, (setting, text) in enumerate(NAMES[part::4]):
        with subtests.test(setting=setting, text=text):
            folder = hostile(run_folder, tmp_path_factory.mktemp("case") / "theirs", setting, text.format(**watched_paths))
            ways = [
                ("detect", folder, "--train", "digits"),
                ("audit", folder / "run.toml", "--dry-run"),
                ("audit", folder / "run.toml"),
                ("audit", "--resume", "--out", folder),
            ]
            verified = 1 if setting == "attack" else 4  # the stages are no longer those of the request
            for words, code in ((("verify", folder), verified), (ways[place % 4], 2)):
                capsys.readouterr()
                assert cli([str(word) for word in words]) == code, words
                error = capsys.readouterr().err
                assert error.count("\n") == 1 and "trust" in error and "was not made by you, or was moved" in error, error
            assert ACCESSES == []


def test_verbs_that_read_records_name_nothing(run_folder, tmp_path_factory, watched_paths, untouched, subtests):
    for verb in ["gate", "compare", "report"]:
        with subtests.test(verb=verb):
            tmp_path = tmp_path_factory.mktemp("case")
            folder = hostile(run_folder, tmp_path / "theirs", "model", "torch:{evil}:net".format(**watched_paths))
            arguments = {"gate": ["--clean", "0", "--without-checks"], "compare": [str(run_folder)], "report": []}[verb]
            assert cli([verb, str(folder), *arguments]) == 0


def test_other_folders_that_go_on(tmp_path_factory, watched_paths, untouched, refuse, subtests):
    for name in ["benchmark", "unrestricted", "transfer", "explain"]:
        with subtests.test(name=name):
            tmp_path = tmp_path_factory.mktemp("case")
            folder = tmp_path / "theirs"
            folder.mkdir()
            (folder / "run.toml").write_text(f'data = "digits"\nmodel = "torch:{watched_paths["evil"]}:net"\n')
            assert "evil.py" in refuse(name, "--resume", "--out", folder)
            assert "evil.py" in refuse(name, folder / "run.toml")


def test_what_comes_with_brinell_needs_no_trust(subtests):
    for setting, text in HARMLESS:
        with subtests.test(setting=setting):
            assert trust.named_specs({setting: text}, Request) == {} == trust.named_specs({setting: [text]}, Request)


# Whose folder it is


def test_a_run_made_here_goes_on_as_before(run_folder, ask):
    assert ask("verify", run_folder)[0] == 0
    assert cli(["audit", str(run_folder / "run.toml"), "--dry-run"]) == 0


def test_a_mark_holds_for_what_it_was_made_of(run_folder, tmp_path, monkeypatch):
    manifest = Run.open(run_folder).manifest
    foreign_request = manifest["request"] | {"model": ["torch:/elsewhere/model.py:net"]}
    assert trust.untrusted_specs(manifest["request"], Request, run_folder, manifest[trust.MARK]) == {}
    assert trust.untrusted_specs(foreign_request, Request, run_folder, manifest[trust.MARK]) != {}
    assert trust.untrusted_specs(manifest["request"], Request, run_folder, None) != {}
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "another person"))
    assert trust.untrusted_specs(manifest["request"], Request, run_folder, manifest[trust.MARK]) != {}


@pytest.mark.parametrize("model", ["torch:model.py:net", "torch:/x/model.py:net"])
def test_a_mark_holds_for_a_folder_in_its_place_from_anywhere(tmp_path, monkeypatch, model):
    values, place = {"model": model}, tmp_path / "run"
    for name in ("made", "theirs", "run"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "made")
    mark = trust.make_mark(values, Request, place)
    os.symlink(place, tmp_path / "link")
    for directory in ("made", "theirs", ".."):
        monkeypatch.chdir(tmp_path / directory)
        origin = tmp_path / "made" if model == "torch:model.py:net" else Path.cwd()
        for folder in (place, Path(os.path.relpath(place)), tmp_path / "link"):
            assert trust.find_origin(values, Request, folder, mark) == origin
            assert trust.untrusted_specs(values, Request, folder, mark) == {}
        for changed in (mark.partition(":")[0] + ":../theirs", mark[::-1], "é", 3):
            assert trust.untrusted_specs(values, Request, place, changed) != {}
        is_ours = trust.untrusted_specs(values, Request, tmp_path / "copy", mark) == {}
        assert is_ours == (model != "torch:model.py:net")
        assert trust.untrusted_specs({"model": "torch:other.py:net"}, Request, place, mark) != {}
    shutil.rmtree(tmp_path / "made")
    assert (trust.find_origin(values, Request, place, mark) is None) == (model == "torch:model.py:net")


def test_the_key_is_for_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "own"))
    first, *others = (trust.make_mark({"model": f"onnx:/{name}.onnx"}, Request, tmp_path) for name in "xxy")
    assert first == others[0] != others[1]
    assert (tmp_path / "own" / "key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "file"))
    assert trust.make_mark({"model": "onnx:/x.onnx"}, Request, tmp_path) is None


@pytest.fixture
def relative_folders(tmp_path, monkeypatch):
    """A run and a study that name files in the folder where they were made, whose model opens its weights there, too."""
    (tmp_path / "made").mkdir()
    made = workspace(tmp_path / "made", n=12)
    monkeypatch.chdir(made)
    source = Path("model.py").read_text()
    Path("model.py").write_text(source + "\n\ndef net():\n    open('data.npz').close()\n    return parabola()\n")
    names = ["--data", "data.npz", "--model", "model.py:net", "--eps", "0.1"]
    assert cli(["audit", *names, "--attack", "fgsm", "--out", "run"]) == 0
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "smoothed"])
def test_relative_names_verify_from_any_directory(relative_folders, tmp_path, monkeypatch, ask, name):
    names = ["--data", "data.npz", "--model", "model.py:net", "--draws", "100", "--first", "10"]
    assert name == "run" or cli(["smooth", *names, "--out", name]) == 0
    place, elsewhere = relative_folders / name, tmp_path / "elsewhere"
    elsewhere.mkdir()
    workspace(elsewhere, n=12)
    os.symlink(place, elsewhere / "link")
    shutil.copytree(place, elsewhere / "copy")
    for directory in (relative_folders, elsewhere, place):
        monkeypatch.chdir(directory)
        for folder in (place, os.path.relpath(place), elsewhere / "link"):
            assert ask("verify", folder)[0] == 0, (directory, folder)
        assert ask("verify", elsewhere / "copy")[0] == 4
        assert Path.cwd() == directory
    monkeypatch.chdir(elsewhere)
    assert ask("verify", place, "--data", "../made/data.npz")[0] == 0
    (elsewhere / "model.py").write_text("raise SystemExit('the code of somebody else')")
    assert ask("verify", place)[0] == 0


def test_relative_names_verify_from_another_directory(relative_folders, tmp_path, monkeypatch, ask):
    monkeypatch.chdir(tmp_path)
    assert ask("verify", "made/run")[0] == 0 and Path.cwd() == tmp_path
    shutil.copytree("made/run", "copy")
    assert ask("verify", "copy")[0] == 4


def test_resuming_names_the_directory(relative_folders, tmp_path, monkeypatch, refuse):
    assert cli(["audit", "run/run.toml", "--model", "model.py:parabola", "--dry-run"]) == 0
    monkeypatch.chdir(tmp_path)
    for words in (
        ["audit", "--resume", "--out", "made/run"],
        ["audit", "made/run/run.toml"],
        ["detect", "made/run", "--train", "digits"],
    ):
        assert f"cd {relative_folders}" in refuse(*words)


# What a person says


@pytest.fixture
def foreign_run(run_folder, tmp_path):
    """The honest run of somebody else: no mark of ours."""
    shutil.copytree(run_folder, tmp_path / "theirs")
    run = Run.open(tmp_path / "theirs")
    run.manifest[trust.MARK] = "0" * 64
    run.save_manifest()
    return tmp_path / "theirs"


def test_what_can_be_said_without_trust(foreign_run, ask):
    code, answer = ask("verify", foreign_run)
    assert code == 4 and answer["status"] == "consistent" and answer["problems"] == []
    assert "--trust" in answer["refusal"] and answer["rows"] > 0 and answer["verified_claims"]
    next(foreign_run.glob("records/*.parquet")).unlink()
    assert [problem["description"] for problem in ask("verify", foreign_run)[1]["problems"]] == ["the file is missing"]


def test_trust_allows_it(foreign_run, home, ask):
    assert ask("verify", foreign_run, "--trust", foreign_run.parent)[0] == 0
    assert ask("verify", foreign_run, "--trust", home)[0] == 4


@pytest.mark.slow
def test_trust_and_naming_again_allow_it(foreign_run, home, ask, refuse):
    assert ask("verify", foreign_run, "--trust", foreign_run)[0] == 0
    model, data = f"torch:{home}/model.py:parabola", f"npz:{home}/data.npz"
    assert ask("verify", foreign_run, "--model", model, "--data", data)[0] == 0
    assert ask("verify", foreign_run, "--model", model)[0] == 4
    assert brinell.verify(foreign_run, trust=foreign_run).passed
    second_model = f"torch:{home}/model.py:parabola?args=at=0.7"
    assert any(
        "digest" in problem["description"]
        for problem in ask("verify", foreign_run, "--model", second_model, "--data", data)[1]["problems"]
    )
    assert cli(["audit", str(foreign_run / "run.toml"), "--trust", str(foreign_run), "--dry-run"]) == 0
    assert cli(["audit", str(foreign_run / "run.toml"), "--model", model, "--data", data, "--dry-run"]) == 0
    assert "names data" in refuse("audit", foreign_run / "run.toml", "--model", model)


def test_a_file_of_settings_of_ones_own_is_trusted(home, tmp_path):
    shutil.copy(home / "run" / "run.toml", tmp_path / "mine.toml")
    assert cli(["audit", str(tmp_path / "mine.toml"), "--dry-run"]) == 0


def test_a_link_does_not_make_a_file_ones_own(foreign_run, tmp_path, refuse):
    os.symlink(foreign_run / "run.toml", tmp_path / "mine.toml")
    assert "--trust" in refuse("audit", tmp_path / "mine.toml", "--dry-run")


# Tokens


def test_a_token_goes_to_no_host_that_only_a_folder_names(run_folder, tmp_path, monkeypatch, refuse):
    monkeypatch.setenv("BRINELL_TOKEN", "a-secret")
    folder = hostile(run_folder, tmp_path / "theirs", "model", HOST)
    message = refuse("audit", folder / "run.toml", "--trust", folder, "--dry-run")
    assert "the host 127.0.0.1:9" in message and "a-secret" not in message


def test_only_variables_of_ours_are_sent(refuse):
    message = refuse("audit", "--data", "digits", "--model", HOST + "?token_env=HOME", "--dry-run")
    assert "BRINELL_" in message and os.environ["HOME"] not in message
