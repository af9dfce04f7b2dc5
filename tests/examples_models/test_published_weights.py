"""The networks of examples/models with the weights that were published for them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import import_file
from brinell.datasets.image_folder import ImageFolder
from brinell.datasets.npz import Npz
from brinell.models.torch import TorchModule
from brinell.testing.others import check_model

SMALL = [
    ("mnist", "lenet5", "mnist_weights/lenet5_clean", 0.9889),
    ("mnist", "lenet5", "mnist_weights/lenet5_advtrained", 0.9864),
    ("mnist", "cnn4", "mnist_weights/cnn4_pgd", 0.9899),
    ("cifar10", "resnet20", "cifar10_weights/resnet20", 0.9173),
    ("cifar10", "resnet32", "cifar10_weights/resnet32", 0.9263),
    ("cifar10", "resnet44", "cifar10_weights/resnet44", 0.9310),
    ("cifar10", "captum_cnn", "cifar10_weights/captum_cnn_plain", 0.5907),
    ("cifar10", "resnet4b", "cifar10_robust_weights/resnet4b", 0.7720),
    ("cifar10", "resnet2b", "cifar10_robust_weights/resnet2b", 0.6925),
    ("cifar10", "cnn_wide_kw", "cifar10_robust_weights/cnn_wide_kw", 0.6162),
]
LARGE = [
    ("squeezenet1_0", 0.640),
    ("mobilenet_v1", 0.864),
    ("mobilenet_v2", 0.868),
    ("mcunet_144", 0.636),
]


def accuracy(
    root: Path, data: Dataset, file: str, factory: str, weights: Path, indices: range
) -> float:
    model = TorchModule(
        path=f"{root / 'examples' / 'models' / file}.py:{factory}", weights=str(weights)
    )(data.domain)
    check_model(model)
    labels = torch.from_numpy(data.labels()[indices.start : indices.stop : indices.step])
    with model.session(), torch.no_grad():
        return float((model.predict(data.load(indices)).argmax(1) == labels).float().mean())


@pytest.mark.parametrize("rows", [SMALL[1::4], pytest.param(SMALL, marks=pytest.mark.slow)])
def test_small_networks(
    rows: list[Any], root: Path, shared: Path, subtests: pytest.Subtests
) -> None:
    for data, factory, weights, published in rows:
        with subtests.test(weights=weights):
            dataset = Npz(path=str(shared / data / f"{data}_test.npz"))()
            measured = accuracy(
                root, dataset, data, factory, shared / f"{weights}.safetensors", range(200)
            )
            # Three standard errors of 200 samples: a wrong normalisation costs more than that.
            assert (
                abs(measured - published) < 3 * (published * (1 - published) / 200) ** 0.5 + 0.005
            )


@pytest.mark.slow
def test_large_networks(
    root: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for factory, published in LARGE:
        with subtests.test(factory=factory):
            monkeypatch.setenv("BRINELL_SHARED", str(shared))
            data = ImageFolder(path=str(shared / "imagenet_samples"))()
            measured = accuracy(
                root,
                data,
                "imagenet",
                factory,
                shared / "imagenet_weights" / f"{factory}.safetensors",
                range(0, 250, 10),
            )
            assert abs(measured - published) < 3 * (published * (1 - published) / 25) ** 0.5


def test_shapes_without_weights(root: Path, subtests: pytest.Subtests) -> None:
    rows = [("mnist", factory, (1, 28, 28)) for factory in ("lenet5", "cnn4")]
    rows += [
        ("cifar10", factory, (3, 32, 32))
        for factory in (
            "resnet20",
            "resnet32",
            "resnet44",
            "captum_cnn",
            "resnet2b",
            "resnet4b",
            "cnn_wide_kw",
        )
    ]
    for file, factory, shape in rows:
        with subtests.test(file=file):
            domain = Domain(kind="image", shape=shape, levels=256)
            with torch.random.fork_rng():
                model = TorchModule(path=f"{root / 'examples' / 'models' / file}.py:{factory}")(
                    domain
                )
            assert model.classes == 10 and model.name == factory


def test_a_graph_is_run_by_hand(root: Path) -> None:
    module = import_file(root / "examples" / "models" / "imagenet.py")
    graph = {
        "input_size": 2,
        "ops": [
            {"op": "pad", "input": "x", "output": "p", "pad": [1, 0, 0, 0]},
            {
                "op": "conv",
                "layer": "c",
                "input": "p",
                "output": "a",
                "stride": 1,
                "pad": [0, 0, 0, 1],
                "groups": 1,
                "act": "relu",
            },
            {"op": "add", "input": ["a", "a"], "output": "s", "act": "relu6"},
            {"op": "global_avg_pool", "input": "s", "output": "g"},
            {"op": "flatten", "input": "g", "output": "logits"},
        ],
    }
    net = module.GraphNet(graph, {"c.weight": (1, 1, 2, 2), "c.bias": (1,)})
    with torch.no_grad():
        net.c.weight.copy_(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
        net.c.bias.fill_(0.5)
        x = torch.tensor([[[[1.0, 0.5], [0.0, 1.0]]]])  # to 2 x - 1: [[1, 0], [-1, 1]]
        # Padded left and below: [[0, 1, 0], [0, -1, 1], [0, 0, 0]]. Convolved plus a half: [[-1.5,
        # 2.5], [-1.5, 1.5]]. relu, doubled, relu6: [[0, 5], [0, 3]]; mean 2.
        assert net(x).tolist() == [[2.0]]


def test_grey_images_are_not_taken_for_coloured(root: Path, subtests: pytest.Subtests) -> None:
    for file, factory in [
        ("cifar10", "resnet20"),
        ("cifar10", "cnn_wide_kw"),
        ("imagenet", "squeezenet1_0"),
    ]:
        with subtests.test(file=file):
            domain = Domain(kind="image", shape=(1, 32, 32), levels=256)
            with (
                torch.random.fork_rng(),
                pytest.raises(RequestError, match="images have 1 channels, not 3"),
            ):
                TorchModule(path=f"{root / 'examples' / 'models' / file}.py:{factory}")(domain)


@pytest.mark.parametrize(
    ("file", "published"), [("vit_pgd_2_3_16", 0.5978), ("vit_ibp_3_3_8", 0.6221)]
)
def test_a_transformer_out_of_onnx_answers_as_the_file_does(root, shared, file, published):
    """To 1e-5, and with the gradients that the file does not give."""
    onnxruntime = pytest.importorskip("onnxruntime")
    source = root / "examples" / "models" / "families.py"
    data = Npz(path=str(shared / "cifar10" / "cifar10_test.npz"))()
    module = import_file(source).vit_onnx(str(shared / "onnx" / f"{file}.onnx")).eval()
    x, labels = data.load(range(200)).requires_grad_(), torch.from_numpy(data.labels()[:200])
    answers = module(x)
    session = onnxruntime.InferenceSession(str(shared / "onnx" / f"{file}.onnx"))
    reference_logits = torch.from_numpy(
        session.run(None, {"input": module.normalise(x.detach()).numpy()})[0]
    )
    torch.testing.assert_close(answers.detach(), reference_logits, atol=1e-5, rtol=0)
    assert abs(float((answers.argmax(1) == labels).float().mean()) - published) < 0.1
    (gradient,) = torch.autograd.grad(answers.sum(), x)
    assert gradient.flatten(1).norm(dim=1).min() > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_family_learns(root, shared, tmp_path, monkeypatch, capsys):
    """Three seconds of the recipe of the mixer: far above chance on images that it never saw."""
    recipe = import_file(root / "examples" / "train_families.py")
    out = tmp_path / "mixer.safetensors"
    monkeypatch.setattr(
        "sys.argv",
        ["train", "mnist_mixer", str(shared / "mnist"), "--out", str(out), "--minutes", "0.05"],
    )
    recipe.main()
    assert float(capsys.readouterr().out.split("accuracy ")[1].split()[0]) > 0.5
    model = TorchModule(
        path=f"{root / 'examples' / 'models' / 'families.py'}:mnist_mixer", weights=str(out)
    )
    check_model(model(Domain(kind="image", shape=(1, 28, 28), low=0.0, high=1.0)))


def test_families_answer(root, subtests):
    for factory in [
        f"{data}_{kind}" for data in ("cifar10", "mnist") for kind in ("vit", "mixer", "mobile")
    ]:
        with subtests.test(factory=factory):
            shape = (3, 32, 32) if factory.startswith("cifar10") else (1, 28, 28)
            module = getattr(
                import_file(root / "examples" / "models" / "families.py"), factory
            )().eval()
            x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
            with torch.no_grad():
                torch.testing.assert_close(module(x)[:2], module(x[:2]))
