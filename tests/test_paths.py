"""Paths of users: home folders in full wherever a path is taken, drive letters, and outputs that
are refused before any work.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import brinell
from _refusals import refused
from brinell import plugins
from brinell.cli import run as cli
from brinell.core.errors import BrinellError, RequestError
from brinell.core.user_files import expand_home, user_path
from brinell.engine.sources import open_data
from brinell.engine.spelling import expand_spec
from brinell.store.files import write_text
from brinell.studies import register
from brinell.studies.kit import Call, Output

STUDIES = register.studies()
NAMING = [
    (verb, request, field)
    for verb, study in STUDIES.items()
    for request in (study.request, study.options)
    for field in (request.model_fields if request else ())
    if (mark := request.names_of(field)) is not None and mark.kind and mark.kind != "address"
]
SPECS = (
    "~",
    "~/T",
    "npz:~/X.npz",
    "model.py:f?weights=~/W.pt",
    "recommended:~/r",
    "rlab?policy=~/p&steps=3",
    "~/a.py:F+~/b.py:G",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home folder and a working folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "Home"))
    (tmp_path / "Home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "Home"


def test_every_setting_that_names_something_takes_home_folders(home, subtests):
    for verb, request_type, field in NAMING:
        with subtests.test(verb=verb):
            for spec in (*SPECS, Path("~/T")):
                (full,) = request_type.with_paths({field: [spec]})[field]
                assert full == str(spec).replace("~", str(home)), (verb, field)
                assert request_type.with_paths({field: spec})[field] == full


def test_other_tildes_stay(subtests):
    for text in [
        "a~b",
        "x~",
        "file~1.npz",
        "npz:a~",
        "mean=0~1",
        "2 ~ 3",
        "~nobody-here/x",
        "s3://bucket/~/x",
    ]:
        with subtests.test(text=text):
            assert expand_home(text) == text


def test_outputs_that_cannot_be_written_are_refused_before_any_work(tmp_path, subtests):
    for verb in [verb for verb, study in STUDIES.items() if study.output is not Output.ANSWER_ONLY]:
        with subtests.test(verb=verb):
            study, folder = STUDIES[verb], tmp_path / verb

            def begin(out, study=study):
                """The refusal of a call with this output."""
                with pytest.raises(RequestError) as failure:
                    Call(study=study, request=None, command="", progress=None, out=out)
                return str(failure.value)

            file, full = folder / "File", folder / "Full"
            full.mkdir(parents=True)
            file.write_text("content")
            (full / "Notes.txt").write_text("mine")
            assert f"{file / 'Sub'} cannot be written" in begin(
                file / "Sub"
            ) or f"{file} cannot be written" in begin(file / "Sub")
            if study.output is Output.FILE:
                assert f"{full} is a folder" in begin(full)
            else:
                assert f"{file} cannot be written (a file has that name)" in begin(file)
                assert not study.leaves_folder or f"{full} is not empty" in begin(full)
            assert sorted(os.listdir(folder)) == ["File", "Full"] and os.listdir(full) == [
                "Notes.txt"
            ]
            fresh = folder / "New" / "Deep"
            Call(study=study, request=None, command="", progress=None, out=fresh)
            assert not (folder / "New").exists()


@pytest.mark.skipif(os.sep != "/", reason="paths of Windows are paths there")
def test_paths_of_windows_are_refused_wherever_a_path_is_named(tmp_path, subtests):
    for path in [r"C:\runs\one", "c:/runs/one", r"runs\one"]:
        with subtests.test(path=path):
            for verb, study in STUDIES.items():
                if study.output is not Output.ANSWER_ONLY:
                    with pytest.raises(
                        RequestError, check=refused("core.user_files.check_foreign")
                    ):
                        Call(study=study, request=None, command="", progress=None, out=Path(path))
                assert sorted(os.listdir(tmp_path)) == ["Home", "work"] and os.listdir(".") == [], (
                    verb
                )
            names = {
                (request, field)
                for _, request, field in NAMING
                if request.names_of(field).kind in ("file", "folder")
            }
            for request, field in names:
                with pytest.raises(ValidationError) as failure:
                    request(**{field: path})
                assert any(
                    "there is no file or folder" in error["msg"] for error in failure.value.errors()
                ), (request, field)
            with pytest.raises(BrinellError, match="there is no file or folder"):
                brinell.audit("digits-cnn", "digits", samples=2, out=path)
            assert os.listdir(".") == []


def test_names_in_the_home_folder_and_results_there(home):
    x, y = np.random.default_rng(0).random((4, 1, 2, 2), dtype=np.float32), np.arange(4) % 2
    np.savez(home / "Data.npz", x=x, y=y)
    (home / "net.py").write_text(
        "import torch\n\ndef make():\n    return "
        "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))\n"
    )
    run = brinell.audit("~/net.py:make", "~/Data.npz", eps=0.1, attack="fgsm", out="~/Runs/T")
    assert (
        run.folder == str(home / "Runs" / "T") and (home / "Runs" / "T" / "report.html").is_file()
    )
    assert brinell.open("~/Runs/T").n == 4
    assert (
        cli(["export", "~/Runs/T", "--to", "csv", "--out", "~/csv"]) == 0
        and (home / "csv" / "rows.csv").is_file()
    )
    assert os.listdir(".") == []
    for data in (Path("~/Data.npz"), "npz:~/Data.npz"):
        assert open_data(str(data)).domain.shape == (1, 2, 2)


def test_drive_letters_begin_paths(subtests):
    rows = [
        ("data", r"C:\data\X.npz", r"there is no file C:\data\X.npz"),
        ("data", "C:/data/X.npz", "there is no file C:/data/X.npz"),
        ("data", r"d:\Pictures", r"there is no file or folder d:\Pictures"),
        ("data", "D:/Pictures?size=8", "there is no file or folder D:/Pictures"),
        ("data", r"npz:C:\X.npz", r"there is no file C:\X.npz"),
        ("model", r"C:\nets\Net.onnx", r"C:\nets\Net.onnx"),
        ("model", r"C:\nets\Net.py:make", r"there is no file C:\nets\Net.py"),
        ("attack", r"C:\Mine.py:Attack", r"C:\Mine.py"),
    ]
    for kind, spec, message in rows:
        with subtests.test(kind=kind):
            with pytest.raises(BrinellError) as failure:
                brinell.audit(
                    **{"model": "digits-cnn", "data": "digits", kind: spec}, samples=2, eps=0.1
                )
            assert message in str(failure.value).replace("\\\\", "\\"), failure.value


def test_files_with_drive_letters_are_found():
    for spec in (r"C:\data.npz", "E:/x/data.npz"):
        path = Path(spec)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=np.zeros((4, 1, 8, 8), np.float32), y=np.arange(4) % 2)
        assert expand_spec("dataset", spec) == f"npz:{spec}"
        assert plugins.parse(f"npz:{spec}?layout=first") == ("npz", spec, {"layout": "first"})


def test_messages_keep_the_case_of_a_path(tmp_path):
    (tmp_path / "A").write_text("")
    with pytest.raises(BrinellError, match=f"{tmp_path}/A/Result.csv cannot be written: [a-z]"):
        write_text(tmp_path / "A" / "Result.csv", "")
    assert user_path("~/Case") == Path(os.environ["HOME"]) / "Case"
