"""A trained generator with its auxiliary classifier as a file: safetensors, with what they are and how they were made."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from safetensors.torch import save
from torch import Tensor, nn

from brinell.core import stored
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.manifest import Content, Count, DomainFacts, Facts, Listing, fault
from brinell.store.files import write_atomically
from brinell.studies.generator import TrainGeneratorRequest
from brinell.studies.generator.networks import Classifier, Generator, fits

FORMAT = 1
"""Version of the file's layout."""
MOST = 1 << 30
"""Bytes of the file at most."""


class GeneratorFacts(Facts):
    """Facts that the request leaves open."""

    data_digest: str
    """Hash of the content of the data."""
    samples: Count
    """Inputs that the networks learned from."""
    steps: Count
    """Updates of both networks."""
    latent: Annotated[int, Field(ge=2, le=4096)]
    """Length of the latent vector."""
    width: Annotated[int, Field(ge=2, le=1024)]
    """Channels of the thinner layers."""


class Header(Content):
    """Header of the file."""

    format: Count
    """Version of the file's layout."""
    domain: DomainFacts
    """The space that the generator draws in."""
    classes: Listing[str]
    """Names of the classes."""
    request: TrainGeneratorRequest
    facts: GeneratorFacts


@dataclass(frozen=True, kw_only=True)
class GenerativeModel:
    """A generator of inputs by class, and the auxiliary classifier that recognises the class of an input."""

    generator: Generator
    classifier: Classifier
    domain: Domain
    classes: tuple[str, ...]
    request: TrainGeneratorRequest
    facts: GeneratorFacts

    @property
    def networks(self) -> nn.ModuleDict:
        """Both networks, as the file names their weights."""
        return nn.ModuleDict({"generator": self.generator, "classifier": self.classifier})

    def save(self, path: Path) -> None:
        """Write the file whole, in float16: half the size, and drawings that differ by less than a level of 8-bit pictures."""
        tensors = {
            name: (value.half() if value.is_floating_point() else value).detach().cpu().contiguous()
            for name, value in self.networks.state_dict().items()
        }
        header = {
            "format": FORMAT,
            "domain": self.domain.to_json(),
            "classes": list(self.classes),
            "request": self.request.model_dump(mode="json"),
            "facts": self.facts.model_dump(),
        }
        content = save(tensors, {"brinell.generator": json.dumps(header)})
        write_atomically(path, lambda temporary: temporary.write_bytes(content))

    def digest(self) -> str:
        """A hash of all that its drawings and answers depend on."""
        hashed = hashlib.blake2b(f"{FORMAT} {self.domain.text()}".encode(), digest_size=16)
        for name, value in self.networks.state_dict().items():
            hashed.update(name.partition(".")[2].encode() + value.detach().cpu().contiguous().numpy().tobytes())
        return hashed.hexdigest()

    def check(self, domain: Domain, classes: int) -> None:
        """Refuse data of other shapes, bounds, or number of classes."""
        if domain.text() != self.domain.text() or classes != len(self.classes):
            raise RequestError(
                f"the generator draws {self.domain.kind}s of shape {self.domain.shape} in {len(self.classes)} classes, and the "
                f"data holds {domain.kind}s of shape {domain.shape} in {classes}, or other bounds: train one on this data"
            )


def load(path: Path) -> GenerativeModel:
    """The generator that `GenerativeModel.save` wrote, in evaluation mode."""
    if not path.is_file():
        raise RequestError(f"there is no generator {str(path)!r}: brinell train generator --out {path} makes one")
    try:
        texts, arrays, _ = stored.read(path, MOST)
        header = json.loads(texts["brinell.generator"])
        version = header["format"]
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        raise RequestError(f"{path} is no generator: name a file that brinell train generator wrote") from None
    if version != FORMAT:
        raise RequestError(f"{path} was written by another version of brinell: train it anew with brinell train generator")
    try:
        if problem := fault(header, Header):
            raise ValueError(problem)
        return _assemble(Header.model_validate(header), {name: torch.from_numpy(array) for name, array in arrays.items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RequestError(f"{path} is damaged ({one_line(error, 200)}): train it anew with brinell train generator") from None


def _assemble(header: Header, tensors: dict[str, Tensor]) -> GenerativeModel:
    """The networks of a file, with their weights."""
    if not all(bool(torch.isfinite(values).all()) for values in tensors.values()):
        raise ValueError("it holds NaN or infinity")
    domain, classes, facts = Domain.from_json(header.domain.model_dump()), tuple(header.classes), header.facts
    if problem := fits(domain):
        raise ValueError(problem)
    with torch.device("meta"):  # no more is allocated than the file holds
        model = GenerativeModel(
            generator=Generator(domain, len(classes), latent=facts.latent, width=facts.width),
            classifier=Classifier(domain, len(classes), width=facts.width),
            domain=domain,
            classes=classes,
            request=header.request,
            facts=facts,
        )
    state = {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    model.networks.eval().requires_grad_(False).load_state_dict(state, assign=True)
    return model
