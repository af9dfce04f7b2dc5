"""Libraries of networks by the names of their networks: read from their source, so that neither they nor torch are imported."""

import re
from importlib.util import find_spec
from pathlib import Path

LIBRARIES = ("timm", "torchvision")
"""Libraries whose models have plug-ins of the same name."""
FAMILIES = re.compile(
    r"(alexnet|beit|cait|convnext|deit|densenet|dpn|efficientnet|inception|levit|maxvit|mixer|mobilenet|mobilevit|nfnet|regnet"
    r"|repvgg|res2net|resnest|resnet|resnext|rexnet|seresnet|squeezenet|swin|vgg|vit|wide_resnet|xception)[a-z]*[_0-9][\w.]*"
)
"""Names of well-known networks, for a system on which no library is installed."""
TORCHVISION = re.compile(
    r"alexnet|googlenet|squeezenet\d.*|shufflenet_v2.*|vit_[blh]_\d+|mobilenet_v\d.*|regnet_[xy]_.*|swin_v2_[tsb]"
)
"""Names that torchvision has and timm has not."""


def network_library(name: str) -> str:
    """The library that has a network of this name, by its installed source or a well-known family; empty for other names."""
    base = name.partition(".")[0]
    if not re.fullmatch(r"[a-z]\w*", base):
        return ""
    installed = [library for library in LIBRARIES if _defines(library, base)]
    if installed:
        return installed[0]
    if TORCHVISION.fullmatch(name):
        return "torchvision"
    return "timm" if FAMILIES.fullmatch(name) else ""


def _defines(library: str, name: str) -> bool:
    """True if a file of a library's models defines a function of this name."""
    spec = find_spec(library)
    folders = spec.submodule_search_locations or () if spec else ()
    definition = f"\ndef {name}(".encode()
    return any(definition in file.read_bytes() for folder in folders for file in Path(folder, "models").rglob("[a-z]*.py"))
