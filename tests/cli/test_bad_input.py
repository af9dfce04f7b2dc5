"""Bad input: one line that says what, why and what to do, and the right exit code."""

import os
import re

import numpy as np
import pytest
import torch

from _cli import audit_arguments, truncate


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
    "labels the model has no output for": (
        {"data": "labels.npz"},
        "model parabola tells 2 classes apart, .* labels from 5 to 5",
    ),
    "inputs outside the bounds": (
        {"data": "outside.npz"},
        "values from 1.4 to 1.4, outside the bounds 0 to 1",
    ),
    "NaN inputs": (
        {"data": "nan.npz"},
        "holds NaN or infinity: correct them, or keep the other samples",
    ),
    "negative labels": ({"data": "negative.npz"}, "labels are counted from 0"),
    "fewer labels than inputs": ({"data": "short.npz"}, "3 labels for 6 inputs"),
    "pickled arrays": (
        {"data": "pickled.npz"},
        "Python objects .a pickle., which are never loaded",
    ),
    "no such array": ({"data": "other.npz"}, "has no array x .*it holds a"),
    "damaged data": ({"data": "damaged.npz"}, "damaged.npz is damaged or cut short"),
    "missing data": ({"data": "nowhere.npz"}, "there is no file .*nowhere.npz: check the path"),
    "NaN logits": (
        {"model": "after?args=then=nan"},
        "answered NaN or infinity .*: look for overflow",
    ),
    "NaN logits on adversarial inputs only": (
        {"model": "after?args=then=late-nan"},
        "answered NaN or infinity.*: .*look for",
    ),
    "no tensor": (
        {"model": "after?args=then=dict"},
        "answers with a dict, its parts are .*: say which",
    ),
    "no rows": ({"model": "after?args=then=flat"}, "must give .1, classes. logits"),
    "a factory that fails": (
        {"model": "breaks"},
        "model.py:breaks failed with ValueError: no weights today",
    ),
    "a factory of no module": ({"model": "no_module"}, "returned int, and no nn.Module"),
    "a factory of another name": ({"model": "parabolla"}, "has no function 'parabolla'.*parabola"),
    "weights that are a pickle": (
        {"model": "parabola?weights={work}/gadget.pt"},
        "gadget.pt is a pickle .*never loaded: save",
    ),
    "weights of another model": (
        {"model": "parabola?weights={work}/misfit.pt"},
        "misfit.pt does not fit Parabola: .*missing",
    ),
    "damaged weights": ({"model": "parabola?weights={work}/damaged.pt"}, "damaged.pt is damaged"),
    "damaged safetensors": (
        {"model": "parabola?weights={work}/damaged.safetensors"},
        "damaged.safetensors is damaged",
    ),
    "missing weights": (
        {"model": "parabola?weights={work}/nowhere.pt"},
        "there is no file .*nowhere.pt: check",
    ),
    "unknown option of the model": (
        {"model": "parabola?wieghts=x"},
        "has no option 'wieghts', did you mean 'weights'",
    ),
    "unknown option of the data": (
        {"data": "data.npz?layuot=first"},
        "has no option 'layuot', did you mean 'layout'",
    ),
    "unknown attack": (
        {"more": ["--attack", "apgd-cd"]},
        "there is no attack 'apgd-cd', did you mean 'apgd-ce'",
    ),
    "unknown setting of an attack": (
        {"more": ["--attack", "pgd?stepps=3"]},
        "has no option 'stepps', did you mean 'steps'",
    ),
    "unknown norm": (
        {"more": ["--norm", "linff"]},
        "there is no distance 'linff', did you mean 'linf'",
    ),
    "negative eps": ({"more": ["--eps", "-0.1"]}, "eps '-0.1' is negative: a budget is 0 or more"),
    "eps that is no number": (
        {"more": ["--eps", "eight"]},
        "eps 'eight' is no number: write 0.3, 8/255",
    ),
    "eps of zero over zero": ({"more": ["--eps", "0/0"]}, "eps '0/0' is no number"),
    "more samples than there are": (
        {"more": ["--samples", "99"]},
        "samples is 99, and data has 24: ask for that many at most",
    ),
    "no samples": ({"more": ["--samples", "0"]}, "samples is '0'"),
    "samples that are no number": (
        {"more": ["--samples", "many"]},
        "samples is 'many': it must be a whole number above 0, all, or first:N",
    ),
    "unknown device": (
        {"more": ["--device", "abacus"]},
        "device is 'abacus': a device is auto, cpu, cuda, mps or cuda:1",
    ),
    "unknown option": ({"more": ["--sample", "3"]}, "No such option: --sample .*--samples"),
    "an attack that does not fit": (
        {"more": ["--norm", "l1"]},
        "no attack can run on parabola .*not in l1",
    ),
    "the same attack twice": ({"more": ["--attack", "fgsm"]}, "attack fgsm is named twice"),
    "a run folder that is a file": ({"out": "data.npz"}, "data.npz"),
}


def test_bad_input(spoilt, tmp_path_factory, refuse, subtests):
    for case in BAD:
        with subtests.test(case=case):
            tmp_path = tmp_path_factory.mktemp("case")
            arguments, message = BAD[case]
            model = arguments.get("model", "parabola").replace("{work}", str(spoilt))
            out = spoilt / arguments["out"] if "out" in arguments else tmp_path / "run"
            line = refuse(
                *audit_arguments(
                    spoilt,
                    out,
                    *arguments.get("more", ()),
                    model=model,
                    data=arguments.get("data", "data.npz"),
                )
            )
            assert re.search(message, line), line


