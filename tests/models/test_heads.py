"""Weights with a head for another number of classes: the message holds the option that opens them."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from _refusals import refused
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import RequestError

PICTURES = Domain(kind="image", shape=(3, 40, 40), levels=256)


def library(name: str) -> Any:
    return pytest.importorskip(name, exc_type=(ImportError, RuntimeError))


def build(spec: str) -> Any:
    parsed = plugins.parse(spec)
    return plugins.build("model", parsed.name, {"path": parsed.path} | parsed.options)(PICTURES)


def check_cure(spec: str, classes: int) -> None:
    """The message for a spec holds the option that opens a model of so many classes."""
    with pytest.raises(RequestError) as error:
        build(spec)
    text = str(error.value)
    remedy = re.search(rf"for {classes} classes.*add (&classes={classes}) to the model", text)
    assert remedy, text
    assert build(spec + remedy[1]).classes == classes


def test_timm_and_torchvision(tmp_path: Path) -> None:
    timm, models = library("timm"), library("torchvision").models
    for name in (
        "test_resnet.r160_in1k",
        "test_vit",
        "test_convnext",
        "squeezenet1_1",
        "googlenet",
    ):
        classes, file = random.Random(name).randint(2, 20), tmp_path / f"{name}.safetensors"
        options = {"init_weights": False, "aux_logits": True} if name == "googlenet" else {}
        is_timm = name.startswith("test_")
        with torch.random.fork_rng():
            create = timm.create_model if is_timm else models.get_model
            save_file(create(name, num_classes=classes, **options).state_dict(), file)
        check_cure(
            f"{'timm' if is_timm else 'torchvision'}:{name}?weights={file}&name=mine", classes
        )


@pytest.mark.slow
def test_transformers(tmp_path: Path) -> None:
    transformers = library("transformers")
    settings = {
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "layer_type": "basic",
    }
    with torch.random.fork_rng():
        network, few = (
            transformers.ResNetForImageClassification(
                transformers.ResNetConfig(num_labels=n, **settings)
            )
            for n in (5, 2)
        )
    network.save_pretrained(tmp_path)
    save_file(few.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    spec = f"hf:{tmp_path}?processor=false&name=mine"
    with pytest.raises(
        RequestError, match="another number of classes than its config states: add &classes=NUMBER"
    ):
        build(spec)
    assert build(f"{spec}&classes=2").classes == 2


FACTORIES = """
from torch import nn

def net(width="4", num_classes="5"):
    return nn.Sequential(nn.Flatten(), nn.Linear(4800, int(width)), nn.Linear(int(width), int(num_classes)))

def fixed():
    return net()
"""


def test_a_factory(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FACTORIES)
    state = nn.Sequential(nn.Flatten(), nn.Linear(4800, 6), nn.Linear(6, 3)).state_dict()
    save_file(state, tmp_path / "mine.safetensors")
    with pytest.raises(RequestError, check=refused("models._weights.load_weights")):
        build(f"torch:{file}:net?weights={tmp_path / 'mine.safetensors'}&args=width=6")
    state = nn.Sequential(nn.Flatten(), nn.Linear(4800, 4), nn.Linear(4, 3)).state_dict()
    save_file(state, tmp_path / "few.safetensors")
    with pytest.raises(RequestError, check=refused("models._weights.load_weights")):
        build(f"torch:{file}:fixed?weights={tmp_path / 'few.safetensors'}")
