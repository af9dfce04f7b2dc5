"""Networks of timm and torchvision behind their own preparation, with weights from files that the
tests make."""

import sys
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.models._prepared import Prepared, View
from brinell.models.timm import Timm, view_of
from brinell.models.torchvision import Torchvision
from brinell.testing.others import check_model

TINY = "test_resnet.r160_in1k"
"""The smallest of timm's own test networks: 160 pixels, crop 0.95, bilinear."""


def library(name: str) -> Any:
    """A library; the test is skipped where it cannot be imported, be it for want of an operator in
    another build of torch.
    """
    return pytest.importorskip(name, exc_type=(ImportError, RuntimeError))


def pictures(height: int, width: int) -> Domain:
    return Domain(kind="image", shape=(3, height, width), levels=256)


def pixels(height: int, width: int, n: int = 1) -> Tensor:
    """8-bit pictures, smooth enough that resizing does not only average noise."""
    rng = torch.Generator().manual_seed(height + width)
    coarse = torch.rand(n, 3, 6, 6, generator=rng)
    x = nn.functional.interpolate(coarse, (height, width), mode="bilinear") + 0.1 * torch.rand(
        n, 3, height, width, generator=rng
    )
    return x.clamp(0, 1).mul(255).round() / 255


class EchoNetwork(nn.Module):
    """A network that answers with what it is shown."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def prepare_input(view: View, x: Tensor, resize: Any = "library") -> Tensor:
    return Prepared(EchoNetwork(), view, *x.shape[2:], resize)(x).view(len(x), 3, *view.size)


def plain(size: int, resized: int, **settings: Any) -> View:
    return View(
        **(
            {
                "size": (size, size),
                "resized": (resized, resized),
                "mean": (0.0,) * 3,
                "std": (1.0,) * 3,
            }
            | settings
        )
    )


def test_a_picture_of_the_network_s_size_stays_as_it_is_unless_asked() -> None:
    view, x = plain(8, 16), pixels(8, 8)
    assert torch.equal(prepare_input(view, x, "auto"), x)
    assert not torch.allclose(prepare_input(view, x, "library"), x, atol=0.01)
    assert torch.equal(
        prepare_input(view, pixels(20, 24), "auto"), prepare_input(view, pixels(20, 24), "library")
    )


def test_as_timm_prepares_pictures() -> None:
    for interpolation in ["bilinear", "bicubic"]:
        for crop_mode in ["center", "squash", "border"]:
            for height, width in [(32, 32), (75, 50), (64, 201), (224, 224)]:
                data = library("timm").data
                config = {
                    "input_size": (3, 64, 64),
                    "interpolation": interpolation,
                    "mean": (0.48, 0.46, 0.41),
                    "std": (0.23, 0.22, 0.23),
                    "crop_pct": 0.9,
                    "crop_mode": crop_mode,
                }
                x = pixels(height, width)
                picture = Image.fromarray(x[0].mul(255).round().byte().permute(1, 2, 0).numpy())
                reference = data.create_transform(**config)(picture)
                # timm rounds to 8 bits after each axis, also the border, and clips what bicubic
                # interpolation overshoots.
                levels = (prepare_input(view_of(config), x)[0] - reference).abs() * 255 * 0.22
                assert float(levels.max()) < (1.05 if interpolation == "bilinear" else 3.5)
                assert float(levels.mean()) < 0.35


def test_as_torchvision_prepares_pictures() -> None:
    for height, width in [(32, 48), (300, 224), (224, 224)]:
        for name in ["squeezenet1_1", "efficientnet_b0", "vit_b_16"]:
            models = library("torchvision").models
            transforms = models.get_model_weights(name).DEFAULT.transforms()
            from brinell.models.torchvision import _view

            x = pixels(height, width)
            prepared, reference = prepare_input(_view(transforms), x), transforms(x)
            unclipped = (
                prepared.abs() < 1.5
            )  # torchvision does not clip the overshoot of bicubic interpolation
            assert (
                torch.allclose(prepared[unclipped], reference[unclipped], atol=1e-5)
                and float(unclipped.float().mean()) > 0.5
            )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of a small network of timm with 1000 classes."""
    timm = library("timm")
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(0)
        network = timm.create_model(TINY, pretrained=False)
    file = tmp_path_factory.mktemp("timm") / "tiny.safetensors"
    save_file(network.state_dict(), file)
    return file


def test_timm_with_weights_from_a_file(tiny: Path, tmp_path: Path) -> None:
    timm = library("timm")

    generator = torch.random.get_rng_state()
    model = Timm(path=TINY, weights=str(tiny))(pictures(40, 52))
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert (model.name, model.classes, model.info.architecture) == (TINY, 1000, "ResNet")
    check_model(model)
    with torch.random.fork_rng():
        network = timm.create_model(TINY, pretrained=False).eval()
    network.load_state_dict(load_file(tiny))
    config = timm.data.resolve_model_data_config(network)
    assert (config["input_size"], config["interpolation"], config["crop_pct"]) == (
        (3, 160, 160),
        "bilinear",
        0.95,
    )
    x = pixels(40, 52)
    picture = Image.fromarray(x[0].mul(255).round().byte().permute(1, 2, 0).numpy())
    with torch.no_grad():
        reference = network(timm.data.create_transform(**config)(picture)[None])
        assert float((model.predict(x) - reference).abs().max()) < 0.1 * float(reference.std())
        # A .pth that wraps the state, and the same answers; another preparation is another digest.
        torch.save(
            {"state_dict": {f"module.{key}": value for key, value in load_file(tiny).items()}},
            tmp_path / "tiny.pth",
        )
        reloaded = Timm(path=TINY, weights=str(tmp_path / "tiny.pth"), name="mine")(
            pictures(40, 52)
        )
        assert torch.equal(reloaded.predict(x), model.predict(x)) and reloaded.name == "mine"
    assert reloaded.digest() == model.digest()
    ready = pictures(160, 160)
    automatic, by_library = (
        Timm(path=TINY, weights=str(tiny), resize=resize)(ready) for resize in ("auto", "library")
    )  # type: ignore[arg-type]
    assert automatic.digest() != by_library.digest()


