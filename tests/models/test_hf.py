"""Classifiers of transformers, built from their configs: the same answers as behind their own
processors. Nothing is fetched.
"""

import itertools
import json

import numpy as np
import PIL.Image
import pytest
import torch

import brinell
from _lazy import library
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.inputs import models_of
from brinell.models._transformers import view_of, with_processor
from brinell.models.hf import HuggingFace
from brinell.testing import check_model

transformers = library("transformers")

PICTURE = (np.kron(np.random.default_rng(0).random((6, 7, 3)), np.ones((8, 8, 1))) * 255).astype(
    np.uint8
)
X = torch.from_numpy(PICTURE).permute(2, 0, 1)[None].float() / 255
IMAGE = Domain(kind="image", shape=(3, 48, 56), levels=256)
WAVE = Domain(kind="signal", shape=(1, 400), low=-1.0, high=1.0)


@pytest.fixture(scope="module")
def vit():
    with torch.random.fork_rng():
        torch.manual_seed(0)  # noqa: TID251
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=32,
            patch_size=8,
            num_labels=4,
        )
        return transformers.ViTForImageClassification(config).eval()


def test_pictures_are_prepared_as_the_processor_does_it():
    rows = [
        ("ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
        (
            "ViTImageProcessor",
            {"size": {"height": 32, "width": 32}, "resample": 3, "image_mean": [0.3, 0.5, 0.6]},
        ),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 32}}),
        (
            "MobileViTImageProcessor",
            {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}},
        ),
    ]
    for kind, settings in rows:

        class EchoNetwork(torch.nn.Module):
            """Answers with what it is shown."""

            def forward(self, x):
                return x.flatten(1)

        processor = getattr(transformers, kind)(**settings)
        expected = processor(images=PIL.Image.fromarray(PICTURE), return_tensors="pt")[
            "pixel_values"
        ].flatten(1)
        features = with_processor(EchoNetwork(), processor, IMAGE, "net").predict(X)
        # Libraries round resized pictures to bytes, and cut off at the bounds what bicubic
        # overshoots.
        assert (
            features.shape == expected.shape
            and (features - expected).abs().quantile(0.99) < 0.025
            and (features - expected).abs().max() < 0.3
        )
        assert expected.std() > 0.2


def test_a_folder(tmp_path, vit):
    vit.save_pretrained(tmp_path)
    with pytest.raises(RequestError, check=refused("models.hf.HuggingFace._processor")):
        HuggingFace(path=str(tmp_path))(IMAGE)
    small = Domain(kind="image", shape=(3, 32, 32))
    bare = HuggingFace(path=str(tmp_path), processor=False)(small)
    with torch.no_grad():
        assert torch.allclose(
            bare.predict(torch.ones(1, 3, 32, 32)), vit(torch.ones(1, 3, 32, 32)).logits, atol=1e-6
        )
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    model = HuggingFace(path=str(tmp_path), name="mine")(IMAGE)
    check_model(model)
    assert model.classes == 4 and model.name == "mine"
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ViTModel"]}))
    with pytest.raises(RequestError, match="holds ViTModel, and no image or audio classifier"):
        HuggingFace(path=str(tmp_path))(IMAGE)


def test_a_processor_that_does_more():
    rows = [
        ({"do_resize": True, "size": {"longest_edge": 5, "shortest_edge": 3}}, "states a size of"),
        ({"do_resize": True, "size": 8, "resample": 0}, "PIL's filter 0"),
        (
            {"do_normalize": True, "image_mean": [0.1, 0.2], "image_std": [1, 1]},
            "normalises 2 channels, and the data have 3",
        ),
        ({"rescale_offset": True}, "by an offset"),
    ]
    for settings, words in rows:
        with pytest.raises(RequestError, match=words):
            view_of(settings, (8, 8), 3, "net")


