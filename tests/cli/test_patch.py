"""`--norm patch:5`: one square anywhere, from the request to its verification."""

import pytest
import torch
from safetensors.numpy import load_file, save_file

import brinell
from _cli import arrays_of
from _helpers import mlp
from _refusals import refused
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.core.record import has_broken
from brinell.core.squares import side
from brinell.engine.request import Request, split_budget
from brinell.store.run import LAYOUT, Run
from brinell.studies.certify import CertifyRequest


def test_a_norm_states_its_budget():
    request = Request(norm="patch:5")
    assert (request.norm, request.eps, request.attack) == ("patch", "5", ("patch",))
    request = Request(norm="patch", eps="1:8:8", attack="sparse-rs")
    assert (request.norm, request.eps, request.attack) == ("patch", "1:8:8", ("sparse-rs",))
    assert Request(norm="l0", eps="3").attack == ("sparse",)
    assert Request(norm="l2").attack == ("fast",)


@pytest.mark.parametrize("norm", ["patch:0", "patch:", "patch:-1", "patch:2.5", "patch:x"])
def test_no_side_is_refused(norm):
    with pytest.raises(RequestError, check=refused("engine.request.split_budget")):
        Request(norm=norm)


def test_two_budgets_are_refused():
    with pytest.raises(RequestError, check=refused("engine.request.split_budget")):
        split_budget("patch:5", "3")


def test_what_does_not_fit_ends_in_one_line(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("a,b,label\n" + "".join(f"0.{k % 9},0.{k % 7},{k % 2}\n" for k in range(40)))
    for words, part in [
        (["audit", "--norm", "patch:9"], "more than the 8 places along a side"),
        (["audit", "--norm", "patch:3", "--attack", "fast"], "ask for --attack patch"),
        (["audit", "--norm", "patch:2", "--data", str(table)], "the columns of a table have no"),
        (["certify", "--norm", "patch:2"], "proofs cover changes in linf and l2 alone"),
        (["audit", "--norm", "patch:2", "--certify"], "none in patch"),
        (["harden", "--norm", "patch:2"], "not in patch"),
    ]:
        assert cli([*words, "--out", str(tmp_path / "run")]) == 2, words
        out, err = capsys.readouterr()
        assert out == "" and len(err.splitlines()) == 1 and part in err, err
    with pytest.raises(ValueError, match="proofs cover"):
        CertifyRequest(norm="patch:2")


def test_a_patch_is_audited_and_verified(tmp_path, ask, capsys):
    words = ["audit", "--norm", "patch", "--eps", "1:3:3", "--samples", "12"]
    code, answer = ask(*words, "--out", str(tmp_path / "run"))
    rates = answer["models"][0]["robust_accuracy"]
    assert code == 0 and [rate["eps"] for rate in rates] == [1, 2, 3]
    counts = [rate["k"] for rate in rates]
    assert counts == sorted(counts, reverse=True)

    run = Run.open(tmp_path / "run")
    assert has_broken(run.rows).any()
    code, answer = ask("verify", str(tmp_path / "run"))
    assert code == 0 and answer["passed"]

    # One value elsewhere lies beyond every square, and changes the other norms by nearly nothing.
    file = arrays_of(tmp_path / "run", "patch-apgd")
    arrays = load_file(file)
    name = sorted(arrays)[0]
    x = arrays[name].copy()
    x[0, 0, 0] = abs(x[0, 0, 0] - 0.01)
    x[0, 7, 7] = abs(x[0, 7, 7] - 0.01)
    arrays[name] = x
    save_file(arrays, file)
    LAYOUT.save(tmp_path / "run", LAYOUT.read(tmp_path / "run"))
    assert cli(["verify", str(tmp_path / "run")]) == 1
    assert "farther than eps in patch" in " ".join(capsys.readouterr().out.split())


def test_python_takes_the_norm_as_the_command_line_does():
    module = mlp(64, 3)
    x = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    y = module(x).argmax(1)
    for settings in ({"norm": "patch:4"}, {"norm": "patch", "eps": 4}):
        result = brinell.attack(module, x, y, "patch-apgd", **settings)
        delta = result.x_adv - x
        assert result.success.any() and (side(delta)[result.success] <= 4).all()
    with pytest.raises(RequestError, match="the columns of a table"):
        brinell.attack(mlp(6), torch.rand(4, 6), torch.zeros(4).long(), "sparse-rs", norm="patch:2")
