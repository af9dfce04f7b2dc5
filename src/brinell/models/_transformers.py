"""Classifiers of transformers (Hugging Face) as models: images prepared as their processor states,
waveforms unchanged.

The preparation runs in torch, so inputs stay in the bounds of the data and gradients reach them. A
setting of a processor that is not supported here is refused by name, because a preparation other
than that of the training gives different figures.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.models._class_order import names_of_config
from brinell.models._prepared import Prepared, Scaling, View
from brinell.models._torch_model import TorchModel

SUPPORTED = frozenset(
    "do_resize size resample do_center_crop crop_size crop_pct do_rescale "
    "rescale_factor do_normalize image_mean image_std "
    "do_flip_channel_order do_convert_rgb".split()
)
"""Settings of an image processor that are supported; any other setting `do_...` that is on is
refused."""
HARMLESS = frozenset({"do_convert_rgb", "do_reduce_labels"})
LARGE = 384
"""The shorter side, in pixels, from which on ConvNeXt's processor crops nothing."""
RESAMPLING = {2: "bilinear", 3: "bicubic"}
"""PIL's numbers."""


class PreparedWaves(nn.Module):
    """A waveform network behind its feature extractor: (n, values) to (n, classes)."""

    def __init__(self, network: nn.Module, normalise: bool) -> None:
        super().__init__()
        self.network, self.normalise = network, normalise

    def forward(self, x: Tensor) -> Any:
        """Remove the channel axis, scale each wave if `normalise` is set, and call the network.

        The scale is that of mean 0 and variance 1.
        """
        x = x.squeeze(1) if x.ndim == 3 and x.shape[1] == 1 else x
        # By transformers' own small number, so that a silent wave stays finite.
        if self.normalise:
            x = (x - x.mean(-1, keepdim=True)) / (
                x.var(-1, keepdim=True, unbiased=False) + 1e-7
            ).sqrt()
        return self.network(x)

    def extra_repr(self) -> str:
        """The preparation as text, for the digest of the model."""
        return f"normalise={self.normalise}"


def is_processor(candidate: Any) -> bool:
    """True if this is an image processor or feature extractor of transformers."""
    return type(candidate).__module__.startswith("transformers.") and callable(
        getattr(candidate, "to_dict", None)
    )


def is_pipeline(candidate: Any) -> bool:
    """True if this is a pipeline of transformers, which holds a network and its processor."""
    return hasattr(candidate, "model") and (
        hasattr(candidate, "image_processor") or hasattr(candidate, "feature_extractor")
    )


def unpack_pipeline(pipeline: Any) -> tuple[nn.Module, Any]:
    """The network of a pipeline and its processor."""
    return pipeline.model, getattr(pipeline, "image_processor", None) or getattr(
        pipeline, "feature_extractor", None
    )


def with_processor(network: nn.Module, processor: Any, domain: Domain, name: str) -> TorchModel:
    """A network behind the preparation of its processor.

    Settings that are not supported, or do not fit the data, are refused.
    """
    check_single_label(network, name)
    settings: Mapping[str, Any] = processor.to_dict()
    # Feature extractors of sound have none of the settings of pictures.
    if (
        settings.get("image_mean") is None
        and "do_rescale" not in settings
        and "size" not in settings
    ):
        return _waves(network, settings, domain, name)
    if domain.kind != "image":
        raise RequestError(
            f"{name} takes pictures, and the data are {domain.kind}s of shape {domain.shape}"
        )
    if unknown := [
        key
        for key, value in settings.items()
        if key.startswith("do_") and value and key not in SUPPORTED | HARMLESS
    ]:
        raise RequestError(
            f"the processor of {name} uses {unknown[0]}, which Brinell does not "
            "support: do it in your own module"
        )

    channels, height, width = domain.shape
    view = view_of(settings, (height, width), channels, name)
    # A processor repeats a grey picture; a network of one channel takes it as it is.
    expected_channels = getattr(getattr(network, "config", None), "num_channels", channels)
    if channels not in (3, expected_channels):
        raise RequestError(
            f"{name} takes pictures of {expected_channels} channels, and the data "
            f"have {channels}: give it x.repeat(1, 3, 1, 1)"
        )
    module = Prepared(network, view, height, width, "library")
    names, kind = names_of_config(network, name), type(network).__name__
    return TorchModel(
        module, domain, name=name, bounds=(0.0, 1.0), architecture=kind, class_names=names
    )


def view_of(settings: Mapping[str, Any], sides: tuple[int, int], channels: int, name: str) -> View:
    """The preparation in the settings of an image processor, for images with these sides."""
    size, resized, scaling = _resizing(settings, sides, name)
    if settings.get("rescale_offset") or settings.get("offset"):
        raise RequestError(
            f"the processor of {name} shifts the pictures by an offset, which "
            "Brinell does not support: do it in a module"
        )
    mean, std = _normalisation(settings, channels, name)

    # An enumeration of PIL in new versions, a number in old ones.
    filter_ = settings.get("resample", 2)  # PIL's number for bilinear
    resample = int(getattr(filter_, "value", filter_))
    if settings.get("do_resize") and resample not in RESAMPLING:
        raise RequestError(
            f"the processor of {name} resizes by PIL's filter {resample}; only "
            "bilinear and bicubic are supported"
        )
    return View(
        size=size,
        resized=resized,
        scaling=scaling,
        mode=RESAMPLING[resample] if settings.get("do_resize") else "bilinear",
        mean=mean,
        std=std,
        reverse=bool(settings.get("do_flip_channel_order")),
    )