def test_timm_that_cannot_be_fetched_says_which_file_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library("timm")
    hub = library("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(RequestError) as error:
        Timm(path=TINY)(pictures(32, 32))
    text = str(error.value)
    assert (
        text.startswith(f"timm:{TINY} cannot be made with timm's own weights (")
        and "\n" not in text
    )
    assert text.endswith("give a file of your own, weights=FILE.safetensors")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of torch's downloads, and no network behind it."""

    def unreachable(url: str, *_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "hub" / "checkpoints"


def squeezenet(classes: int = 1000) -> nn.Module:
    models = library("torchvision").models
    with torch.random.fork_rng():
        network: nn.Module = models.squeezenet1_1(weights=None, num_classes=classes).eval()
    return network


def test_torchvision_with_weights_from_a_file(tmp_path: Path) -> None:
    network = squeezenet()
    torch.save(network.state_dict(), tmp_path / "it.pth")
    model = Torchvision(path="squeezenet1_1", weights=str(tmp_path / "it.pth"))(pictures(60, 80))
    assert (model.name, model.classes, model.info.architecture) == (
        "squeezenet1_1",
        1000,
        "SqueezeNet",
    )
    check_model(model)
    transforms = library("torchvision").models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    x = pixels(60, 80)
    with torch.no_grad():
        reference = network(transforms(x))
        assert torch.allclose(model.predict(x), reference, atol=1e-4 * float(reference.abs().max()))


def test_torchvision_by_its_own_download(hub: Path) -> None:
    network = squeezenet()
    url = library("torchvision").models.SqueezeNet1_1_Weights.DEFAULT.url
    with pytest.raises(RequestError) as error:
        Torchvision(path="squeezenet1_1")(pictures(32, 32))
    assert "\n" not in str(error.value)
    assert "cannot be fetched (URLError: <urlopen error no network>): fetch https://" in str(
        error.value
    )
    assert str(error.value).endswith(f"{url} and name it, torchvision:squeezenet1_1?weights=FILE")
    torch.save(network.state_dict(), hub / Path(url).name)
    model = Torchvision(path="squeezenet1_1")(pictures(224, 224))
    assert torch.equal(
        model.module.network.state_dict()["features.0.weight"],
        network.state_dict()["features.0.weight"],
    )
    torch.save(network, hub / Path(url).name)  # a whole module: torch must not be told to run it
    with pytest.raises(RequestError, check=refused("models.torchvision.Torchvision._fetch")):
        Torchvision(path="squeezenet1_1")(pictures(224, 224))


def test_published_networks_that_normalise_again() -> None:
    # torchvision makes these otherwise for its weights than without any; a file of those weights
    # needs the same.
    models = library("torchvision").models
    network = Torchvision(path="googlenet")._network(models, 1000)
    assert network.transform_input and network.aux_logits


def test_bad_requests_give_one_line() -> None:
    rows = [
        (Timm, {}, "'timm' names no model: write timm:NAME"),
        (Timm, {"path": "resnet81"}, "has no model 'resnet81', did you mean 'resnet"),
        (Timm, {"path": TINY, "classes": 3}, "classes=3 needs weights=FILE"),
        (Timm, {"path": "test_resnet.no_such"}, "cannot be made .*Invalid pretrained tag"),
        (Timm, {"path": TINY, "weights": "none.safetensors"}, "there is no file none.safetensors"),
        (Timm, {"path": "local-dir:none"}, "cannot be made"),
        (Torchvision, {}, "names no model: write torchvision:NAME"),
        (Torchvision, {"path": "resnet81"}, "no image classifier 'resnet81', did you mean 'resnet"),
        (Torchvision, {"path": "fcn_resnet50"}, "no image classifier 'fcn_resnet50'"),
        (
            Torchvision,
            {"path": "resnet18", "version": "V9"},
            "has no weights 'V9'; it has IMAGENET1K_V1",
        ),
        (
            Torchvision,
            {"path": "vgg16", "version": "IMAGENET1K_FEATURES"},
            "weights without a classifier",
        ),
        (Torchvision, {"path": "resnet18", "classes": 3}, "classes=3 needs weights=FILE"),
    ]
    library("timm")
    for plugin, settings, words in rows:
        with pytest.raises(RequestError, match=words) as error:
            plugin(**settings)(pictures(32, 32))
        assert "\n" not in str(error.value)


def test_other_data_and_a_missing_library_are_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for domain in (Domain(kind="signal", shape=(3, 40)), Domain(kind="image", shape=(1, 28, 28))):
        with pytest.raises(
            RequestError,
            match=rf"{TINY} takes images of 3 channels, and the data are .*colour pictures",
        ):
            Timm(path=TINY, weights=str(tiny))(domain)
    for plugin, name in ((Timm, "timm"), (Torchvision, "torchvision")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            RequestError, match=rf"{name} cannot be imported .*: pip install 'brinell\[vision\]'"
        ):
            plugin(path="resnet18")(pictures(32, 32))
