"""`brinell harden` end to end on a small problem, from Python too, resumed, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import brinell
from _browser import check_everywhere, chromium
from _hardening import samples, words
from _helpers import mlp
from brinell.cli import run as cli
from brinell.engine.progress import Silent
from brinell.studies.harden.analysis import summarise
from brinell.studies.harden.run import with_weights


def test_a_model_holds_afterwards_and_its_spec_loads(work, done, capsys):
    result = summarise(done)
    before, after = result.before.robust_accuracy[-1], result.after.robust_accuracy[-1]
    assert before.value < 0.9 and after.value == 1 and result.comparison.robust[-1].low > 0
    assert result.trained_on == 230 and result.validation == 26 and result.steps == 12 * 7
    assert result.spec.endswith(f"?weights={done / 'network-hardened.safetensors'}&name=network-hardened")
    assert cli(["audit", "--data", str(work / "test.npz"), "--model", result.spec, "--eps", "0,0.15", "--attack", "pgd?steps=5",
                "--out", str(work / "again"), "--json"]) == 0  # fmt: skip
    audited = json.loads(capsys.readouterr().out)
    assert audited["model"] == "network-hardened"
    assert audited["robust_accuracy"][-1]["k"] == 60 and audited["clean_accuracy"]["k"] == 60


def test_json_is_what_the_schema_says(work, root, capsys):
    from jsonschema import Draft202012Validator

    assert cli(words(work, work / "json", "--json", "--epochs", "1", "--samples", "10")) == 0
    told = capsys.readouterr()
    answer = json.loads(told.out)
    assert answer["forwards"] and f"training by pgd: 230 samples, {answer['forwards']:,} forwards" in told.err
    Draft202012Validator(json.loads((root / "docs/schema/harden.json").read_text())).validate(answer)
    assert {"weights", "spec", "seconds", "before", "after"} <= answer.keys()
    assert answer["before"]["n"] == 10 and Path(answer["weights"]).is_file()


def test_the_page_says_what_was_won_and_who_paid(done):
    page = (done / "report.html").read_text()
    (done / "report.html").unlink()
    assert Path(brinell.report(done)).read_text() == page, "brinell report writes it again"
    assert "At 0.15 (Linf) the robust accuracy rose from" in page and "to 100.0" in page
    assert 'href="before/report.html"' in page and (done / "before" / "report.html").is_file()
    assert page.count("<tr>") > 5 and "McNemar" in page and "Who paid" in page
    tables = {file.name for file in (done / "tables").iterdir()}
    assert tables == {"comparison.csv", "per_class.csv", "curve.csv", "unseen.csv"}
    rows = (done / "tables" / "curve.csv").read_text().splitlines()
    assert len(rows) == 1 + len(summarise(done).curve)


@pytest.mark.browser
def test_the_page_in_a_browser(done):
    with chromium() as browser:
        check_everywhere(browser, done / "report.html")


def test_the_folders_of_the_audits_are_runs_like_any_other(done):
    assert cli(["gate", str(done / "after"), "--robust", "0.8", "--without-checks", "--allow", "all"]) in (0, 1)
    assert brinell.compare(done / "after", done / "before").robust[-1].difference > 0
    assert cli(["verify", str(done / "after")]) == 0


def test_it_says_where_robustness_carries_over(done):
    """The problem is separable by 0.4 in one value: what moves that value by less is taken as well as ever."""
    result = summarise(done)
    by_name = {row.name: row for row in result.unseen}
    seen, other = by_name["PGD, 20 steps, linf 0.15"], by_name["PGD, 20 steps, l2 0.065"]
    assert seen.seen and not other.seen and seen.after.value == 1 and seen.n == 60
    assert other.after.value == 1 and sum(row.seen for row in result.unseen) == 1
    assert len(by_name) > 3
    assert all(row.difference == pytest.approx(row.after.value - row.before.value) for row in result.unseen)


@pytest.mark.parametrize("stage", ["training", "after"])
def test_it_goes_on_where_it_was_stopped(work, tmp_path, monkeypatch, done, capsys, stage):
    from brinell.studies.harden import run
    from brinell.training.loop import Loop

    out, calls = tmp_path / "out", iter(range(10**6))
    step, audit = Loop._step, run._audit

    def stopped_step(self, share):
        if next(calls) == 30:
            raise KeyboardInterrupt
        return step(self, share)

    def stopped_audit(plan, folder, *given, **named):
        if folder.name == "after":
            raise KeyboardInterrupt
        return audit(plan, folder, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(*((Loop, "_step", stopped_step) if stage == "training" else (run, "_audit", stopped_audit)))
        assert cli(words(work, out)) == 130
    assert f"go on with brinell harden --resume --out {out}" in capsys.readouterr().err
    assert cli(["harden", "--resume", "--out", str(out), "--quiet"]) == 0
    one, two = (load_file(folder / "network-hardened.safetensors") for folder in (done, out))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert summarise(out).after.robust_accuracy[-1].k == 60


def test_what_a_factory_leaves_to_chance_follows_from_the_seed(work, tmp_path):
    def weights(name, seed):
        assert (
            cli(words(work, tmp_path / name, "--epochs", "1", "--seed", seed, "--samples", "10", "--quiet", model="by_chance"))
            == 0
        )
        return load_file(tmp_path / name / "by_chance-hardened.safetensors")["1.weight"]

    before = torch.get_rng_state()
    one, two, other = weights("one", "3"), weights("two", "3"), weights("other", "4")
    assert torch.equal(one, two) and not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_from_python_a_copy_is_trained(work, tmp_path):
    module = mlp(3, 2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    result = brinell.harden(
        module, samples(60, 1), train=samples(256, 0), eps=0.15, attack="fgsm", budgets=[0, 0.15], epochs=12, rate=0.02,
        average=0.9, batch_size=32, out=tmp_path / "out",
    )  # fmt: skip
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items()) and not module.training
    assert result.spec is None and result.after.robust_accuracy[-1].value == 1
    module.load_state_dict(load_file(result.weights))
    again = brinell.audit(module, samples(60, 1), attack="fgsm", eps=[0, 0.15], out=tmp_path / "audit")
    assert again.robust(0.15).k == result.after.robust_accuracy[-1].k


class Told(Silent):
    """Keeps the stages that it is told of, and the passes of each."""

    def __init__(self):
        self.stages = []

    def stage(self, model, stage, samples, passes):
        self.stages.append([model, stage, passes, 0])

    def passes(self, forwards, backwards):
        self.stages[-1][3] += forwards + backwards


@pytest.mark.parametrize(("length", "expected"), [({"epochs": 3}, 3 * 7 * 32 * (11 + 11)), ({"minutes": 0.01}, 0)])
def test_progress_of_the_training_is_its_own(tmp_path, length, expected):
    """Seven batches of 32 an epoch, ten steps of PGD and the update: what is expected is spent. By time nobody knows."""
    told = Told()
    brinell.harden(
        mlp(3, 2), samples(60, 1), train=samples(256, 0), eps=0.15, attack="fgsm", recipe="pgd(steps=10)", batch_size=32,
        out=tmp_path / "out", progress=told, **length,
    )  # fmt: skip
    before = told.stages[0][0]
    ((model, _, ahead, spent),) = [one for one in told.stages if one[1].startswith("training")]
    assert model == f"{before}-hardened", "what holds of the model before says nothing about the one that is trained"
    assert ahead == expected and spent > 0 and (not ahead or spent == ahead)


def test_a_loss_that_is_no_number_stops_with_one_line(work, tmp_path, capsys, monkeypatch):
    from brinell.training.loop import Loop

    step = Loop._step
    monkeypatch.setattr(Loop, "_step", lambda self, share: float("nan") if self.state.step == 20 else step(self, share))
    assert cli(words(work, tmp_path / "out")) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the loss is nan at step 21" in said and "the weights of step" in said and "smaller --rate" in said
    assert (tmp_path / "out" / "checkpoints" / "last.safetensors").exists()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("digits-cnn", "digits-cnn?weights=w.safetensors&name=w"),
        ("model.py:net?weights=old.pt&args=a=1", "torch:model.py:net?weights=w.safetensors&args=a=1&name=w"),
        ("timm:resnet18", "timm:resnet18?weights=w.safetensors&name=w"),
        ("http://localhost:8000/v2/models/x", None),
    ],
)
def test_the_spec_of_the_hardened_model(spec, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("def net(): ...")
    assert with_weights(spec, Path("w.safetensors")) == expected


def test_the_call_says_what_it_takes_and_returns():
    import inspect

    signature = inspect.signature(brinell.harden)
    assert "recipe" in signature.parameters and signature.return_annotation.__name__ == "HardenResult"
    assert "How to train" in brinell.harden.__doc__


def test_a_folder_may_be_moved(work, tmp_path, done):
    import shutil

    moved = tmp_path / "moved"
    shutil.copytree(done, moved)
    result = summarise(moved)
    assert result.weights == str(moved / "network-hardened.safetensors")
    assert result.spec == summarise(done).spec.replace(str(done), str(moved))
    (moved / "after" / "manifest.json").unlink()
    shutil.rmtree(moved / "after")
    assert cli(["harden", "--resume", "--out", str(moved), "--quiet"]) == 0
    assert summarise(moved).after.robust_accuracy == summarise(done).after.robust_accuracy


def test_verify_names_the_audits_of_a_hardening(done, capsys):
    assert cli(["verify", str(done)]) == 2
    assert f"name {done / 'after'} or {done / 'before'}, which it holds" in capsys.readouterr().err


def test_lazy_layers_take_the_hardened_weights(work, tmp_path):
    assert cli(words(work, tmp_path / "out", "--epochs", "1", "--quiet", model="lazy")) == 0
    weights = load_file(tmp_path / "out" / "lazy-hardened.safetensors")
    assert weights["1.weight"].shape == (2, 3)


def test_a_diverged_training_is_not_asked_to_go_on(work, tmp_path, capsys, monkeypatch):
    from brinell.training.loop import Loop

    step = Loop._step
    monkeypatch.setattr(Loop, "_step", lambda self, share: float("nan") if self.state.step == 20 else step(self, share))
    assert cli(words(work, tmp_path / "out")) == 3
    assert "--resume" not in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("recipe", "seen"), [("plain", False), ("pgd(steps=1)", True)])
def test_gradients_are_seen_by_what_trains_against_them(tmp_path, recipe, seen):
    result = brinell.harden(
        mlp(3, 2), samples(60, 1), train=samples(256, 0), eps=0.15, attack="fgsm", recipe=recipe, epochs=1, samples=20,
        batch_size=32, out=tmp_path / "out",
    )  # fmt: skip
    assert {row.name: row.seen for row in result.unseen}["PGD, 20 steps, linf 0.15"] == seen


def test_autocast_around_a_hardening_is_left_out(tmp_path):
    with torch.autocast("cpu", torch.bfloat16):
        result = brinell.harden(
            mlp(3, 2), samples(60, 1), train=samples(256, 0), eps=0.15, attack="fgsm", epochs=1, samples=20, batch_size=32,
            out=tmp_path / "out",
        )  # fmt: skip
    assert result.steps == 7


def test_the_budget_that_is_trained_for_is_audited(work, tmp_path):
    out = tmp_path / "out"
    assert cli(words(work, out, "--epochs", "1", "--samples", "10", "--quiet", "--eps", "0.1")) == 0
    assert summarise(out).after.eps == [0, 0.1, 0.15]


def test_a_name_with_a_slash_makes_no_folder(tmp_path):
    out = tmp_path / "out"
    spec = ["--model", "digits-cnn?name=a/b", "--recipe", "plain", "--epochs", "0.1", "--samples", "10", "--attack", "fgsm"]
    assert cli(["harden", *spec, "--budgets", "0,0.1", "--eps", "0.1", "--out", str(out), "--quiet"]) == 0
    assert Path(summarise(out).weights) == out / "a_b-hardened.safetensors" and (out / "a_b-hardened.safetensors").is_file()
