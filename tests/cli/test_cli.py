"""The command line in one process: verbs, JSON, exit codes, and one clear line for each bad input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file, save_file

from _helpers import same_rows, workspace
from brinell import plugins
from brinell.cli import run as cli
from brinell.store.run import Run

EPS = "0,0.05,0.1,0.2"
ATTACKS = ["--attack", "fgsm", "--attack", "pgd?steps=3"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("work"), n=24)


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    # A run folder that nobody named lands in the temporary folder, not in the checkout.
    monkeypatch.chdir(tmp_path)


def words(work, out, *more, model="parabola", data="data.npz"):
    models = [word for name in model.split() for word in ("--model", f"torch:{work / 'model.py'}:{name}")]
    return ["audit", "--data", f"npz:{work / data}", *models, "--eps", EPS, *ATTACKS, "--out", str(out), *more]


@pytest.fixture(scope="module")
def good(work):
    """A run of one model."""
    assert cli(words(work, work / "good")) == 0
    return work / "good"


@pytest.fixture(scope="module")
def pair(work):
    """A run of two models: one whose boundary is farther away."""
    model = "parabola?name=near parabola?name=far&args=at=0.7"
    assert cli(words(work, work / "pair", model=model)) == 0
    return work / "pair"


@pytest.fixture
def copy(good, tmp_path):
    """A copy of the good run to spoil."""
    return shutil.copytree(good, tmp_path / "copy")


@pytest.fixture
def ask(capsys, root):
    """Runs a verb with --json: (exit code, the one object on standard output), checked against its schema."""

    def ask(*arguments, schema=None):
        capsys.readouterr()
        code = cli([str(argument) for argument in (*arguments, "--json")])
        out, err = capsys.readouterr()
        assert out.count("\n") == 1 and out.endswith("\n"), "more than one JSON object on standard output"
        answer = json.loads(out)
        jsonschema.validate(answer, json.loads((root / "docs" / "schema" / f"{schema or arguments[0]}.json").read_text()))
        assert "Traceback" not in err
        return code, answer

    return ask


@pytest.fixture
def refused(capsys):
    """Runs what must be refused: (exit code, the one line on standard error), and nothing on standard output."""

    def refused(*arguments, code=2):
        capsys.readouterr()
        assert cli([str(argument) for argument in arguments]) == code
        out, err = capsys.readouterr()
        lines = [line for line in err.splitlines() if not re.match(r"brinell: \S+ \S+: [\d,]+ samples, ", line)]
        assert len(lines) == 1 and lines[0].startswith("brinell: error: "), err
        assert out == "" and "Traceback" not in err
        return lines[0]

    return refused


# Every verb


def test_audit(work, tmp_path, ask):
    code, answer = ask(*words(work, tmp_path / "run"))
    assert code == 0
    assert answer["run"] == str(tmp_path / "run") and answer["n"] == 24 and answer["eps_text"] == EPS.split(",")
    records = Run.open(tmp_path / "run").records()
    assert answer["clean_accuracy"]["k"] == int((records.outcome == "correct").sum())
    robust = [rate["k"] for rate in answer["robust_accuracy"]]
    assert robust == sorted(robust, reverse=True) and robust[0] == answer["clean_accuracy"]["k"] and robust[-1] < robust[0]
    assert [stage["attack"] for stage in answer["stages"]] == ["fgsm", "pgd?steps=3"]
    assert sum(stage["forwards"] for stage in answer["stages"]) == int(records.forwards[records.attack != "clean"].sum())
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files >= {"run.toml", "manifest.json", "records", "arrays", "report.html"}


def test_audit_of_several_models(work, tmp_path, ask):
    code, answer = ask(*words(work, tmp_path / "run", model="parabola?name=near parabola?name=far&args=at=0.7"))
    assert code == 0 and [model["model"] for model in answer["models"]] == ["near", "far"]
    near, far = (model["robust_accuracy"][-1]["k"] for model in answer["models"])
    assert near < far


def test_audit_in_words(work, tmp_path, capsys):
    assert cli(words(work, tmp_path / "run")) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^  checks: \d+ passed, \d+ failed, \d+ not made$", out, flags=re.MULTILINE)
    assert "parabola: 24 samples" in out and f"report: {tmp_path / 'run' / 'report.html'}" in out
    assert re.search(r"brinell: parabola fgsm: \d+ samples, \d+ forwards", err)


def test_dry_run_computes_nothing(work, tmp_path, ask, capsys):
    code, answer = ask(*words(work, tmp_path / "run", "--dry-run"), schema="plan")
    assert code == 0 and not (tmp_path / "run").exists()
    assert [cell["stage"] for cell in answer["cells"]] == ["fgsm", "pgd?steps=3"]
    assert answer["cells"][0]["backwards_at_most"] == 24 * 3 * 1
    assert cli(words(work, tmp_path / "run", "--dry-run")) == 0
    assert "nothing was computed" in capsys.readouterr().out


def test_cost_at_most_is_at_most(good, work, ask):
    _, planned = ask(*words(work, "unused", "--dry-run"), schema="plan")
    records = Run.open(good).records()
    for cell in planned["cells"]:
        rows = records.attack == cell["stage"]
        assert 0 < records.forwards[rows].sum() <= cell["forwards_at_most"]
        assert 0 < records.backwards[rows].sum() <= cell["backwards_at_most"]


def test_run_toml_repeats_the_run(good, tmp_path):
    assert cli(["audit", str(good / "run.toml"), "--out", str(tmp_path / "again")]) == 0
    same_rows(Run.open(good).records(), Run.open(tmp_path / "again").records())


def test_the_command_in_the_manifest_repeats_the_run(good, tmp_path):
    import shlex

    command = shlex.split(Run.open(good).manifest["command"])
    assert command[:2] == ["brinell", "audit"]
    assert cli([*command[1:], "--out", str(tmp_path / "again")]) == 0
    same_rows(Run.open(good).records(), Run.open(tmp_path / "again").records())


def test_flags_win_over_the_file(good, tmp_path, ask):
    code, answer = ask("audit", good / "run.toml", "--samples", 3, "--out", tmp_path / "run")
    assert code == 0 and answer["n"] == 3


def test_report(copy, ask):
    (copy / "report.html").unlink()
    code, answer = ask("report", copy)
    assert code == 0 and answer["report"] == str(copy / "report.html")
    page = (copy / "report.html").read_text(encoding="utf-8")
    assert "parabola" in page and "<script src=" not in page


def test_compare(good, pair, ask, capsys):
    code, answer = ask("compare", pair, "--model-a", "near", "--model-b", "far")
    assert code == 0 and answer["n"] == 24
    assert all(one["only_a"] == 0 for one in answer["robust"]), "what holds near holds far"
    assert any(one["only_b"] > 0 for one in answer["robust"])
    assert ask("compare", pair)[1] == answer, "a run of two models compares them"
    code, same = ask("compare", good, pair, "--model-b", "near")
    assert code == 0 and all(one["only_a"] == one["only_b"] == 0 for one in same["robust"])
    assert cli(["compare", str(pair)]) == 0
    assert "24 common samples" in capsys.readouterr().out


def test_gate(good, ask, capsys):
    for least, code in ((0.0, 0), (0.99, 1)):
        found, answer = ask("gate", good, "--robust", least)
        assert found == code and answer["passed"] == (code == 0)
    assert cli(["gate", str(good), "--robust", "0.99"]) == 1
    assert "gate failed" in capsys.readouterr().out
    assert cli(["gate", str(good), "--clean", "0.5", "--eps", "0.05", "--worst-class", "0.0"]) == 0
    assert "gate passed" in capsys.readouterr().out


def test_a_figure_that_is_not_there_fails_the_gate(good, ask):
    code, answer = ask("gate", good, "--robust", "0.0", "--eps", "0.07")
    assert code == 1 and not answer["passed"]


def test_gate_judges_the_lower_end_of_the_interval(good, ask):
    _, answer = ask("audit", "--resume", "--out", good)
    low, value = (answer["robust_accuracy"][1][key] for key in ("low", "value"))
    assert low < value
    assert ask("gate", good, "--robust", f"{low - 0.001}", "--eps", "0.05")[0] == 0
    assert ask("gate", good, "--robust", f"{(low + value) / 2}", "--eps", "0.05")[0] == 1


def test_checks_are_told_everywhere(work, tmp_path, ask, capsys):
    """One step of FGSM is no evaluation: one gradient attack alone leaves a check unmade, and that is said."""
    out = tmp_path / "run"
    one = words(work, out)
    second = one.index("pgd?steps=3")
    del one[second - 1 : second + 1]
    code, answer = ask(*one)
    assert code == 0
    assert answer["caveat"] == "not vouched for: 2 checks could not be made (black-box-better, incomplete-optimisation)"
    states = {check["code"]: check["passed"] for check in answer["checks"]}
    assert len(states) == 13 and states["zero-gradients"] is True and states["incomplete-optimisation"] is None
    assert ask("gate", out, "--robust", "0")[0] == 0
    code, verdict = ask("gate", out, "--robust", "0", "--vouched")
    failed = [check["name"] for check in verdict["checks"] if not check["passed"]]
    assert code == 1 and failed == ["no warning black-box-better", "no warning incomplete-optimisation"]
    assert cli([*one, "--resume"]) == 0
    assert "  robust accuracy is not vouched for: 2 checks could not be made" in capsys.readouterr().out


def test_gate_against_a_baseline(pair, good, ask):
    assert ask("gate", pair, "--model", "far", "--baseline", good)[0] == 0
    assert ask("gate", good, "--baseline", good, "--max-drop", "0")[0] == 0
    assert ask("gate", pair, "--model", "near", "--baseline", pair)[0] in (0, 2)


def test_gate_writes_junit_and_sarif(good, tmp_path):
    import xml.etree.ElementTree as xml

    junit, sarif = tmp_path / "gate.xml", tmp_path / "gate.sarif"
    assert cli(["gate", str(good), "--robust", "0.99", "--junit", str(junit), "--sarif", str(sarif)]) == 1
    suite = xml.parse(junit).getroot()
    assert sum(int(one.get("failures", 0)) for one in suite.iter("testsuite")) >= 1
    assert json.loads(sarif.read_text())["version"] == "2.1.0"


def test_plugins(ask, capsys):
    code, answer = ask("plugins")
    assert code == 0
    assert {(one["kind"], one["name"]) for one in answer["plugins"]} == {
        (kind, name) for kind in plugins.FOLDERS for name in plugins.names(kind)
    }
    assert {one["kind"] for one in ask("plugins", "attack")[1]["plugins"]} == {"attack"}
    assert cli(["plugins", "distance"]) == 0
    assert "linf" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in ("audit", "report", "gate", "verify"))])
def test_help(arguments, capsys):
    assert cli(arguments) == 0
    assert "Usage" in capsys.readouterr().out


# Verify


def test_verify_passes_on_a_good_run(good, ask, capsys):
    code, answer = ask("verify", good)
    records = Run.open(good).records()
    assert code == 0 and answer["passed"] and answer["problems"] == []
    fooled = {(a, s) for a, s, o in zip(records.attack, records.sample_id, records.outcome, strict=True) if o == "fooled"}
    assert answer["successes"] == len(fooled) and answer["predictions"] == 24
    assert cli(["verify", str(good)]) == 0
    assert "all hold" in capsys.readouterr().out


def test_verify_passes_on_several_models(pair, ask):
    assert ask("verify", pair)[0] == 0


def part_of(copy, folder, attack="fgsm"):
    manifest = json.loads((copy / "manifest.json").read_text())
    (stage,) = (stage for stage in manifest["stages"] if stage["name"] == attack)
    (cell,) = stage["cells"].values()
    return next((copy / folder).glob(f"part-{cell}*"))


def rehash(copy):
    """As a careful forger would: the manifest names the new files."""
    run = Run.open(copy)
    run.manifest["files"] = run.digests()
    run.save_manifest()


def alter_array(copy, change):
    file = part_of(copy, "arrays")
    arrays = load_file(file)
    name = sorted(arrays)[0]
    arrays[name] = change(arrays[name]).astype(np.float32)
    save_file(arrays, file)


def alter_record(copy, column, change):
    """Changes one value in the first row that was fooled."""
    file = part_of(copy, "records")
    table = pq.read_table(file)
    row = table["outcome"].to_pylist().index("fooled")
    values = table[column].to_pylist()
    values[row] = change(values[row])
    at = table.schema.get_field_index(column)
    import pyarrow as pa

    table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    pq.write_table(table, file)


def delete_part(copy, folder):
    part_of(copy, folder).unlink()


SPOILT = {
    "array by a little": (lambda c: alter_array(c, lambda x: x + np.float32([1e-7, 0])), "changed after the run ended", None),
    "array back to clean": (lambda c: alter_array(c, lambda x: x - np.float32([0.1, 0])), "changed", "the model is right on"),
    "array beyond eps": (lambda c: alter_array(c, lambda x: x + np.float32([0.3, 0])), "changed", "is farther than eps"),
    "array out of bounds": (lambda c: alter_array(c, lambda x: x + np.float32([5, 0])), "changed", "leaves the bounds"),
    "array of another shape": (lambda c: alter_array(c, lambda x: x[:1]), "changed", "is not of shape"),
    "array of NaN": (lambda c: alter_array(c, lambda x: x * np.nan), "changed", "is"),
    "record says a smaller norm": (lambda c: alter_record(c, "l2", lambda v: v / 2), "changed", "has another l2 than the record"),
    "record says another eps": (lambda c: alter_record(c, "eps", lambda v: v / 3), "changed", "not one for each of"),
    "record says another outcome": (lambda c: alter_record(c, "outcome", lambda v: "survived"), "changed", None),
    "record says another clean class": (lambda c: alter_record(c, "label", lambda v: 1), "changed", "the model is right on"),
    "records deleted": (lambda c: delete_part(c, "records"), "the file is gone", "its records are missing"),
    "arrays deleted": (lambda c: delete_part(c, "arrays"), "the file is gone", "the adversarial input is not stored"),
    "unfinished": (lambda c: unfinished(c), "the run is not finished", "the run is not finished"),
}


def unfinished(copy):
    run = Run.open(copy)
    run.manifest["state"] = "running"
    run.save_manifest()


@pytest.mark.parametrize("how", SPOILT)
def test_verify_fails_on_a_spoilt_copy(copy, how, ask):
    spoil, what, _ = SPOILT[how]
    spoil(copy)
    code, answer = ask("verify", copy)
    assert code == 1 and not answer["passed"]
    assert any(what in problem["what"] for problem in answer["problems"]), answer["problems"]


@pytest.mark.parametrize("how", [how for how, (_, _, what) in SPOILT.items() if what])
def test_verify_is_not_deceived_by_new_hashes(copy, how, ask):
    spoil, _, what = SPOILT[how]
    spoil(copy)
    rehash(copy)
    code, answer = ask("verify", copy)
    assert code == 1, "verify believed the manifest"
    assert any(what in problem["what"] for problem in answer["problems"]), answer["problems"]


def cut(file):
    file.write_bytes(file.read_bytes()[:-7])


def flip_the_header(file):
    content = bytearray(file.read_bytes())
    content[9] ^= 0xFF
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("folder", ["records", "arrays"])
@pytest.mark.parametrize("damage", [cut, flip_the_header])
def test_verify_fails_on_damaged_files(copy, folder, damage, ask):
    damage(part_of(copy, folder))
    code, answer = ask("verify", copy)
    assert code == 1 and not answer["passed"]


def test_verify_fails_where_model_or_data_changed(tmp_path, ask):
    work = workspace(tmp_path)
    assert cli(words(work, tmp_path / "run")) == 0
    model = (work / "model.py").read_text()
    (work / "model.py").write_text(model.replace("- self.at)", "- self.at - 0.02)"))
    code, answer = ask("verify", tmp_path / "run")
    assert code == 1 and any("the model is not the one of the run" in problem["what"] for problem in answer["problems"])
    (work / "model.py").write_text(model)
    assert ask("verify", tmp_path / "run")[0] == 0
    arrays = dict(np.load(work / "data.npz"))
    np.savez(work / "data.npz", x=arrays["x"] + 0.001, y=arrays["y"])
    code, answer = ask("verify", tmp_path / "run")
    assert code == 1 and any("is not the data of the run" in problem["what"] for problem in answer["problems"])


# Bad input: one line that says what, why and what to do


class Gadget:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return (os.mkdir, ("/tmp/brinell-was-here",))


@pytest.fixture(scope="module")
def spoilt(work):
    """Files that are missing, damaged or not what they should be."""
    x = np.full((6, 2), 0.4, dtype=np.float32)
    y = np.zeros(6, dtype=np.int64)
    np.savez(work / "outside.npz", x=x + 1, y=y)
    np.savez(work / "nan.npz", x=x * np.nan, y=y)
    np.savez(work / "rounding.npz", x=np.full((6, 2), 1 + 5e-7, dtype=np.float32), y=y)
    np.savez(work / "labels.npz", x=x, y=y + 5)
    np.savez(work / "negative.npz", x=x, y=y - 1)
    np.savez(work / "short.npz", x=x, y=y[:3])
    np.savez(work / "pickled.npz", x=np.array([object()] * 6), y=y)
    np.savez(work / "other.npz", a=x)
    (work / "damaged.npz").write_bytes((work / "data.npz").read_bytes()[:200])
    torch.save(Gadget(), work / "gadget.pt")
    torch.save({"at": torch.tensor(0.5)}, work / "good.pt")
    (work / "damaged.pt").write_bytes((work / "good.pt").read_bytes()[:300])
    torch.save({"weight": torch.tensor(0.5)}, work / "misfit.pt")
    (work / "damaged.safetensors").write_bytes(b"\x08\x00\x00")
    (work / "syntax.py").write_text("def model(:\n")
    (work / "raises.py").write_text("import nothing_of_that_name\n")
    (work / "bad.toml").write_text("data = \n")
    (work / "unknown.toml").write_text("modle = 'digits-cnn'\n")
    return work


BAD = {
    # What is asked for: words of the audit, and what the line must say.
    "labels the model has no output for": ({"data": "labels.npz"}, "model parabola tells 2 classes apart, .* labels from 5 to 5"),
    "inputs outside the bounds": (
        {"data": "outside.npz"},
        "values from 1.4 to 1.4, outside the bounds 0 to 1: give bounds",
    ),
    "NaN inputs": ({"data": "nan.npz"}, "holds NaN or infinity: mend or drop"),
    "negative labels": ({"data": "negative.npz"}, "labels are counted from 0"),
    "fewer labels than inputs": ({"data": "short.npz"}, "3 labels for 6 inputs"),
    "pickled arrays": ({"data": "pickled.npz"}, "Python objects .a pickle., which are never loaded"),
    "no such array": ({"data": "other.npz"}, "has no array x .*it holds a"),
    "damaged data": ({"data": "damaged.npz"}, "damaged.npz is damaged or cut short"),
    "missing data": ({"data": "nowhere.npz"}, "there is no file .*nowhere.npz: check the path"),
    "NaN logits": ({"model": "after?args=then=nan"}, "answered NaN or infinity .*: look for overflow"),
    "NaN logits on adversarial inputs only": ({"model": "after?args=then=late-nan"}, "answered NaN or infinity.*: .*look for"),
    "probabilities": ({"model": "after?args=then=softmax"}, "answers probabilities .*attacks need logits: return what goes into"),
    "one output": ({"model": "after?args=then=one"}, "answers one number per input; give one logit per class"),
    "no tensor": ({"model": "after?args=then=dict"}, "answers with a dict, not with a tensor of logits: wrap it"),
    "no rows": ({"model": "after?args=then=flat"}, "must give .1, classes. logits"),
    "a factory that fails": ({"model": "breaks"}, "model.py:breaks failed with ValueError: no weights today"),
    "a factory of no module": ({"model": "no_module"}, "returned a int, not an nn.Module"),
    "a factory of another name": ({"model": "parabolla"}, "has no function 'parabolla'.*parabola"),
    "weights that are a pickle": ({"model": "parabola?weights={work}/gadget.pt"}, "gadget.pt is a pickle .*never loaded: save"),
    "weights of another model": ({"model": "parabola?weights={work}/misfit.pt"}, "misfit.pt does not fit Parabola: .*missing"),
    "damaged weights": ({"model": "parabola?weights={work}/damaged.pt"}, "damaged.pt is damaged"),
    "damaged safetensors": ({"model": "parabola?weights={work}/damaged.safetensors"}, "damaged.safetensors is damaged"),
    "missing weights": ({"model": "parabola?weights={work}/nowhere.pt"}, "there is no file .*nowhere.pt: check"),
    "unknown option of the model": ({"model": "parabola?wieghts=x"}, "has no option 'wieghts', did you mean 'weights'"),
    "unknown option of the data": ({"data": "data.npz?layuot=first"}, "has no option 'layuot', did you mean 'layout'"),
    "unknown attack": ({"more": ["--attack", "apgd-cd"]}, "there is no attack 'apgd-cd', did you mean 'apgd-ce'"),
    "unknown setting of an attack": ({"more": ["--attack", "pgd?stepps=3"]}, "has no option 'stepps', did you mean 'steps'"),
    "unknown norm": ({"more": ["--norm", "linff"]}, "there is no distance 'linff', did you mean 'linf'"),
    "negative eps": ({"more": ["--eps", "-0.1"]}, "eps '-0.1' is negative: a budget is 0 or more"),
    "eps that is no number": ({"more": ["--eps", "eight"]}, "eps 'eight' is no number: write 0.3, 8/255"),
    "eps of zero over zero": ({"more": ["--eps", "0/0"]}, "eps '0/0' is no number"),
    "more samples than there are": ({"more": ["--samples", "99"]}, "samples is 99, and data has 24: ask for that many at most"),
    "no samples": ({"more": ["--samples", "0"]}, "samples is 0"),
    "samples that are no number": ({"more": ["--samples", "many"]}, "Invalid value for .--samples.: .*valid integer"),
    "unknown device": ({"more": ["--device", "abacus"]}, "device 'abacus' cannot be used .*: choose cpu, or auto"),
    "unknown option": ({"more": ["--sample", "3"]}, "No such option.*--sample"),
    "an attack that does not fit": ({"more": ["--norm", "l1"]}, "no attack can run on parabola .*not in l1"),
    "the same attack twice": ({"more": ["--attack", "fgsm"]}, "attack fgsm is named twice"),
    "a run folder that is a file": ({"out": "data.npz"}, "data.npz"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what, spoilt, tmp_path, refused):
    asked, said = BAD[what]
    model = asked.get("model", "parabola").replace("{work}", str(spoilt))
    out = spoilt / asked["out"] if "out" in asked else tmp_path / "run"
    line = refused(*words(spoilt, out, *asked.get("more", ()), model=model, data=asked.get("data", "data.npz")))
    assert re.search(said, line), line


def test_no_pickle_was_run():
    assert not os.path.exists("/tmp/brinell-was-here")


def test_weights_and_roundings_that_are_in_order(spoilt, tmp_path, ask):
    weights = f"parabola?weights={spoilt / 'good.pt'}"
    assert ask(*words(spoilt, tmp_path / "weights", model=weights))[0] == 0
    code, answer = ask(*words(spoilt, tmp_path / "rounding", data="rounding.npz"))
    assert code == 0 and answer["n"] == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audit", "{work}/nowhere.toml"], "there is no file .*nowhere.toml"),
        (["audit", "{work}/bad.toml"], "bad.toml is no TOML"),
        (["audit", "{work}/unknown.toml"], "there is no setting 'modle', did you mean 'model'"),
        (["audit", "--model", "digits-cmm"], "there is no target 'digits-cmm', did you mean 'digits-cnn'"),
        (["audit", "--data", "digitz"], "there is no dataset 'digitz', did you mean 'digits'"),
        (["audit", "--model", "torch:{work}/syntax.py:model"], "syntax.py failed on import with SyntaxError"),
        (["audit", "--model", "torch:{work}/raises.py:model"], "raises.py failed on import with ModuleNotFoundError"),
        (["audit", "--model", "torch:{work}/nowhere.py:model"], "there is no file .*nowhere.py"),
        (["audit", "--data", "npz:{work}/data.npz", "--eps", "0.1"], "digits-cnn takes images of shape .1, 8, 8.*--data digits"),
        (["audit", "--resume"], "--resume needs --out"),
        (["report", "{work}"], "is no run folder: it has no manifest.json; brinell audit makes one"),
        (["verify", "{work}/nowhere"], "is no run folder"),
        (["compare", "{work}", "{work}"], "is no run folder"),
        (["gate", "{work}", "--robust", "0.5"], "is no run folder"),
        (["gate", "{good}"], "a gate needs a condition"),
        (["gate", "{good}", "--robust", "50"], "50.*between 0 and 1"),
        (["gate", "{good}", "--robust", "0.5", "--model", "nobody"], "holds no model 'nobody', only parabola"),
        (["gate", "{good}", "--baseline", "{work}"], "is no run folder"),
        (["compare", "{good}"], "holds 1 models: name a second run"),
        (["plugins", "attacks"], "there is no kind 'attacks', did you mean 'attack'"),
        (["adit"], "No such command 'adit'"),
        (["report"], "Missing argument 'RUN'"),
        (["verify", "{good}", "--jsn"], "No such option.*--jsn"),
    ],
)
def test_requests_that_cannot_be_carried_out(arguments, said, spoilt, good, refused):
    line = refused(*(word.format(work=spoilt, good=good) for word in arguments))
    assert re.search(said, line), line


@pytest.mark.parametrize("verb", ["report", "verify", "gate --robust 0.1", "compare {}"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"schema": 2}', b'{"schema": 2, "request": {"datta": 1}}'])
def test_a_damaged_manifest(copy, verb, content, refused):
    (copy / "manifest.json").write_bytes(content)
    verb, *more = verb.split()
    line = refused(verb, copy, *(word.format(copy) for word in more))
    assert str(copy) in line


@pytest.mark.parametrize("verb", ["report", "gate --robust 0.1", "compare {}"])
def test_damaged_records(copy, verb, refused):
    cut(part_of(copy, "records"))
    verb, *more = verb.split()
    assert "is damaged" in refused(verb, copy, *(word.format(copy) for word in more))


def test_a_folder_that_is_taken(good, work, refused):
    assert "holds a run: add --resume" in refused(*words(work, good))


# Processes of their own


# A shell that starts the tests in the background has them, and all that they start, ignore SIGINT.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from brinell.cli import main; main()"


def start(*arguments):
    return subprocess.Popen([sys.executable, "-c", MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_reader_that_goes_away():
    """`brinell plugins | head -0`: no complaint."""
    with start("plugins") as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


def test_ctrl_c_in_a_real_process(work, tmp_path):
    """SIGINT in the middle: 130, one line that says how to go on, no trace; and it does go on."""
    out = tmp_path / "run"
    arguments = words(work, out, "--attack", "pgd?steps=2000&restarts=200")
    process = start(*arguments)
    until = time.monotonic() + 60
    while time.monotonic() < until and not list(out.glob("records/part-*")):
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"go on with brinell audit --resume --out {out}" in error and "Traceback" not in error
    assert printed == ""
    assert list(out.glob("records/part-*")), "what was computed is gone"


def test_version_and_help_import_no_torch():
    program = "import sys, brinell.cli; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.stdout == "False\n", answer.stderr
