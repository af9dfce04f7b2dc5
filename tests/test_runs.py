"""The shared runs hold what is known of their models, and nobody changes them unnoticed."""

import pytest

import brinell
from runs import ROBUST, Runs, copy_run


def test_figures_are_known(audit_run, models_run):
    audits = [*brinell.open(audit_run).models, *brinell.open(models_run).models]
    for audit, name in zip(audits, ("patterns", "patterns", "lead"), strict=True):
        assert (audit.clean_accuracy.k, *(rate.k for rate in audit.robust_accuracy)) == ROBUST[name]


def test_a_folder_is_made_once_and_an_edit_is_noticed(tmp_path):
    made = []

    def make(folder):
        folder.mkdir()
        (folder / "file").write_text(str(made.append(1)))

    runs = Runs(tmp_path)
    path = runs.make("kind", make)
    assert Runs(tmp_path).make("kind", make) == path and made == [1]
    (copy_run(path, tmp_path) / "file").write_text("edited")
    runs.check()
    (path / "file").write_text("edited")
    with pytest.raises(AssertionError, match="kind"):
        runs.check()