def test_waves():
    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        num_labels=3,
    )
    network = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    extractor = transformers.Wav2Vec2FeatureExtractor()
    x = torch.linspace(-1, 1, 400).reshape(1, 1, 400)
    features = extractor(x[0, 0].numpy(), sampling_rate=16000, return_tensors="pt")["input_values"]
    with torch.no_grad():
        expected = network(features).logits
        assert torch.allclose(
            with_processor(network, extractor, WAVE, "w").predict(x), expected, atol=1e-5
        )
    with pytest.raises(RequestError, match="makes spectrograms"):
        with_processor(network, transformers.WhisperFeatureExtractor(), WAVE, "w")


def test_in_memory_with_processor_or_pipeline(tmp_path, vit):
    pictures = np.stack([PICTURE, PICTURE[::-1].copy(), 255 - PICTURE])
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    with torch.no_grad():
        y = vit(
            processor(
                images=[PIL.Image.fromarray(picture) for picture in pictures], return_tensors="pt"
            )["pixel_values"]
        ).logits.argmax(1)
    quick = {"eps": 0.1, "attack": "fgsm"}
    result = brinell.audit(vit, (pictures, y), preprocessing=processor, out=tmp_path / "a", **quick)
    assert result.models[0].clean_accuracy.value == 1
    data = brinell.data(pictures, y)
    pipe = transformers.pipeline("image-classification", model=vit, image_processor=processor)
    (first,) = models_of(vit, data, "", preprocessing=processor)
    (second,) = models_of({"pipe": pipe}, data, "")
    x = data.load(range(3))
    assert torch.equal(first.predict(x), second.predict(x)) and second.name == "pipe"


CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
class Config(ViTConfig):
    model_type = {kind!r}
class Net(ViTForImageClassification):
    config_class = Config
class Processor(ViTImageProcessor):
    pass
"""


def test_code_in_a_folder_neither_runs_nor_is_asked_about(tmp_path, vit, monkeypatch):
    """`auto_map` names Python of the folder, for which transformers would ask y or n on standard
    input."""
    monkeypatch.setattr("builtins.input", lambda *words: pytest.fail("standard input was read"))
    mark, auto_map = (
        tmp_path / "mark",
        {"AutoConfig": "Config", "AutoModelForImageClassification": "Net"},
    )
    auto_map = {
        name: f"code.{kind}"
        for name, kind in (auto_map | {"AutoImageProcessor": "Processor"}).items()
    }
    for number, (name, kind) in enumerate(
        itertools.product(["config.json", "preprocessor_config.json"], ["vit", "a-kind-of-its-own"])
    ):
        folder = tmp_path / str(number)
        vit.save_pretrained(folder)
        transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
        (folder / "code.py").write_text(CODE.format(mark=str(mark), kind=kind))
        facts = json.loads((folder / name).read_text()) | {"auto_map": auto_map}
        facts |= (
            {"model_type": kind} if name == "config.json" else {"image_processor_type": "Processor"}
        )
        (folder / name).write_text(json.dumps(facts))
        try:
            assert (
                HuggingFace(path=str(folder))(IMAGE).classes == 4
            )  # by the classes of transformers
        except RequestError as error:
            assert (
                "\n" not in str(error)
                and "cannot be opened" in str(error)
                or "has no processor" in str(error)
            )
        assert not mark.exists()


@pytest.mark.parametrize("absent", [True, False])
def test_a_name_without_a_folder_asks_the_hub_once(tmp_path, monkeypatch, absent):
    """One request, a refusal in one line, and no retry by transformers; a repository in the cache
    is opened from there.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    requests = []

    def answer(*arguments, **options):
        """A Hub without the repository, or out of reach."""
        requests.append(options["timeout"])
        if absent:
            raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)
        raise ConnectionError("no route")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", answer)
    monkeypatch.setattr(
        "transformers.AutoConfig.from_pretrained",
        lambda *arguments, **options: pytest.fail("fetched"),
    )
    reason = "has no such repository" if absent else r"cannot be reached \(ConnectionError\)"
    with pytest.raises(RequestError, match=f"there is no such folder, .* Hub {reason}") as failure:
        HuggingFace(path="nofolder")(IMAGE)
    assert "\n" not in str(failure.value) and len(requests) == 1 and requests[0] <= 2
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache", lambda *arguments, **options: "config.json"
    )
    assert not HuggingFace(path="nofolder")._is_on_hub()
