"""Plausible mistakes that would give a wrong figure: each is refused in one line, gives a warning,
or yields the right figure.

One row for each of them; the code behind each row has separate tests
(tests/engine/test_eps_grid.py, test_clean_accuracy.py, test_selection.py, test_quantised.py,
tests/analysis/test_gate.py, tests/rlab/test_vetting.py).
"""

import json
import re

import numpy as np
import pytest
import torch

from brinell.cli import run as cli

CLASSES, SIDE = 4, 6
MODULE = """
import torch
from torch import nn


class Nearest(nn.Module):
    \"\"\"The nearest of four templates, after what is done to its input.\"\"\"

    def __init__(self, change):
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        one = torch.rand(3, 6, 6, generator=rng)
        self.register_buffer("templates", torch.stack([one, one.flip(0), 0.5 * one, 0.4 + 0.3 * one]))
        self.change = change

    def forward(self, x):
        x = {
            "": lambda: x,
            "255": lambda: x / 255,
            "bgr": lambda: x.flip(1),
            "mean": lambda: x * torch.tensor([0.229, 0.224, 0.225])[:, None, None]
            + torch.tensor([0.485, 0.456, 0.406])[:, None, None],
        }[self.change if self.change in ("255", "bgr", "mean") else ""]()
        logits = -2 * (x[:, None] - self.templates).flatten(2).square().sum(2)
        return {"order": lambda: logits.roll(1, 1), "chance": lambda: logits * 0 + torch.arange(4.0)}.get(
            self.change, lambda: logits
        )()


def nearest(change=""):
    return Nearest(change)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Pictures near the templates, sorted by class, as shares of 1 and as bytes, and the model."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "model.py").write_text(MODULE)
    scope: dict = {}
    exec(MODULE, scope)
    templates = scope["nearest"]().templates
    y = np.repeat(np.arange(CLASSES), 20)
    rng = torch.Generator().manual_seed(1)
    x = (templates[y] + 0.03 * torch.randn(len(y), 3, SIDE, SIDE, generator=rng)).clamp(0, 1)
    levels = (x * 255).round()
    for name, inputs, labels in (
        ("unit", (levels / 255).numpy(), y),
        ("bytes", levels.numpy().astype(np.uint8), y),
        ("from-one", (levels / 255).numpy(), y + 1),
        ("three", (levels / 255).numpy()[:60], y[:60]),
    ):
        np.savez(folder / f"{name}.npz", x=inputs, y=labels)
    np.savez(
        folder / "named.npz",
        x=(levels / 255).numpy()[:60],
        y=y[:60],
        classes=np.array(list("abcd")),
    )
    return folder


def audit_file(place, tmp_path, capsys, *words, data="unit", change="", attack="fgsm"):
    """Exit code, the answer where there is one, and everything that was said."""
    arguments = [
        "audit",
        "--data",
        f"npz:{place}/{data}.npz" if ":" not in data else data.format(place),
    ]
    arguments += [
        "--model",
        f"torch:{place}/model.py:nearest" + (f"?args=change={change}" if change else ""),
    ]
    arguments += ["--attack", attack, "--out", str(tmp_path / "run"), *words]
    code = cli([*arguments, "--json"])
    output = capsys.readouterr()
    return code, json.loads(output.out) if output.out.strip() else {}, output.err


BYTES = "npz:{0}/bytes.npz?low=0&high=255"
REFUSED_CASES = [
    (
        "eps as a share, data of 0 to 255",
        {"data": BYTES},
        ["--eps", "8/255"],
        "for 8/255 of the range write 8",
    ),
    (
        "MNIST's eps, data of 0 to 255",
        {"data": BYTES},
        ["--eps", "0.3"],
        "for 0.3 of the range write 76.5",
    ),
    (
        "L2 as a share, data of 0 to 255",
        {"data": BYTES},
        ["--eps", "0.5", "--norm", "l2"],
        "of the range write 127.5",
    ),
    ("eps in levels, data of 0 to 1", {}, ["--eps", "8"], "did you mean 8/255"),
    ("a decimal comma", {}, ["--eps", "0,03"], "may be a decimal comma: write 0.03"),
    ("Linf's eps in L0", {}, ["--eps", "8/255", "--norm", "l0"], "changes no value"),
    ("an L2 beyond everything", {}, ["--eps", "50", "--norm", "l2"], "more than any change can be"),
    (
        "labels counted from 1",
        {"data": "from-one"},
        ["--eps", "8/255"],
        "the labels of the data run from 1 to 4",
    ),
    (
        "the same, on the first samples",
        {"data": "from-one"},
        ["--eps", "8/255", "--samples", "first:8"],
        "the labels of the data run from 1 to 4",
    ),
]


@pytest.mark.parametrize("part", range(3))
def test_refused_in_one_line(part, place, tmp_path_factory, capsys, subtests):
    for settings, words, line in [row[1:] for row in REFUSED_CASES[part::3]]:
        with subtests.test(str((settings, words, line))):
            tmp_path = tmp_path_factory.mktemp("row")
            code, answer, message = audit_file(place, tmp_path, capsys, *words, **settings)
            assert code == 2 and not answer and line in message
            assert len(message.strip().splitlines()) == 1 and "Traceback" not in message


WARNED_CASES = [
    (
        "a class without samples",
        {},
        ["--eps", "8/255", "--samples", "first:8"],
        "3 of 4 classes have no sample",
    ),
    (
        "a class that the data lacks",
        {"data": "named"},
        ["--eps", "8/255"],
        "1 of 4 classes have no sample among the 60",
    ),
]


def test_told_before_the_first_attack(place, tmp_path_factory, capsys, subtests):
    for settings, words, line in [row[1:] for row in WARNED_CASES]:
        with subtests.test(str((settings, words, line))):
            tmp_path = tmp_path_factory.mktemp("row")
            code, answer, message = audit_file(place, tmp_path, capsys, *words, **settings)
            assert code == 0 and line in message and message.index(line) < message.index("checks")


MISASKED = [
    (
        "trained on 0 to 255",
        "255",
        "with inputs from 0 to 255: let the model begin with x = x * 255",
    ),
    ("trained on BGR", "bgr", "with channels in the order BGR"),
    ("trained on normalised inputs", "mean", "with inputs normalised by mean and std"),
    ("classes in another order", "order", "classes in another order"),
    ("no better than chance", "chance", "it answers class 3 to every input"),
]


@pytest.mark.parametrize("part", range(3))
def test_a_model_that_is_asked_otherwise_fails_a_check(
    part, place, tmp_path_factory, capsys, subtests
):
    for change, line in [row[1:] for row in MISASKED[part::3]]:
        with subtests.test(str((change, line))):
            tmp_path = tmp_path_factory.mktemp("row")
            code, answer, message = audit_file(
                place, tmp_path, capsys, "--eps", "8/255", change=change
            )
            failed = {
                check["code"]: check["text"]
                for check in answer["models"][0]["checks"]
                if check["passed"] is False
            }
            assert code == 0 and line in failed["clean-accuracy"] and line in message
            assert answer["models"][0]["clean_accuracy"]["value"] < 0.7
            assert answer["models"][0]["verdict"].startswith(
                ("Do not rely on", "No sample was attacked")
            )
            assert cli(["gate", str(tmp_path / "run"), "--robust", "0", "--without-checks"]) == 1, (
                "a failed check fails the gate"
            )
            capsys.readouterr()


def test_asked_as_it_was_trained_it_fails_none(place, tmp_path, capsys):
    code, answer, _ = audit_file(place, tmp_path, capsys, "--eps", "1/255")
    assert code == 0 and answer["models"][0]["clean_accuracy"]["value"] == 1.0
    assert {check["code"]: check["passed"] for check in answer["models"][0]["checks"]}[
        "clean-accuracy"
    ] is True
    assert "clean" not in {
        check["code"] for check in answer["models"][0]["checks"] if check["passed"] is False
    }


def test_a_few_samples_of_sorted_data_are_of_every_class(place, tmp_path, capsys):
    code, answer, message = audit_file(place, tmp_path, capsys, "--eps", "8/255", "--samples", "8")
    assert code == 0 and [row["n"] for row in answer["models"][0]["per_class"]] == [2] * CLASSES
    assert "8 of 80 samples, drawn stratified by class" in message
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data"]["select"] == "stratified"
    assert "drawn stratified by class" in (tmp_path / "run" / "report.html").read_text()


def test_the_worst_class_is_not_known_where_one_has_no_sample(place, tmp_path, capsys):
    audit_file(place, tmp_path, capsys, "--eps", "1/255", data="named")
    assert cli(["gate", str(tmp_path / "run"), "--worst-class", "0", "--without-checks"]) == 1
    assert "have no sample, so that nothing is known about them" in capsys.readouterr().out


def test_a_gate_wants_the_checks_that_were_not_made_and_names_weak_attacks(place, tmp_path, capsys):
    audit_file(place, tmp_path, capsys, "--eps", "1/255")
    assert cli(["gate", str(tmp_path / "run"), "--robust", "0"]) == 1
    assert cli(["gate", str(tmp_path / "run"), "--robust", "0", "--without-checks"]) == 0
    output = capsys.readouterr().out
    assert (
        "--without-checks allows" in output and "the attacks are weaker than fast: FGSM" in output
    )


def test_budgets_that_are_given_one_by_one_are_all_audited(place, tmp_path, capsys):
    _, answer, _ = audit_file(place, tmp_path, capsys, "--eps", "8/255", "--eps", "0.1, 0.2")
    assert answer["models"][0]["eps_text"] == ["8/255", "0.1", "0.2"]


def test_clean_accuracy_is_always_in_the_table(place, tmp_path, capsys):
    arguments = [
        "audit",
        "--data",
        f"npz:{place}/unit.npz",
        "--model",
        f"torch:{place}/model.py:nearest",
        "--attack",
        "fgsm",
    ]
    assert cli([*arguments, "--eps", "8/255", "--out", str(tmp_path / "run")]) == 0
    assert re.search(r"^ *clean +100\.0 % ", capsys.readouterr().out, flags=re.MULTILINE)


def test_what_is_broken_is_broken_on_levels_too(place, tmp_path, capsys):
    """0.3 is 76.5 levels: rounding to the nearest ones would leave the ball, and nothing would
    count as broken.
    """
    _, answer, _ = audit_file(place, tmp_path, capsys, "--eps", "0.3")
    robust, quantised = (
        answer["models"][0][key][-1]["k"]
        for key in ("robust_accuracy", "quantised_robust_accuracy")
    )
    assert robust < 40 and quantised <= robust + 4
