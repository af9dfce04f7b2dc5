"""Classifiers of transformers (Hugging Face) as models: pictures prepared as their image processor says, waveforms as they are.

The preparation is done in torch, so that inputs stay in the bounds of the data and gradients reach them. What a processor does
that is not known here is refused by name: another preparation than the network was trained with gives other figures.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.models._prepared import Prepared, View
from brinell.models._torch_model import TorchModel

KNOWN = frozenset(
    "do_resize size resample do_center_crop crop_size crop_pct do_rescale rescale_factor do_normalize image_mean image_std "
    "do_flip_channel_order do_convert_rgb".split()
)
"""What is done here as a processor says it; anything else that it `do`es is refused."""
HARMLESS = frozenset({"do_convert_rgb", "do_reduce_labels"})
RESAMPLING = {2: "bilinear", 3: "bicubic"}
"""PIL's numbers."""


class PreparedWaves(nn.Module):
    """A feature extractor of waveforms in front of its network: (n, values) or (n, 1, values) to (n, classes)."""

    def __init__(self, network: nn.Module, normalise: bool) -> None:
        super().__init__()
        self.network, self.normalise = network, normalise

    def forward(self, x: Tensor) -> Any:
        """Take the channel away, bring each wave to mean 0 and variance 1 if asked, and ask the network."""
        x = x.squeeze(1) if x.ndim == 3 and x.shape[1] == 1 else x
        if self.normalise:
            x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-7).sqrt()
        return self.network(x)

    def extra_repr(self) -> str:
        """What is done to the waves, for the digest of the model."""
        return f"normalise={self.normalise}"


def is_processor(thing: Any) -> bool:
    """Whether this is an image processor or feature extractor of transformers."""
    return type(thing).__module__.startswith("transformers.") and callable(getattr(thing, "to_dict", None))


def is_pipeline(thing: Any) -> bool:
    """Whether this is a pipeline of transformers: a network with what prepares its inputs."""
    return hasattr(thing, "model") and (hasattr(thing, "image_processor") or hasattr(thing, "feature_extractor"))


def parts_of(pipeline: Any) -> tuple[nn.Module, Any]:
    """The network of a pipeline and what prepares its inputs."""
    return pipeline.model, getattr(pipeline, "image_processor", None) or getattr(pipeline, "feature_extractor", None)


def with_processor(network: nn.Module, processor: Any, domain: Domain, name: str) -> TorchModel:
    """A network behind the preparation that its processor states, if all of that is known here and fits the data."""
    said: Mapping[str, Any] = processor.to_dict()
    if said.get("image_mean") is None and "do_rescale" not in said and "size" not in said:
        return _waves(network, said, domain, name)
    if domain.kind != "image":
        raise RequestError(f"{name} takes pictures, and the data are {domain.kind}s of shape {domain.shape}")
    if unknown := [key for key, value in said.items() if key.startswith("do_") and value and key not in KNOWN | HARMLESS]:
        raise RequestError(
            f"the processor of {name} says {unknown[0]}, which is not known here: put it into a module of your own"
        )
    channels, height, width = domain.shape
    view = view_of(said, (height, width), channels, name)
    wanted = getattr(getattr(network, "config", None), "num_channels", channels)
    if channels not in (3, wanted):
        raise RequestError(
            f"{name} takes pictures of {wanted} channels, and the data have {channels}: give it x.repeat(1, 3, 1, 1)"
        )
    module = Prepared(network, view, height, width, "library")
    return TorchModel(module, domain, name=name, bounds=(0.0, 1.0), architecture=type(network).__name__)


