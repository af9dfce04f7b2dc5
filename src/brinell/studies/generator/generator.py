"""A trained generator with its auxiliary classifier as a file: safetensors, with what they are and how they were made."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors.torch import save
from torch import Tensor, nn

from brinell.core import stored
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.manifest import LONGEST, Content, Count, DomainFacts, Listing, Size, fault
from brinell.store.files import write_atomically
from brinell.studies.generator.networks import Classifier, Generator, fits

FORMAT = 1
"""Version of the file's layout."""
MOST = 1 << 30
"""Bytes of the file at most."""


class Architecture(Content):
    """Architecture of the networks."""

    latent: Size
    """Values of the latent."""
    width: Annotated[int, Field(ge=2, le=LONGEST)]
    """Width of the networks."""


class Header(Content):
    """Header of the file."""

    format: Count
    """The version of the file's layout."""
    architecture: Architecture
    """Architecture of the networks."""
    domain: DomainFacts
    """The space that the generator draws in."""
    classes: Listing[str]
    """The names of the classes."""
    about: dict[str, Any]
    """How the networks were trained."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A generator of inputs by class, and the auxiliary classifier that recognises the class of an input."""

    generator: Generator
    classifier: Classifier
    domain: Domain
    classes: tuple[str, ...]
    about: dict[str, Any]
    """How it was made: whatever JSON can hold."""

    def save(self, path: Path) -> None:
        """Write the file whole, in float16: half the size, and drawings that differ by less than a level of 8-bit pictures."""
        tensors = {
            f"{part}.{name}": value.detach().cpu().contiguous().to(torch.float16 if value.is_floating_point() else value.dtype)
            for part, module in (("generator", self.generator), ("classifier", self.classifier))
            for name, value in module.state_dict().items()
        }
        domain = self.domain
        head = {
            "format": FORMAT,
            "architecture": {"latent": self.generator.latent, "width": self.generator.width},
            "domain": {name: getattr(domain, name) for name in ("kind", "shape", "low", "high", "levels")},
            "classes": list(self.classes),
            "about": self.about,
        }
        write_atomically(path, lambda temporary: temporary.write_bytes(save(tensors, {"brinell.generator": json.dumps(head)})))

    def digest(self) -> str:
        """A hash of all that its drawings and answers depend on."""
        hashed = hashlib.blake2b(f"{FORMAT} {self.domain.text()}".encode(), digest_size=16)
        for module in (self.generator, self.classifier):
            for name, value in module.state_dict().items():
                hashed.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
        return hashed.hexdigest()

    def check(self, domain: Domain, classes: int) -> None:
        """Refuse data of another space.

        Raises:
            RequestError: other shapes, bounds, or number of classes.
        """
        if domain.text() != self.domain.text() or classes != len(self.classes):
            raise RequestError(
                f"the generator draws {self.domain.kind}s of shape {self.domain.shape} in {len(self.classes)} classes, and the "
                f"data holds {domain.kind}s of shape {domain.shape} in {classes}, or other bounds: train one on this data"
            )


def load(path: Path) -> Kept:
    """The generator that `Kept.save` wrote, in evaluation mode.

    Raises:
        RequestError: no such file, not one of ours, damaged, or of another version.
    """
    if not path.is_file():
        raise RequestError(f"there is no generator {str(path)!r}: brinell train-generator --out {path} makes one")
    try:
        told, arrays, _ = stored.read(path, MOST)
        head = json.loads(told["brinell.generator"])
        version = head["format"]
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        raise RequestError(f"{path} is no generator: name a file that brinell train-generator wrote") from None
    if version != FORMAT:
        raise RequestError(f"{path} was written by another version of brinell: train it anew with brinell train-generator")
    try:
        if why := fault(head, Header):
            raise ValueError(why)
        return _assembled(head, {name: torch.from_numpy(array) for name, array in arrays.items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RequestError(f"{path} is damaged ({one_line(error, 200)}): train it anew with brinell train-generator") from None


def _assembled(head: dict[str, Any], tensors: dict[str, Tensor]) -> Kept:
    """The networks of a file, with their weights."""
    if not all(bool(torch.isfinite(values).all()) for values in tensors.values()):
        raise ValueError("it holds NaN or infinity")
    held: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in head["domain"].items()}
    domain, classes = Domain(**held), tuple(map(str, head["classes"]))
    if why := fits(domain):
        raise ValueError(why)
    latent, width = int(head["architecture"]["latent"]), int(head["architecture"]["width"])
    with torch.device("meta"):  # no more is allocated than the file holds
        generator = Generator(domain, len(classes), latent=latent, width=width)
        classifier = Classifier(domain, len(classes), width=width)
    parts: dict[str, nn.Module] = {"generator": generator, "classifier": classifier}
    for name, module in parts.items():
        own = {key.partition(".")[2]: value for key, value in tensors.items() if key.partition(".")[0] == name}
        state = {key: value.float() if value.is_floating_point() else value for key, value in own.items()}
        module.load_state_dict(state, assign=True)
        module.eval().requires_grad_(False)
    return Kept(generator=generator, classifier=classifier, domain=domain, classes=classes, about=dict(head["about"]))
