"""A folder from elsewhere names files, code and hosts: none of them is imported, opened or asked
before a person says so.
"""

import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import brinell
from _helpers import workspace
from brinell.cli import run as cli
from brinell.store import trust
from brinell.store.run import LAYOUT, Run

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
    ("model", "torch:{evil}:net?weights={secret}"),
    ("model", "evil_package.thing:Thing"),
    ("model", "onnx:{secret}"),
    ("model", HOST + "?token_env=BRINELL_TOKEN"),
    ("surrogate", "torch:{evil}:net"),
    ("data", "npz:{secret}"),
    ("data", "image-folder:{folder}"),
    ("data", "npz:/dev/zero"),
    ("attack", "{evil}:Thing"),
    ("attack", "rlab?distortions=gaussian-noise+{evil}:Thing"),
    ("norm", "embedding:{secret}"),
    ("eps", "recommended:{folder}?by=class"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("home"), n=12)


@pytest.fixture(scope="module")
def run_folder(home):
    """A run that was made here, of files that are named in full."""
    words = [
        "audit",
        "--data",
        f"npz:{home}/data.npz",
        "--model",
        f"torch:{home}/model.py:parabola",
        "--eps",
        "0.1",
    ]
    assert cli([*words, "--attack", "fgsm", "--out", str(home / "run")]) == 0
    return home / "run"


@pytest.fixture
def watched_paths(tmp_path):
    """Places that must not be touched, and what opened or imported them."""
    places = {
        "evil": tmp_path / "evil.py",
        "secret": tmp_path / "secret.npz",
        "folder": tmp_path / "private",
    }
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
    if FORBIDDEN and event in (
        "open",
        "socket.connect",
        "os.listdir",
        "os.scandir",
        "subprocess.Popen",
    ):
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
    FORBIDDEN[:] = ["evil", "secret", str(watched_paths["folder"]), "/dev/zero"]
    yield
    FORBIDDEN.clear()
    assert ACCESSES == [] and not (tmp_path / "ran").exists() and "evil_package" not in sys.modules