def view_of(said: Mapping[str, Any], sides: tuple[int, int], channels: int, name: str) -> View:
    """The preparation that the settings of an image processor state, for pictures of these sides."""
    size, resized, scaling = sides, sides, "both"
    if said.get("do_resize"):
        resized, scaling = _resized(said, name)
        height, width = (int(resized[0] * side / min(sides)) for side in sides)
        size = (height, width) if scaling == "shorter" else resized
    if said.get("do_center_crop"):
        size = _sides(said.get("crop_size"), "crop_size", name)
    if said.get("crop_pct") and said.get("do_resize") and "shortest_edge" in dict(said["size"]):  # as ConvNeXt's does it
        short = int(dict(said["size"])["shortest_edge"])
        size, resized = (short, short), (short, short)
        scaling = "both" if short >= 384 else "shorter"
        if short < 384:
            resized = (int(short / said["crop_pct"]),) * 2
    factor = 255.0 * (float(said.get("rescale_factor") or 1 / 255) if said.get("do_rescale", True) else 1.0)
    if said.get("rescale_offset") or said.get("offset"):
        raise RequestError(f"the processor of {name} moves the pictures by an offset, which is not known here: do it in a module")
    mean, std = [0.0], [1.0]
    if said.get("do_normalize"):
        mean, std = _list(said.get("image_mean"), 0.0), _list(said.get("image_std"), 1.0)
    mean, std = (values * channels if len(values) == 1 else values for values in (mean, std))
    if not len(mean) == len(std) == channels:
        raise RequestError(f"the processor of {name} normalises {len(mean)} channels, and the data have {channels}")
    return View(
        size=size,
        resized=resized,
        scaling="shorter" if scaling == "shorter" else "both",
        mode=_mode(said.get("resample", 2), name) if said.get("do_resize") else "bilinear",
        mean=tuple(one / factor for one in mean),
        std=tuple(one / factor for one in std),
        reverse=bool(said.get("do_flip_channel_order")),
    )


def _resized(said: Mapping[str, Any], name: str) -> tuple[tuple[int, int], str]:
    size = said.get("size")
    if isinstance(size, Mapping) and "shortest_edge" in size and not size.get("longest_edge"):
        return (int(size["shortest_edge"]),) * 2, "shorter"
    return _sides(size, "size", name), "both"


def _sides(size: Any, what: str, name: str) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and size.get("height") and size.get("width"):
        return int(size["height"]), int(size["width"])
    raise RequestError(
        f"the processor of {name} states a {what} of {size}, which is not known here: resize the data, and give mean= and std="
    )


def _list(value: Any, default: float) -> list[float]:
    if value is None:
        return [default]
    return [float(value)] if isinstance(value, int | float) else [float(one) for one in value]


def _mode(resample: Any, name: str) -> str:
    number = int(getattr(resample, "value", resample))
    if number not in RESAMPLING:
        raise RequestError(f"the processor of {name} resizes by PIL's filter {number}; only bilinear and bicubic are known here")
    return RESAMPLING[number]


def _waves(network: nn.Module, said: Mapping[str, Any], domain: Domain, name: str) -> TorchModel:
    if said.get("num_mel_bins") or said.get("feature_size", 1) != 1:
        raise RequestError(
            f"the feature extractor of {name} makes spectrograms, which is not known here: give the features as data, without it"
        )
    if domain.kind not in ("signal", "vector") or (domain.kind == "signal" and domain.shape[0] != 1):
        raise RequestError(f"{name} takes waveforms of one channel, and the data are {domain.kind}s of shape {domain.shape}")
    module = PreparedWaves(network, bool(said.get("do_normalize")))
    return TorchModel(module, domain, name=name, architecture=type(network).__name__)


def bare(network: nn.Module, domain: Domain, name: str, **settings: Any) -> TorchModel:
    """A network without a processor, waves without the axis of their only channel; `settings` are those of `TorchModel`."""
    waves = getattr(network, "main_input_name", "") == "input_values" and domain.kind == "signal" and domain.shape[0] == 1
    module = PreparedWaves(network, False) if waves else network
    return TorchModel(module, domain, name=name, architecture=type(network).__name__, **settings)
