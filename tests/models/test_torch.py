"""Modules from a user's file, with weights from another file."""

import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import import_file
from brinell.models._weights import read_weights
from brinell.models.torch import TorchModule
from brinell.testing.others import check_model

VECTOR = Domain(kind="vector", shape=(4,))
SOURCE = """
import torch
from torch import nn

def net(width="3"):
    return nn.Sequential(nn.Linear(4, int(width)), nn.BatchNorm1d(int(width)))

def broken():
    raise RuntimeError("no\\nluck")

def number():
    return 7

def wide(width):
    return net(width)

constant = 5
ready = nn.Linear(4, 2)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


@pytest.fixture
def weights(file: Path) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    state: dict[str, torch.Tensor] = import_file(file).net().state_dict()
    return {
        key: torch.rand(value.shape, generator=rng) if value.is_floating_point() else value
        for key, value in state.items()
    }


def load(file: Path, factory: str = "net", **options: str) -> Any:
    return TorchModule(path=f"{file}:{factory}", **options)(VECTOR)


def test_safetensors(file: Path, weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(weights, tmp_path / "trained.safetensors")
    model = load(file, weights=str(tmp_path / "trained.safetensors"))
    check_model(model)
    assert (model.name, model.classes, model.info.parameters) == ("trained", 3, 21)
    assert all(torch.equal(value, weights[key]) for key, value in model.module.state_dict().items())
    assert load(file, weights=str(tmp_path / "trained.safetensors"), name="mine").name == "mine"
    halves = {
        key: value.half() if value.is_floating_point() else value for key, value in weights.items()
    }
    save_file(halves, tmp_path / "w.safetensors")
    assert torch.equal(
        load(file, weights=str(tmp_path / "w.safetensors")).module[0].weight,
        halves["0.weight"].float(),
    )


def test_checkpoints_of_torch(file: Path, weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    wraps = [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {
            "state_dict": {f"module._orig_mod.{key}": value for key, value in state.items()}
        },
        lambda state: {
            key: value for key, value in state.items() if not key.endswith("num_batches_tracked")
        },
        lambda state: nn.Module().state_dict() | state,
    ]
    for wrap, suffix in zip(wraps, itertools.cycle(["pt", "pth", "th", "ckpt", "pth.tar"])):
        saved = tmp_path / f"w.{suffix}"
        torch.save(wrap(weights), saved)
        assert torch.equal(load(file, weights=str(saved)).module[0].weight, weights["0.weight"])


def test_arguments_reach_the_factory_as_text(file: Path) -> None:
    assert load(file, args="width=9").classes == 9 and load(file, "ready").classes == 2
    assert load(file, args="width=9").digest() != load(file).digest()


def test_the_digest_sees_the_source(
    file: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    save_file(weights, tmp_path / "w.safetensors")
    digest = load(file, weights=str(tmp_path / "w.safetensors")).digest()
    assert load(file, weights=str(tmp_path / "w.safetensors")).digest() == digest
    file.write_text(SOURCE + "# a change\n")
    assert load(file, weights=str(tmp_path / "w.safetensors")).digest() != digest


def test_bad_requests_give_one_line(file: Path) -> None:
    rows = [
        ("", {}, "names no function: write torch:FILE.py:FACTORY"),
        ("{file}", {}, "names no function"),
        ("{folder}/none.py:net", {}, "there is no file"),
        (
            "{file}:nets",
            {},
            "has no function 'nets', did you mean 'net'. it has broken, net, number, wide",
        ),
        ("{file}:constant", {}, "has no function 'constant'"),
        ("{file}:broken", {}, "broken failed with RuntimeError: no luck"),
        ("{file}:number", {}, "returned int, and no nn.Module: let it return the network"),
        ("{file}:wide", {}, "wide failed with TypeError: .*missing .* 'width'"),
        ("{file}:net", {"args": "depth=3"}, "unexpected keyword argument 'depth'"),
        ("{file}:net", {"args": "width"}, "'width' is no key=value"),
        ("{file}:net", {"weights": "{folder}/none.pt"}, "there is no file .*none.pt"),
        ("{file}:net", {"weights": "{file}"}, "weights come as .safetensors"),
    ]
    for path, options, words in rows:
        places = {"file": str(file), "folder": str(file.parent)}
        filled = {key: value.format(**places) for key, value in options.items()}
        with pytest.raises(RequestError, match=words) as error:
            TorchModule(path=path.format(**places), **filled)(VECTOR)
        assert "\n" not in str(error.value)


def test_weights_that_do_not_fit_are_named(
    file: Path, weights: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [
        (lambda w: {k: v for k, v in w.items() if k != "0.bias"}, r"names 1 missing \(0.bias\)"),
        (lambda w: w | {"extra": torch.zeros(1)}, r"1 unexpected \(extra\)"),
        (
            lambda w: w | {"0.bias": torch.zeros(5)},
            r"1 of another shape \(0.bias \(5,\) for \(3,\)\)",
        ),
        (
            lambda w: {f"net{k}": v for k, v in w.items()},
            r"6 missing \(0.weight, 0.bias, 1.weight, ...\); 7 unexpected",
        ),
    ]
    for change, words in rows:
        tmp_path = tmp_path_factory.mktemp("case")
        save_file(change(weights), tmp_path / "w.safetensors")
        with pytest.raises(RequestError, match=words) as error:
            load(file, weights=str(tmp_path / "w.safetensors"))
        assert "\n" not in str(error.value)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    module_file = tmp_path / "whole.pt"
    torch.save(nn.Linear(2, 2), module_file)
    with pytest.raises(
        RequestError,
        match="pickle of more than tensors, which is never loaded: save model.state_dict",
    ):
        read_weights(module_file)
    evil = tmp_path / "evil.pt"
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("evil/data.pkl", b"cos\nsystem\n(S'echo no > /dev/null'\ntR.")
        archive.writestr("evil/version", b"3\n")
        archive.writestr("evil/byteorder", b"little")
    with pytest.raises(RequestError, match="never loaded"):
        read_weights(evil)
    old = tmp_path / "old.pth"
    old.write_bytes(b"\x80\x02cos\nsystem\nq\x00U\x04echoq\x01\x85q\x02Rq\x03.")
    with pytest.raises(RequestError, match="never loaded|damaged"):
        read_weights(old)


def test_files_without_a_state_dict_and_damaged_ones(tmp_path: Path) -> None:
    for content in (5, {}, {"state_dict": {"a": 5}}, [torch.zeros(1)]):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(RequestError, check=refused("models._weights.state_dict")):
            read_weights(tmp_path / "w.pt")
    torch.save({"a": torch.zeros(1000)}, tmp_path / "w.pt")
    save_file({"a": torch.zeros(1000)}, tmp_path / "w.safetensors")
    for file in (tmp_path / "w.pt", tmp_path / "w.safetensors"):
        for raw in (b"", b"nothing", file.read_bytes()[:500]):
            file.write_bytes(raw)
            with pytest.raises(
                RequestError, match="damaged|never loaded|no file of torch"
            ) as error:
                read_weights(file)
            assert "\n" not in str(error.value)


def draw_checkpoint(rng: Any, raw: dict[str, Any], averaged: dict[str, Any]) -> tuple[Any, str]:
    """A checkpoint as training codes write it, and the name of the averaged weights in it, empty for
    none.
    """
    wrap = "".join(rng.permutation(["module.", "_orig_mod.", "model.", "net."])[: rng.integers(3)])
    wrapped = {f"{wrap}{key}": value for key, value in raw.items()}
    kind = rng.choice(["plain", "nested", "beside", "within"])
    if kind == "plain":
        return wrapped, ""
    key = str(rng.choice(["state_dict", "model_state_dict", "model", "net", "weights"]))
    extra = {"epoch": 7, "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}}}
    if kind == "nested":
        return extra | {key: wrapped}, ""
    name = str(rng.choice(["model_ema", "ema", "state_dict_ema", "averaged"]))
    if kind == "beside":
        both = {name: averaged, key: wrapped}
        return extra | dict(rng.permutation(list(both.items())).tolist()), name
    # As Lightning has them: both networks and the loss in one dict.
    prefix = f"{name}.module."
    within = {f"{prefix}{k}": value for k, value in averaged.items()}
    raw_within = {f"{wrap or 'net.'}{k}": value for k, value in raw.items()}
    return extra | {
        key: within | raw_within | {"loss.weight": torch.ones(3)}
    }, f"{key}.{prefix[:-1]}"


def test_checkpoints_in_any_form_are_read(
    file: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    file.write_text(SOURCE + WRAPPED)
    rng = np.random.default_rng(0)
    averaged = {key: value + 1 for key, value in weights.items()}
    for number in range(40):
        checkpoint, name = draw_checkpoint(rng, weights, averaged)
        path = tmp_path / f"{number}.pt"
        torch.save(checkpoint, path)
        for factory in ("net", "behind"):
            model = load(file, factory, weights=str(path))
            read = list(model.module.state_dict().values())[-len(weights) :]
            assert all(map(torch.equal, read, weights.values()))
            notes = " ".join(model.info.notes)
            assert (f"&state={name}" in notes) if name else "several" not in notes
            if name:
                model = load(file, factory, weights=str(path), state=name)
                read = list(model.module.state_dict().values())[-len(weights) :]
                assert all(map(torch.equal, read, averaged.values()))
    with pytest.raises(RequestError, match="no state dict 'other' that fits"):
        load(file, weights=str(path), state="other")


WRAPPED = """
class Prepared(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        return x - self.mean

def behind():
    return nn.Sequential(Prepared(), net())
"""


def test_a_part_of_another_network_is_no_network(
    file: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    rng = torch.Generator().manual_seed(1)
    larger = {f"layer.{i}.weight": torch.rand(3, 3, generator=rng) for i in range(20)}
    save_file(larger | {f"head.{k}": v for k, v in weights.items()}, tmp_path / "w.safetensors")
    with pytest.raises(RequestError, match=r"6 missing .*27 unexpected"):
        load(file, weights=str(tmp_path / "w.safetensors"))
