"""The folder of every study verifies, and random edits of it do not, unless what they change is
marked as claimed."""

import json
import shutil
import zlib

import numpy as np
import pytest

import brinell
from _hardening import MODEL
from _nights import of_tonight
from _reviews import make_review
from _study_edits import Edit, is_claimed, save_manifest
from _study_examples import EXAMPLES, REVIEW, Needs
from brinell import calls
from brinell.core.errors import BrinellError
from brinell.store.folder import MANIFEST, read_json
from brinell.store.trust import MARK
from brinell.studies import register
from brinell.studies.verification.run import declared_claims

STUDIES = sorted(set(EXAMPLES) - {"audit"} | {"review"})
EDITS = 3


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The folder of each study, made once."""
    folder = tmp_path_factory.mktemp("honest")
    needs = Needs(folder)

    def make(verb):
        if not (folder / verb).exists() and verb == "review":
            make_review(folder / verb, lambda eps: eps > 0.2, **REVIEW)
        elif not (folder / verb).exists():
            calls.call_of(register.load(verb))(**EXAMPLES[verb] | needs(verb), out=folder / verb)
        return folder / verb

    return make


def test_every_study_with_a_folder_is_verified():
    assert set(STUDIES) | {"audit"} == {
        verb for verb, study in register.studies().items() if study.leaves_folder
    }


@pytest.mark.slow
def test_an_honest_folder_verifies(honest, subtests):
    for verb in STUDIES:
        with subtests.test(str((verb,))):
            result = brinell.verify(honest(verb))
            assert result.passed, result.problems
            assert result.unverified_claims


def test_everything_claimed_is_documented(root):
    text = " ".join((root / "docs/reference/trust.md").read_text().split()).lower()
    for study in register.studies().values():
        reasons = declared_claims(study).listing() if study.leaves_folder else ()
        for reason, _ in reasons:
            assert reason.lower() in text, f"{study.verb}: {reason}"


@pytest.mark.slow
def test_nothing_that_a_foreign_folder_names_is_opened(honest, tmp_path):
    folder = tmp_path / "theirs"
    shutil.copytree(honest("harden"), folder)
    manifest = read_json(folder / MANIFEST)
    settings, mark = manifest["request"], tmp_path / "mark"
    settings["model"] = f"torch:{tmp_path / 'evil.py'}:network"
    (tmp_path / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n" + MODEL
    )
    save_manifest(folder, manifest)
    file = (
        folder / "manifest.json"
    )  # saving marks the folder as ours, and a stranger has another key
    file.write_text(json.dumps(json.loads(file.read_text()) | {MARK: "0" * 64}))
    result = brinell.verify(folder)
    assert not result.passed and "was not made by you" in result.refusal and not mark.exists()
    result = brinell.verify(folder, trust=folder)
    assert not result.passed


def test_audits_before_and_after_a_training_are_not_exchanged(harden_run, tmp_path):
    folder = tmp_path / "swapped"
    shutil.copytree(harden_run, folder)
    (folder / "before").rename(folder / "x")
    (folder / "after").rename(folder / "before")
    (folder / "x").rename(folder / "after")
    save_manifest(folder, read_json(folder / MANIFEST))
    register.load("harden").write_page(folder)
    result = brinell.verify(folder)
    assert result.status == "refused", result


def test_another_version_proves_no_pages(corrupt_run, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(corrupt_run, folder)
    (folder / "report.html").write_text("<p>robust</p>")
    save_manifest(folder, read_json(folder / MANIFEST) | {"brinell": "0.0.9"})
    result = brinell.verify(folder)
    assert not result.passed and any(
        "another version" in sentence for sentence in result.unverified_claims
    )


def check_edits(verb, folder, tmp_path, seeds):
    study = register.load(verb)
    for seed in seeds:
        copy = tmp_path / f"{verb}-{seed}"
        shutil.copytree(folder, copy)
        edit = Edit(copy, np.random.default_rng([seed, zlib.crc32(verb.encode())]))
        try:
            noticed = not brinell.verify(copy).passed
        except BrinellError:
            noticed = True
        claimed = is_claimed(study, folder, *edit.target)
        assert noticed or claimed, f"edit {seed} of {edit.target} verifies"
        shutil.rmtree(copy)


@pytest.mark.nightly
def test_random_edits_are_noticed(honest, tmp_path_factory, subtests):
    for verb in STUDIES:
        with subtests.test(str((verb,))):
            tmp_path = tmp_path_factory.mktemp("row")
            check_edits(verb, honest(verb), tmp_path, range(EDITS))


@pytest.mark.nightly
def test_random_edits_of_tonight_are_noticed(honest, tmp_path_factory, subtests):
    """Others each night: a share of a tenth that is not noticed shows within a week in each study."""
    for verb in STUDIES:
        with subtests.test(str((verb,))):
            tmp_path = tmp_path_factory.mktemp("row")
            check_edits(verb, honest(verb), tmp_path, of_tonight(6))