def _resizing(
    settings: Mapping[str, Any], sides: tuple[int, int], name: str
) -> tuple[tuple[int, int], tuple[int, int], Scaling]:
    """The sides of the network's input, those of the resized image, and which of these count."""
    size = resized = sides
    scaling: Scaling = "both"
    if settings.get("do_resize"):
        edges: Any = settings.get("size")
        if _has_shortest_edge(edges):
            # The whole picture in its own proportions, as long as no crop follows.
            edge = int(edges["shortest_edge"])
            size = (int(edge * sides[0] / min(sides)), int(edge * sides[1] / min(sides)))
            resized = (edge, edge)
            scaling = "shorter"
        else:
            size = resized = _sides(edges, "size", name)
    if settings.get("do_center_crop"):
        size = _sides(settings.get("crop_size"), "crop_size", name)

    is_convnext = settings.get("crop_pct") and settings.get("do_resize")
    if is_convnext and "shortest_edge" in dict(settings["size"]):
        # ConvNeXt's processor stretches pictures to large inputs, and crops small ones.
        short = int(dict(settings["size"])["shortest_edge"])
        if short >= LARGE:
            return (short, short), (short, short), "both"
        return (short, short), (int(short / settings["crop_pct"]),) * 2, "shorter"
    return size, resized, scaling


def _has_shortest_edge(edges: Any) -> bool:
    """True if the shorter side of a picture decides to which size it is resized."""
    return isinstance(edges, Mapping) and "shortest_edge" in edges and not edges.get("longest_edge")


def _normalisation(
    settings: Mapping[str, Any], channels: int, name: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, for pictures from 0 to 1."""
    mean = [0.0]
    std = [1.0]
    if settings.get("do_normalize"):
        mean = _list(settings.get("image_mean"), default=0.0)
        std = _list(settings.get("image_std"), default=1.0)
    # One number is that of every channel.
    mean = mean * channels if len(mean) == 1 else mean
    std = std * channels if len(std) == 1 else std
    if not len(mean) == len(std) == channels:
        raise RequestError(
            f"the processor of {name} normalises {len(mean)} channels, and the data have {channels}"
        )

    # The processor takes bytes and scales them first; its numbers are for the scaled ones.
    factor = 255.0
    if settings.get("do_rescale", True):
        factor *= float(settings.get("rescale_factor") or 1 / 255)
    return tuple(value / factor for value in mean), tuple(value / factor for value in std)


def _sides(size: Any, setting: str, name: str) -> tuple[int, int]:
    """Height and width in a setting of a processor."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and size.get("height") and size.get("width"):
        return int(size["height"]), int(size["width"])
    raise RequestError(
        f"the processor of {name} states a {setting} of {size}, which is not "
        "supported: resize the data, and give mean= and std="
    )


def _list(value: Any, default: float) -> list[float]:
    """A setting of one or several numbers as a list."""
    if value is None:
        return [default]
    return [float(value)] if isinstance(value, int | float) else [float(number) for number in value]


def _waves(
    network: nn.Module, processor_settings: Mapping[str, Any], domain: Domain, name: str
) -> TorchModel:
    """A network of waveforms behind its feature extractor."""
    if processor_settings.get("num_mel_bins") or processor_settings.get("feature_size", 1) != 1:
        raise RequestError(
            f"the feature extractor of {name} makes spectrograms, which is not "
            "supported: give the features as data, without it"
        )
    if domain.kind not in ("signal", "vector") or (
        domain.kind == "signal" and domain.shape[0] != 1
    ):
        raise RequestError(
            f"{name} takes waveforms of one channel, and the data are "
            f"{domain.kind}s of shape {domain.shape}"
        )

    module = PreparedWaves(network, bool(processor_settings.get("do_normalize")))
    return TorchModel(
        module,
        domain,
        name=name,
        architecture=type(network).__name__,
        class_names=names_of_config(network, name),
    )


def check_single_label(network: nn.Module, name: str) -> None:
    """Refuse a network that was made for several labels per input."""
    if (
        getattr(getattr(network, "config", None), "problem_type", None)
        == "multi_label_classification"
    ):
        raise RequestError(
            f"{name} is a multi-label model (problem_type), and several labels "
            "per input are not supported: audit one label at a "
            "time, by a function or module that answers the score of that label "
            "alone, with 0 and 1 as classes"
        )


def without_processor(network: nn.Module, domain: Domain, name: str, **settings: Any) -> TorchModel:
    """A network without a processor; one-channel waves lose their channel axis.

    `settings` are those of `TorchModel`.
    """
    check_single_label(network, name)
    waves = (
        getattr(network, "main_input_name", "") == "input_values"
        and domain.kind == "signal"
        and domain.shape[0] == 1
    )
    module = PreparedWaves(network, normalise=False) if waves else network
    names, kind = names_of_config(network, name), type(network).__name__
    return TorchModel(module, domain, name=name, architecture=kind, class_names=names, **settings)
