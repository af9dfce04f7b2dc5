"""Networks of timm and torchvision behind their own preparation, with weights from files that the tests make."""

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
from brinell.models._prepared import Prepared, View, prepare
from brinell.models.timm import Timm, view_of
from brinell.models.torchvision import Torchvision
from brinell.testing.others import check_model

TINY = "test_resnet.r160_in1k"
"""The smallest of timm's own test networks: 160 pixels, crop 0.95, bilinear."""


def library(name: str) -> Any:
    """A library; the test is skipped where it cannot be imported, be it for want of an operator in another build of torch."""
    return pytest.importorskip(name, exc_type=(ImportError, RuntimeError))


def pictures(height: int, width: int) -> Domain:
    return Domain(kind="image", shape=(3, height, width), levels=256)


def pixels(height: int, width: int, n: int = 1) -> Tensor:
    """8-bit pictures, smooth enough that resizing does not only average noise."""
    rng = torch.Generator().manual_seed(height + width)
    coarse = torch.rand(n, 3, 6, 6, generator=rng)
    x = nn.functional.interpolate(coarse, (height, width), mode="bilinear") + 0.1 * torch.rand(n, 3, height, width, generator=rng)
    return x.clamp(0, 1).mul(255).round() / 255


class EchoNetwork(nn.Module):
    """A network that answers with what it is shown."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def prepare_input(view: View, x: Tensor, resize: Any = "library") -> Tensor:
    return Prepared(EchoNetwork(), view, *x.shape[2:], resize)(x).view(len(x), 3, *view.size)


def plain(size: int, resized: int, **settings: Any) -> View:
    return View(**({"size": (size, size), "resized": (resized, resized), "mean": (0.0,) * 3, "std": (1.0,) * 3} | settings))


def test_the_middle_of_a_picture_by_hand() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4).expand(1, 3, 4, 4) / 16
    view = plain(2, 4, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    middle = torch.tensor([5.0, 6.0, 9.0, 10.0]) / 16
    expected = torch.stack([(middle - 0.5) / 0.5, (middle - 0.25) / 0.25, middle]).view(3, 2, 2)
    assert torch.allclose(prepare_input(view, x)[0], expected, atol=1e-6)


def test_a_picture_of_the_network_s_size_stays_as_it_is_unless_asked() -> None:
    view, x = plain(8, 16), pixels(8, 8)
    assert torch.equal(prepare_input(view, x, "auto"), x)
    assert not torch.allclose(prepare_input(view, x, "library"), x, atol=0.01)
    assert torch.equal(prepare_input(view, pixels(20, 24), "auto"), prepare_input(view, pixels(20, 24), "library"))


def test_a_border_holds_the_mean() -> None:
    view = plain(4, 4, scaling="longer", mean=(0.3, 0.4, 0.5), std=(0.1, 0.2, 0.3))
    prepared = prepare_input(view, torch.ones(1, 3, 2, 4))
    assert bool((prepared[:, :, [0, 3]] == 0).all())
    assert torch.allclose(prepared[0, :, 1, 0], torch.tensor([7.0, 3.0, 0.5 / 0.3]))


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
                # timm rounds to 8 bits after each axis, also the border, and clips what bicubic interpolation overshoots.
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
            unclipped = prepared.abs() < 1.5  # torchvision does not clip the overshoot of bicubic interpolation
            assert torch.allclose(prepared[unclipped], reference[unclipped], atol=1e-5) and float(unclipped.float().mean()) > 0.5


def test_gradients_reach_the_data_s_own_pixels() -> None:
    x = pixels(24, 36).requires_grad_()
    (grad,) = torch.autograd.grad(prepare_input(plain(16, 18, mode="bicubic"), x).square().sum(), x)
    used = grad.abs().amax((0, 1)) > 0
    assert grad.shape == x.shape and bool(used[3:-3, 8:-8].all())
    assert not used[:, 0].any() and not used[:, -1].any(), "what is cut off plays no part"


def test_other_bounds_are_brought_to_0_and_1() -> None:
    view = plain(8, 8)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    eight_bit = Domain(kind="image", shape=(3, 8, 8), low=0.0, high=255.0)
    first, second = prepare(network, view, pictures(8, 8), "auto", "it"), prepare(network, view, eight_bit, "auto", "it")
    x = pixels(8, 8)
    assert torch.allclose(first.predict(x), second.predict(x * 255), atol=1e-5)


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
    assert (config["input_size"], config["interpolation"], config["crop_pct"]) == ((3, 160, 160), "bilinear", 0.95)
    x = pixels(40, 52)
    picture = Image.fromarray(x[0].mul(255).round().byte().permute(1, 2, 0).numpy())
    with torch.no_grad():
        reference = network(timm.data.create_transform(**config)(picture)[None])
        assert float((model.predict(x) - reference).abs().max()) < 0.1 * float(reference.std())
        # A .pth that wraps the state, and the same answers; another preparation is another digest.
        torch.save({"state_dict": {f"module.{key}": value for key, value in load_file(tiny).items()}}, tmp_path / "tiny.pth")
        reloaded = Timm(path=TINY, weights=str(tmp_path / "tiny.pth"), name="mine")(pictures(40, 52))
        assert torch.equal(reloaded.predict(x), model.predict(x)) and reloaded.name == "mine"
    assert reloaded.digest() == model.digest()
    ready = pictures(160, 160)
    automatic, by_library = (Timm(path=TINY, weights=str(tiny), resize=resize)(ready) for resize in ("auto", "library"))  # type: ignore[arg-type]
    assert automatic.digest() != by_library.digest()


def test_timm_from_a_folder_of_its_own_kind(tiny: Path, tmp_path: Path) -> None:
    library("timm")
    (tmp_path / "model.safetensors").write_bytes(tiny.read_bytes())
    (tmp_path / "config.json").write_text(
        '{"architecture": "test_resnet", "num_classes": 1000, "pretrained_cfg": {"input_size": [3, 48, 48], '
        '"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5], "crop_pct": 1.0, "interpolation": "bilinear", "num_classes": 1000}}'
    )
    model = Timm(path=f"local-dir:{tmp_path}", name="folder")(pictures(48, 48))
    view = model.module.view
    assert (view.size, view.mode, view.mean, model.classes) == ((48, 48), "bilinear", (0.1, 0.2, 0.3), 1000)


def test_timm_with_another_number_of_classes(tmp_path: Path) -> None:
    timm = library("timm")
    with torch.random.fork_rng():
        save_file(timm.create_model(TINY, num_classes=7).state_dict(), tmp_path / "seven.safetensors")
    assert Timm(path=TINY, weights=str(tmp_path / "seven.safetensors"), classes=7)(pictures(32, 32)).classes == 7
    with pytest.raises(RequestError, check=refused("models._weights.load_weights")):
        Timm(path=TINY, weights=str(tmp_path / "seven.safetensors"))(pictures(32, 32))


def test_timm_that_cannot_be_fetched_says_which_file_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library("timm")
    hub = library("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(RequestError) as error:
        Timm(path=TINY)(pictures(32, 32))
    text = str(error.value)
    assert text.startswith(f"timm:{TINY} cannot be made with timm's own weights (") and "\n" not in text
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
    assert (model.name, model.classes, model.info.architecture) == ("squeezenet1_1", 1000, "SqueezeNet")
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
    assert "cannot be fetched (URLError: <urlopen error no network>): fetch https://" in str(error.value)
    assert str(error.value).endswith(f"{url} and name it, torchvision:squeezenet1_1?weights=FILE")
    torch.save(network.state_dict(), hub / Path(url).name)
    model = Torchvision(path="squeezenet1_1")(pictures(224, 224))
    assert torch.equal(model.module.network.state_dict()["features.0.weight"], network.state_dict()["features.0.weight"])
    torch.save(network, hub / Path(url).name)  # a whole module: torch must not be told to run it
    with pytest.raises(RequestError, check=refused("models.torchvision.Torchvision._fetch")):
        Torchvision(path="squeezenet1_1")(pictures(224, 224))


def test_published_networks_that_normalise_again() -> None:
    # torchvision makes these otherwise for its weights than without any; a file of those weights needs the same.
    models = library("torchvision").models
    network = Torchvision(path="googlenet")._network(models, 1000)
    assert network.transform_input and network.aux_logits


def test_bad_requests_give_one_line() -> None:
    rows = [
        (Timm, {}, pictures(32, 32), "'timm' names no model: write timm:NAME"),
        (Timm, {"path": "resnet81"}, pictures(32, 32), "has no model 'resnet81', did you mean 'resnet"),
        (Timm, {"path": TINY, "classes": 3}, pictures(32, 32), "classes=3 needs weights=FILE"),
        (
            Timm,
            {"path": "test_resnet.no_such"},
            pictures(32, 32),
            "cannot be made .*Invalid pretrained tag",
        ),
        (Timm, {"path": TINY, "weights": "none.safetensors"}, pictures(32, 32), "there is no file none.safetensors"),
        (Timm, {"path": "local-dir:none"}, pictures(32, 32), "cannot be made"),
        (Torchvision, {}, pictures(32, 32), "names no model: write torchvision:NAME"),
        (Torchvision, {"path": "resnet81"}, pictures(32, 32), "no image classifier 'resnet81', did you mean 'resnet"),
        (Torchvision, {"path": "fcn_resnet50"}, pictures(32, 32), "no image classifier 'fcn_resnet50'"),
        (Torchvision, {"path": "resnet18", "version": "V9"}, pictures(32, 32), "has no weights 'V9'; it has IMAGENET1K_V1"),
        (Torchvision, {"path": "vgg16", "version": "IMAGENET1K_FEATURES"}, pictures(32, 32), "weights without a classifier"),
        (Torchvision, {"path": "resnet18", "classes": 3}, pictures(32, 32), "classes=3 needs weights=FILE"),
    ]
    for plugin, settings, domain, words in rows:
        library("timm")
        with pytest.raises(RequestError, match=words) as error:
            plugin(**settings)(domain)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("domain", [Domain(kind="signal", shape=(3, 40)), Domain(kind="image", shape=(1, 28, 28))])
def test_other_data_are_refused(tiny: Path, domain: Domain) -> None:
    with pytest.raises(RequestError, match=rf"{TINY} takes images of 3 channels, and the data are .*colour pictures"):
        Timm(path=TINY, weights=str(tiny))(domain)


@pytest.mark.parametrize(("plugin", "library"), [(Timm, "timm"), (Torchvision, "torchvision")])
def test_a_missing_library_is_named(plugin: Any, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RequestError, match=rf"{library} cannot be imported .*: pip install 'brinell\[vision\]'"):
        plugin(path="resnet18")(pictures(32, 32))
