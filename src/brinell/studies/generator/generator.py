"""A trained generator with its auxiliary classifier as a file: safetensors, with what they are and
how they were made.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from safetensors.torch import save
from torch import nn

from brinell.core import stored
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.manifest import Content, Count, DomainFacts, Listing, fault
from brinell.store.files import write_atomically
from brinell.studies.generator import TrainGeneratorRequest
from brinell.studies.generator.networks import Critic, Generator, fits

FORMAT = 1
"""Version of the file's layout."""


class Header(Content):
    """Header of the file: what the networks are, and how they were made."""

    format: Count = FORMAT
    """Version of the file's layout."""
    domain: DomainFacts
    """The space that the generator draws in."""
    classes: Listing[str]
    """Names of the classes."""
    latent: Annotated[int, Field(ge=2, le=4096)]
    """Length of the latent vector."""
    width: Annotated[int, Field(ge=2, le=1024)]
    """Channels of the thinner layers."""
    request: TrainGeneratorRequest
    data_digest: str
    """Hash of the content of the data."""


@dataclass(frozen=True, kw_only=True)
class GenerativeModel:
    """A generator of inputs by class, and the auxiliary classifier that recognises the class of an
    input.
    """

    generator: Generator
    classifier: Critic
    header: Header
    digest: str = ""
    """Hash of the file that it was read from."""

    @property
    def networks(self) -> nn.ModuleDict:
        """Both networks, as the file names their weights."""
        return nn.ModuleDict({"generator": self.generator, "classifier": self.classifier})

    def save(self, path: Path) -> None:
        """Write the file whole, in float16: half the size, and drawings that differ by less than a
        level of 8-bit pictures.
        """
        tensors = {
            name: (value.half() if value.is_floating_point() else value).detach().cpu().contiguous()
            for name, value in self.networks.state_dict().items()
        }
        content = save(tensors, {"brinell.generator": self.header.model_dump_json()})
        write_atomically(path, lambda temporary: temporary.write_bytes(content))

    def check(self, domain: Domain, classes: int) -> None:
        """Refuse data of other shapes, bounds, or number of classes."""
        own, names = self.generator.domain, self.header.classes
        if domain.text() != own.text() or classes != len(names):
            raise RequestError(
                f"the generator draws {own.kind}s of shape {own.shape} in "
                f"{len(names)} classes, and the data holds "
                f"{domain.kind}s of shape {domain.shape} in {classes}, or other "
                "bounds: train one on this data"
            )


def load(path: Path) -> GenerativeModel:
    """The generator that `GenerativeModel.save` wrote, in evaluation mode."""
    if not path.is_file():
        raise RequestError(
            f"there is no generator {str(path)!r}: brinell train generator --out {path} makes one"
        )
    try:
        texts, arrays, content = stored.read(path, 1 << 30)
        fields = json.loads(texts["brinell.generator"])
        version = fields["format"]
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        raise RequestError(
            f"{path} is no generator: name a file that brinell train generator wrote"
        ) from None
    if version != FORMAT:
        raise RequestError(
            f"{path} was written by another version of brinell: train it anew "
            "with brinell train generator"
        )
    try:
        if problem := fault(fields, Header):
            raise ValueError(problem)
        header = Header.model_validate(fields)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if not all(bool(torch.isfinite(values).all()) for values in tensors.values()):
            raise ValueError("it holds NaN or infinity")
        domain = Domain.from_json(header.domain.model_dump())
        classes = len(header.classes)
        if problem := fits(domain):
            raise ValueError(problem)
        with torch.device("meta"):  # no more is allocated than the file holds
            model = GenerativeModel(
                generator=Generator(domain, classes, latent=header.latent, width=header.width),
                classifier=Critic(domain, classes, width=header.width),
                header=header,
                digest=hashlib.blake2b(content, digest_size=16).hexdigest(),
            )

        state = {
            name: value.float() if value.is_floating_point() else value
            for name, value in tensors.items()
        }
        model.networks.eval().requires_grad_(False).load_state_dict(state, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"{path} is damaged ({one_line(error, 200)}): train it anew with "
            "brinell train generator"
        ) from None
    return model