def test_no_pickle_was_run():
    assert not os.path.exists("/tmp/brinell-was-here")


def test_weights_and_roundings_that_are_in_order(spoilt, tmp_path, ask):
    weights = f"parabola?weights={spoilt / 'good.pt'}"
    code, answer = ask(
        *audit_arguments(spoilt, tmp_path / "run", model=weights, data="rounding.npz")
    )
    assert code == 0 and answer["n"] == 6


def test_requests_that_cannot_be_carried_out(spoilt, good, refuse, subtests):
    rows = [
        (["audit", "{work}/nowhere.toml"], "there is no file .*nowhere.toml"),
        (["audit", "{work}/data.npz"], "data.npz is no file of settings.*name data by --data"),
        (["audit", "{work}/bad.toml"], "bad.toml is damaged or no TOML"),
        (["audit", "{work}/unknown.toml"], "there is no setting 'modle', did you mean 'model'"),
        (
            ["audit", "--model", "digits-cmm"],
            "there is no model 'digits-cmm', did you mean 'digits-cnn'",
        ),
        (["audit", "--data", "digitz"], "there is no dataset 'digitz', did you mean 'digits'"),
        (
            ["audit", "--model", "torch:{work}/syntax.py:model"],
            "syntax.py failed on import with SyntaxError",
        ),
        (
            ["audit", "--model", "torch:{work}/raises.py:model"],
            "raises.py failed on import: it imports nothing_of_that_name, .*pip "
            "install nothing_of_that_name",
        ),
        (["audit", "--model", "torch:{work}/nowhere.py:model"], "there is no file .*nowhere.py"),
        (
            ["audit", "--data", "npz:{work}/data.npz", "--eps", "0.1"],
            "digits-cnn takes images of shape .1, 8, 8.*--data digits",
        ),
        (["audit", "--resume"], "--resume needs --out"),
        (
            ["report", "{work}/nowhere"],
            "is no run folder: it has no manifest.json; brinell audit makes one",
        ),
        (
            ["report", "{work}"],
            "is no run folder: it has no manifest.json; name .*good, which it holds",
        ),
        (["verify", "{work}/nowhere"], "is no run folder"),
        (["compare", "{work}", "{good}"], "is no run folder"),
        (["gate", "{work}", "--robust", "0.5"], "is no run folder"),
        (["gate", "{good}"], "a gate needs a condition"),
        (["gate", "{good}", "--robust", "50"], "50.*must be at most 1"),
        (
            ["gate", "{good}", "--robust", "0.5", "--model", "nobody"],
            "holds no model 'nobody', only parabola",
        ),
        (["gate", "{good}", "--baseline", "{work}"], "is no run folder"),
        (
            ["gate", "{good}", "--robust", "0.5", "--eps", "0.05,0.1"],
            "judges one budget, and eps '0.05,0.1' has 2: name one",
        ),
        (
            ["gate", "{good}", "--robust", "0.5", "--max-drop", "0.1"],
            "name one with --baseline RUN",
        ),
        (
            ["gate", "{good}", "--robust", "0.5", "--allow", "clean-acuracy"],
            "did you mean 'clean-accuracy'",
        ),
        (["compare", "{good}"], "a comparison needs two models or more, and .* has one, parabola"),
        (["plugins", "attacks"], "there is no kind 'attacks', did you mean 'attack'"),
        (["adit"], "there is no command .adit., did you mean .audit."),
        (["report"], "Missing argument .RUN."),
        (["verify", "{good}", "--jsn"], "No such option: --jsn .*--json"),
        (["verify", "{good}", "-q"], "-q; it stands before the command: brinell -q verify$"),
        (["train", "agent", "--on", "ray"], "before the command: brinell --on WORKERS train agent"),
    ]
    for arguments, message in rows:
        with subtests.test(arguments=arguments):
            line = refuse(*(word.format(work=spoilt, good=good) for word in arguments))
            assert re.search(message, line), line


def test_a_damaged_manifest(copy, refuse, subtests):
    for content in [
        b"{",
        b"[]",
        b"{}",
        b'{"schema": 3}',
        b'{"schema": 3, "request": {"datta": 1}}',
    ]:
        for verb in ["report", "verify", "gate --robust 0.1", "compare {}"]:
            with subtests.test(verb=verb, content=content):
                (copy / "manifest.json").write_bytes(content)
                verb, *options = verb.split()
                line = refuse(verb, copy, *(word.format(copy) for word in options))
                assert str(copy) in line


def test_damaged_records(copy, refuse, subtests):
    truncate(copy / "rows.parquet")
    for verb in ["report", "gate --robust 0.1", "compare digits-cnn"]:
        with subtests.test(verb=verb):
            verb, *options = verb.split()
            assert "was changed after the run ended" in refuse(
                verb, copy, *(word.format(copy) for word in options)
            )


def test_a_folder_that_is_taken(good, work, refuse):
    assert "holds a run: add --resume" in refuse(*audit_arguments(work, good))
