"""One command audits a network of timm: on real photographs where they are there, on pictures made
here otherwise.
"""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.datasets.image_folder import ImageFolder
from brinell.models.timm import Timm
from brinell.store.run import Run

NAME = "test_resnet.r160_in1k"
CLASSES = 5


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A small network of timm with random weights, scaled up so that pictures differ in their
    answers."""
    timm = pytest.importorskip("timm", exc_type=(ImportError, RuntimeError))
    with torch.random.fork_rng():
        network: nn.Module = timm.create_model(NAME, num_classes=CLASSES)
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in network.parameters():
            if tensor.ndim > 1:
                tensor.copy_(
                    torch.randn(tensor.shape, generator=rng) * (2 / tensor[0].numel()) ** 0.5
                )
    save_file(network.state_dict(), tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def labelled(folder: Path, weights: Path) -> Domain:
    """Pictures with the answers of the network as labels, so that it is right about all of them but
    the first."""
    rows = [{"file": file.name, "label": 0} for file in sorted(folder.glob("images/*"))]

    def write() -> None:
        with (folder / "labels.csv").open("w", newline="") as text:
            table = csv.DictWriter(text, ("file", "label"))
            table.writeheader()
            table.writerows(rows)

    write()
    data = ImageFolder(path=str(folder))()
    model = Timm(path=NAME, weights=str(weights), classes=CLASSES)(data.domain)
    with torch.no_grad():
        for row, label in zip(
            rows, model.predict(data.load(range(len(rows)))).argmax(1).tolist(), strict=True
        ):
            row["label"] = label
    rows[0]["label"] = (int(rows[0]["label"]) + 1) % CLASSES
    write()
    (folder / "classes.json").write_text(
        json.dumps([f"class {number}" for number in range(CLASSES)])
    )
    return data.domain


def audited(
    folder: Path, weights: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], Run]:
    line = [
        "audit",
        "--data",
        f"image-folder:{folder}",
        "--model",
        f"timm:{NAME}?weights={weights}&classes={CLASSES}",
    ]
    assert (
        cli([*line, "--eps", "0,16/255", "--attack", "pgd?steps=5", "--out", str(out), "--json"])
        == 0
    )
    return json.loads(capsys.readouterr().out), Run.open(out)


@pytest.mark.slow
def test_photographs(
    shared: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photographs"
    (folder / "images").mkdir(parents=True)
    for file in sorted((shared / "imagenet_samples" / "images").iterdir())[:60:10]:
        shutil.copy(file, folder / "images")
    assert labelled(folder, weights).shape == (3, 224, 224)
    result, _ = audited(folder, weights, tmp_path / "run", capsys)
    assert (result["n"], result["models"][0]["clean_accuracy"]["k"]) == (6, 5)
    assert result["models"][0]["robust_accuracy"][1]["k"] < 5


@pytest.mark.slow
def test_pictures_of_another_size(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(8):
        coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        coarse.resize((60, 48), Image.Resampling.BICUBIC).save(folder / "images" / f"{number}.png")
    assert labelled(folder, weights).shape == (3, 48, 60)
    result, run = audited(folder, weights, tmp_path / "run", capsys)
    assert (result["n"], result["models"][0]["clean_accuracy"]["k"]) == (8, 7)
    assert result["models"][0]["robust_accuracy"][1]["k"] < 7
    model = run.manifest["models"][0]
    assert (model["name"], model["architecture"], model["access"]) == (NAME, "ResNet", "gradients")
    assert cli(["verify", str(tmp_path / "run")]) == 0, (
        "what was found holds again, at the pictures' own size"
    )


def test_a_missing_file_of_weights_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("timm", exc_type=(ImportError, RuntimeError))
    (tmp_path / "a").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "a" / "one.png")
    code = cli(
        [
            "audit",
            "--data",
            f"image-folder:{tmp_path}",
            "--model",
            "timm:resnet18?weights=none.pth",
            "--eps",
            "0.1",
        ]
    )
    message = capsys.readouterr().err.strip()
    assert (
        code == 2
        and "there is no file none.pth: check weights=" in message
        and len(message.splitlines()) == 1
    )
