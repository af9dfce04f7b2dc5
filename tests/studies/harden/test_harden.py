"""Tests of `brinell harden` on a small problem: results, Python call, resume, and rejected input."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import brinell
from _browser import check_everywhere, chromium
from _hardening import harden_arguments, samples
from _helpers import mlp
from brinell.cli import run as cli
from brinell.core.model import ModelInfo
from brinell.engine.progress import SilentProgress
from brinell.studies.harden.run import with_weights


@pytest.mark.slow
def test_training_raises_robust_accuracy_and_the_spec_loads_the_weights(
    workspace, hardened_run, capsys
):
    result = brinell.open(hardened_run)
    before, after = result.before.robust_accuracy[-1], result.after.robust_accuracy[-1]
    assert before.value < 0.9 and after.value == 1 and result.comparison.robust[-1].low > 0
    assert (
        result.facts.trained_on == 230
        and result.facts.validation == 26
        and result.training.steps == 12 * 7
    )
    assert result.spec.endswith(
        f"?weights={hardened_run / 'network-hardened.safetensors'}&name=network-hardened"
    )
    assert (
        cli(
            [
                "audit",
                "--data",
                str(workspace / "test.npz"),
                "--model",
                result.spec,
                "--eps",
                "0,0.15",
                "--attack",
                "pgd?steps=5",
                "--out",
                str(workspace / "again"),
                "--json",
            ]
        )
        == 0
    )
    (audited,) = json.loads(capsys.readouterr().out)["models"]
    assert audited["name"] == "network-hardened"
    assert audited["robust_accuracy"][-1]["k"] == 60 and audited["clean_accuracy"]["k"] == 60


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_in_a_browser(hardened_run):
    with chromium() as browser:
        check_everywhere(browser, hardened_run / "report.html")


def test_the_folders_of_the_audits_are_runs_like_any_other(hardened_run, tmp_path):
    assert cli(["gate", str(hardened_run / "after"), "--robust", "0.8", "--without-checks"]) in (
        0,
        1,
    )
    (pair,) = brinell.compare(
        [hardened_run / "before", hardened_run / "after"], out=tmp_path / "c"
    ).pairs
    assert pair.robust[-1].difference > 0
    assert cli(["verify", str(hardened_run / "after")]) == 0


def test_robustness_is_measured_under_unseen_changes(hardened_run):
    """The classes differ by 0.4 in one value, so changes of that value by less leave both models
    correct."""
    result = brinell.open(hardened_run)
    by_name = {row.name: row for row in result.unseen}
    same_norm, l2 = by_name["PGD, 20 steps, Linf 0.15"], by_name["PGD, 20 steps, L2 0.065"]
    assert same_norm.seen and not l2.seen and same_norm.pair.value_a == 1 and same_norm.pair.n == 60
    assert l2.pair.value_a == 1 and sum(row.seen for row in result.unseen) == 1
    assert len(by_name) > 3
    assert all(
        row.pair.difference == pytest.approx(row.pair.value_a - row.pair.value_b)
        for row in result.unseen
    )


@pytest.mark.slow
def test_an_interrupted_hardening_resumes_with_equal_weights(
    workspace, tmp_path, monkeypatch, hardened_run, capsys
):
    from brinell.training.loop import Loop

    folder, calls = tmp_path / "out", iter(range(10**6))
    step = Loop._step

    def stopped_step(self, share):
        if next(calls) == 30:
            raise KeyboardInterrupt
        return step(self, share)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_step", stopped_step)
        assert cli(harden_arguments(workspace, folder)) == 130
    assert f"go on with brinell harden --resume --out {folder}" in capsys.readouterr().err
    assert cli(["harden", "--resume", "--out", str(folder)]) == 0
    weights, resumed_weights = (
        load_file(path / "network-hardened.safetensors") for path in (hardened_run, folder)
    )
    assert all(torch.equal(weights[name], resumed_weights[name]) for name in weights)
    assert brinell.open(folder).after.robust_accuracy[-1].k == 60


@pytest.mark.slow
def test_the_seed_determines_random_initialisation(workspace, tmp_path):
    def weights(name, seed):
        assert (
            cli(
                harden_arguments(
                    workspace,
                    tmp_path / name,
                    "--epochs",
                    "1",
                    "--seed",
                    seed,
                    "--samples",
                    "10",
                    model="by_chance",
                )
            )
            == 0
        )
        return load_file(tmp_path / name / "by_chance-hardened.safetensors")["1.weight"]

    state = torch.get_rng_state()
    first, second, other_seed = weights("one", "3"), weights("two", "3"), weights("other", "4")
    assert torch.equal(first, second) and not torch.equal(first, other_seed)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.slow
def test_from_python_a_copy_is_trained(workspace, tmp_path):
    module = mlp(3, 2)
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    result = brinell.harden(
        module,
        samples(60, 1),
        train=samples(256, 0),
        eps=0.15,
        attack="fgsm",
        budgets=[0, 0.15],
        epochs=12,
        rate=0.02,
        average=0.9,
        batch_size=32,
        out=tmp_path / "out",
    )
    assert (
        all(torch.equal(weights[name], value) for name, value in module.state_dict().items())
        and not module.training
    )
    assert result.spec is None and result.after.robust_accuracy[-1].value == 1
    module.load_state_dict(load_file(result.weights))
    audit = brinell.audit(
        module, samples(60, 1), attack="fgsm", eps=[0, 0.15], out=tmp_path / "audit"
    )
    assert audit.robust(0.15).k == result.after.robust_accuracy[-1].k


class StageRecorder(SilentProgress):
    """Records every stage that is reported, and the passes of each."""

    def __init__(self):
        self.stages = []

    def stage(self, model, stage, samples, passes):
        self.stages.append([model, stage, passes, 0])

    def count_passes(self, forwards, backwards):
        self.stages[-1][3] += forwards + backwards


@pytest.mark.parametrize(("length", "expected"), [({"epochs": 1}, 7 * 32 * (11 + 11))])
def test_progress_counts_the_passes_of_the_training(tmp_path, length, expected):
    """Seven batches of 32 per epoch, with ten PGD steps and the update.

    A time limit gives no expected number of passes.
    """
    recorder = StageRecorder()
    brinell.harden(
        mlp(3, 2),
        samples(60, 1),
        train=samples(256, 0),
        eps=0.15,
        attack="fgsm",
        recipe="pgd(steps=10)",
        batch_size=32,
        out=tmp_path / "out",
        progress=recorder,
        **length,
    )
    before = recorder.stages[0][0]
    ((model, _, planned, passes),) = [
        stage for stage in recorder.stages if stage[1].startswith("training")
    ]
    assert model == f"{before}-hardened", "the training is reported under its own model name"
    assert planned == expected and passes > 0 and (not planned or passes == planned)


def test_a_nan_loss_stops_the_training_with_one_line(workspace, tmp_path, capsys, monkeypatch):
    from brinell.training.loop import Loop

    step = Loop._step
    monkeypatch.setattr(
        Loop,
        "_step",
        lambda self, share: float("nan") if self.state.step == 20 else step(self, share),
    )
    assert cli(harden_arguments(workspace, tmp_path / "out")) == 3
    message = capsys.readouterr().err.splitlines()[-1]
    assert (
        "the loss is nan at step 21" in message
        and "the weights of step" in message
        and "smaller --rate" in message
        and "--resume" not in message
    )
    assert (tmp_path / "out" / "checkpoints" / "last.safetensors").exists()


SPECS = [
    ("digits-cnn", "digits-cnn?weights=w.safetensors&name=w"),
    (
        "model.py:net?weights=old.pt&args=a=1",
        "torch:model.py:net?weights=w.safetensors&args=a=1&name=w",
    ),
    ("timm:resnet18", "timm:resnet18?weights=w.safetensors&name=w"),
    ("http://localhost:8000/v2/models/x", None),
]


def test_the_spec_of_the_hardened_model(tmp_path, monkeypatch, subtests):
    for number, (spec, expected) in enumerate(SPECS):
        with subtests.test(str(spec)):
            folder = tmp_path / str(number)
            folder.mkdir()
            monkeypatch.chdir(folder)
            Path("model.py").write_text("def net(): ...")
            assert with_weights(spec, Path("w.safetensors"), ModelInfo()) == expected


@pytest.mark.slow
def test_a_folder_may_be_moved(workspace, tmp_path, hardened_run):
    import shutil

    copy = tmp_path / "moved"
    shutil.copytree(hardened_run, copy)
    result = brinell.open(copy)
    assert result.weights == str(copy / "network-hardened.safetensors")
    assert result.spec == brinell.open(hardened_run).spec.replace(str(hardened_run), str(copy))


@pytest.mark.slow
def test_verify_takes_the_training_on_trust(hardened_run, capsys):
    assert cli(["verify", str(hardened_run)]) == 0
    assert "the training: that the recipe makes the stored weights" in capsys.readouterr().out


@pytest.mark.slow
def test_lazy_layers_take_the_hardened_weights(workspace, tmp_path):
    assert cli(harden_arguments(workspace, tmp_path / "out", "--epochs", "1", model="lazy")) == 0
    weights = load_file(tmp_path / "out" / "lazy-hardened.safetensors")
    assert weights["1.weight"].shape == (2, 3)


@pytest.mark.parametrize(("recipe", "is_seen"), [("plain", False), ("pgd(steps=1)", True)])
@pytest.mark.slow
def test_only_adversarial_recipes_mark_pgd_as_seen(tmp_path, recipe, is_seen):
    result = brinell.harden(
        mlp(3, 2),
        samples(60, 1),
        train=samples(256, 0),
        eps=0.15,
        attack="fgsm",
        recipe=recipe,
        epochs=1,
        samples=20,
        batch_size=32,
        out=tmp_path / "out",
    )
    assert {row.name: row.seen for row in result.unseen}["PGD, 20 steps, Linf 0.15"] == is_seen


@pytest.mark.slow
def test_autocast_around_a_hardening_is_ignored(tmp_path):
    with torch.autocast("cpu", torch.bfloat16):
        result = brinell.harden(
            mlp(3, 2),
            samples(60, 1),
            train=samples(256, 0),
            eps=0.15,
            attack="fgsm",
            epochs=1,
            samples=20,
            batch_size=32,
            out=tmp_path / "out",
        )
    assert result.training.steps == 7


@pytest.mark.slow
def test_the_training_budget_is_audited(workspace, tmp_path):
    folder = tmp_path / "out"
    assert (
        cli(harden_arguments(workspace, folder, "--epochs", "1", "--samples", "10", "--eps", "0.1"))
        == 0
    )
    assert brinell.open(folder).after.eps == [0, 0.1, 0.15]


@pytest.mark.slow
def test_a_name_with_a_slash_makes_no_folder(tmp_path):
    folder = tmp_path / "out"
    spec = [
        "--model",
        "digits-cnn?name=a/b",
        "--recipe",
        "plain",
        "--epochs",
        "0.1",
        "--samples",
        "10",
        "--attack",
        "fgsm",
    ]
    assert cli(["harden", *spec, "--budgets", "0,0.1", "--eps", "0.1", "--out", str(folder)]) == 0
    assert (
        Path(brinell.open(folder).weights) == folder / "a_b-hardened.safetensors"
        and (folder / "a_b-hardened.safetensors").is_file()
    )