@contextmanager
def somebody_else(folder):
    """Another person, who has a key of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BRINELL_CACHE", str(folder / "their cache"))
        yield


def hostile(run_folder, folder, setting, text):
    """The run as somebody else hands it over: its request names something else."""
    shutil.copytree(run_folder, folder)
    run = Run.open(folder)
    value = [text] if isinstance(run.manifest["request"][setting], list) else text
    run.manifest["request"][setting] = value
    written = trust.without_mark((folder / "run.toml").read_bytes()).decode().splitlines()
    lines = [line for line in written if not line.startswith(f"{setting} =")]
    with somebody_else(folder.parent):
        LAYOUT.save(run.path, run.manifest)
        (folder / "run.toml").write_text(
            trust.add_mark(folder, "\n".join([*lines, f"{setting} = {json.dumps(value)}"]) + "\n")
        )
    return folder


def test_nothing_that_a_hostile_folder_names_is_touched(
    run_folder, tmp_path_factory, watched_paths, untouched, capsys, subtests
):
    """Each name by one of five ways in turn."""
    for place, (setting, text) in enumerate(NAMES):
        with subtests.test(setting=setting, text=text):
            folder = hostile(
                run_folder,
                tmp_path_factory.mktemp("case") / "theirs",
                setting,
                text.format(**watched_paths),
            )
            ways = [
                (("explain", "--run", folder), 2),
                (("audit", folder / "run.toml", "--dry-run"), 2),
                (("verify", folder), 1),  # the page is no longer that of the request
                (("audit", "--resume", "--out", folder), 2),
                (("verify", folder, "--model", "digits-cnn", "--data", "digits"), 1),
            ]
            words, code = ways[place % 5]
            capsys.readouterr()
            assert cli([str(word) for word in words]) == code, words
            error = capsys.readouterr().err
            assert (
                error.count("\n") == 1
                and "--trust" in error
                and "was not made by you, or was moved" in error
            ), error
            assert ACCESSES == []


def test_verbs_that_read_records_name_nothing(
    run_folder, tmp_path_factory, watched_paths, untouched, subtests
):
    for verb in ["gate", "compare", "report"]:
        with subtests.test(verb=verb):
            tmp_path = tmp_path_factory.mktemp("case")
            folder = hostile(
                run_folder, tmp_path / "theirs", "model", "torch:{evil}:net".format(**watched_paths)
            )
            arguments = {
                "gate": ["--clean", "0", "--without-checks"],
                "compare": [str(run_folder), "--out", str(tmp_path / "c")],
                "report": [],
            }[verb]
            assert cli([verb, str(folder), *arguments]) == 0


def test_other_folders_that_go_on(tmp_path, watched_paths, untouched, refuse):
    for name in ("benchmark", "unrestricted", "transfer", "explain"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.toml").write_text(
            f'data = "digits"\nmodel = "torch:{watched_paths["evil"]}:net"\n'
        )
        assert "--trust" in refuse(name, "--resume", "--out", folder)


# Whose folder it is


def test_a_run_made_here_goes_on_as_before(run_folder, ask, monkeypatch, tmp_path):
    assert cli(["audit", str(run_folder / "run.toml"), "--dry-run"]) == 0
    monkeypatch.chdir(tmp_path)
    assert ask("verify", run_folder)[0] == 0


def test_a_mark_holds_for_a_request_in_its_place(tmp_path, monkeypatch):
    """From anywhere and through links; not for a copy, an edited request, another directory, or
    another person's key.
    """
    place, made = tmp_path / "run", tmp_path / "made"
    place.mkdir()
    made.mkdir()
    monkeypatch.chdir(made)
    mark = trust.make_mark(place, "request")
    os.symlink(place, tmp_path / "link")
    for directory in (made, place, tmp_path):
        monkeypatch.chdir(directory)
        for folder in (place, Path(os.path.relpath(place)), tmp_path / "link"):
            assert trust.find_origin(folder, "request", mark, None) == made
            assert trust.find_origin(folder, "other", mark, None) is None
        for claimed in (mark.partition(":")[0] + ":..", mark[::-1], "", "é", 3, None):
            assert trust.find_origin(place, "request", claimed, None) is None
        assert trust.find_origin(tmp_path / "copy", "request", mark, None) is None
        assert trust.find_origin(tmp_path / "copy", "request", mark, tmp_path) == directory
        with somebody_else(tmp_path):
            assert trust.find_origin(place, "request", mark, None) is None
    made.rmdir()
    assert trust.find_origin(place, "request", mark, None) is None


def test_the_key_is_for_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "own"))
    first, *others = (trust.make_mark(tmp_path, text) for text in "xxy")
    assert first == others[0] != others[1]
    assert (tmp_path / "own" / "key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "file"))
    assert trust.make_mark(tmp_path, "x") is None
    assert trust.find_origin(tmp_path, "x", "", None) is None


@pytest.fixture
def relative_folders(tmp_path, monkeypatch):
    """A run and a study that name files in the folder where they were made, whose model opens its
    weights there, too."""
    (tmp_path / "made").mkdir()
    made = workspace(tmp_path / "made", n=12)
    monkeypatch.chdir(made)
    source = Path("model.py").read_text()
    Path("model.py").write_text(
        source + "\n\ndef net():\n    open('data.npz').close()\n    return parabola()\n"
    )
    names = ["--data", "data.npz", "--model", "model.py:net", "--eps", "0.1"]
    assert cli(["audit", *names, "--attack", "fgsm", "--out", "run"]) == 0
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "smoothed"])
def test_relative_names_verify_from_any_directory(
    relative_folders, tmp_path, monkeypatch, ask, name
):
    names = [
        "--data",
        "data.npz",
        "--model",
        "model.py:net",
        "--method",
        "smoothing?draws=100&first=10",
    ]
    assert name == "run" or cli(["certify", *names, "--out", name]) == 0
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
    (elsewhere / "model.py").write_text("raise SystemExit('the code of somebody else')")
    assert ask("verify", place)[0] == 0


def test_relative_names_verify_from_another_directory(relative_folders, tmp_path, monkeypatch, ask):
    monkeypatch.chdir(tmp_path)
    assert ask("verify", "made/run")[0] == 0 and Path.cwd() == tmp_path
    shutil.copytree("made/run", "copy")
    assert ask("verify", "copy")[0] == 4


@pytest.mark.slow
def test_resuming_names_the_directory(relative_folders, tmp_path, monkeypatch, refuse):
    assert cli(["audit", "run/run.toml", "--model", "model.py:parabola", "--dry-run"]) == 0
    monkeypatch.chdir(tmp_path)
    for words in (
        ["audit", "--resume", "--out", "made/run"],
        ["audit", "made/run/run.toml"],
    ):
        assert f"cd {relative_folders}" in refuse(*words)


# What a person says


@pytest.fixture
def foreign_run(run_folder, tmp_path):
    """The honest run of somebody else."""
    shutil.copytree(run_folder, tmp_path / "theirs")
    return tmp_path / "theirs"


def test_what_can_be_said_without_trust(foreign_run, ask):
    code, answer = ask("verify", foreign_run)
    assert code == 4 and answer["status"] == "consistent" and answer["problems"] == []
    assert "--trust" in answer["refusal"] and answer["verified_claims"]
    (foreign_run / "rows.parquet").unlink()
    assert [problem["description"] for problem in ask("verify", foreign_run)[1]["problems"]] == [
        "the file is missing"
    ]


def test_trust_allows_it(foreign_run, home, ask):
    assert ask("--trust", foreign_run.parent, "verify", foreign_run)[0] == 0
    assert ask("--trust", home, "verify", foreign_run)[0] == 4


@pytest.mark.slow
def test_trust_in_other_ways(foreign_run, home, ask, refuse):
    assert brinell.verify(foreign_run, trust=foreign_run).passed
    assert (
        cli(["--trust", str(foreign_run), "audit", str(foreign_run / "run.toml"), "--dry-run"]) == 0
    )
    assert "--trust" in refuse(
        "audit", foreign_run / "run.toml", "--data", f"npz:{home}/data.npz", "--dry-run"
    )
    (foreign_run / "run.toml").rename(foreign_run.parent / "run.toml")
    assert cli(["audit", str(foreign_run.parent / "run.toml"), "--dry-run"]) == 0, (
        "a file that a person names is their own"
    )
