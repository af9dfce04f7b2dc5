"""`digits-cnn`: a small network for the `digits`, trained on their train split on first use.

Training takes some seconds and depends only on the recipe below. Weights and order of samples come
from a separate generator, and training uses one thread, because sums differ by the number of
threads (on busy cores two threads took 38 s and one took 3 s). The weights are stored as
safetensors in BRINELL_CACHE, or brinell/ in XDG_CACHE_HOME or ~/.cache. The network is trained
without any defence, so that a first audit shows a falling curve. Narrower, wider and retrained
networks serve to compare models: `digits-cnn?width=8`, `digits-cnn?seed=1`.
"""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.settings import Checked, Range, Whole
from brinell.core.splits import digits
from brinell.core.streams import initial
from brinell.core.user_files import cache_folder
from brinell.models._torch_model import TorchModel
from brinell.models._weights import load_weights_file

VERSION, PEAK_RATE, WEIGHT_DECAY, EPOCHS, BATCH_SIZE = 1, 0.01, 0.01, 12, 64
"""The recipe. A change of it, of the network or of the data takes another version, and so
another file in the cache."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DigitsCnn(Checked):
    """A small convolutional network for the digits, trained on first use."""

    path: str = ""
    """Must stay empty: the network has no file."""
    width: Annotated[int, Range("[1, 64]")] = 16
    """Channels of the first convolution; the second has twice as many, and the hidden layer four
    times."""
    seed: Whole = 0
    """Seed of the weights and the order of samples; a different seed gives the same network,
    retrained."""
    weights: str = ""
    """State dict used instead of the recipe's, as `brinell harden` writes it: .safetensors or
    .pt."""
    name: str = ""
    """Name in reports; by default digits-cnn with its deviations from the defaults, or the stem
    of the weights' file."""

    @property
    def display_name(self) -> str:
        """The name that was set, or digits-cnn with its deviations from the defaults."""
        if self.name or self.weights:
            return self.name or Path(self.weights).stem
        return (
            "digits-cnn"
            + f"-w{self.width}" * (self.width != 16)
            + f"-s{self.seed}" * (self.seed != 0)
        )

    def __call__(self, domain: Domain) -> TorchModel:
        """The network, with the weights of a file, from the cache, or newly trained."""
        if self.path:
            raise RequestError(
                f"digits-cnn takes no path (it was given {self.path!r}): write "
                "digits-cnn, or digits-cnn?width=8"
            )
        if domain.shape != (1, 8, 8) or (domain.low, domain.high) != (0, 1):
            raise RequestError(
                "digits-cnn takes images of shape (1, 8, 8) in [0, 1], not "
                f"{domain.shape}: audit it on "
                f"{option('data', 'digits')}"
            )

        # Trained weights are kept in the user's cache: the next run opens them.
        network = build(self.width, self.seed)
        if self.weights:
            load_weights_file(network, self.weights)
        else:
            self._train(network)
        return TorchModel(network.eval(), domain, 10, name=self.display_name)

    def _train(self, network: nn.Module) -> None:
        """Load the weights from the cache, or train the network and fill the cache."""
        file = cache_file(self.width, self.seed)
        if file.exists():
            try:
                load_weights_file(network, str(file))
                return
            except RequestError as error:
                _log.warning("%s cannot be read (%s): training digits-cnn again", file, error)

        # Sums of several threads are rounded differently on another machine.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            train(network, self.seed)
        finally:
            torch.set_num_threads(threads)
        _write_cache(network, file)


def build(width: int = 16, seed: int = 0) -> nn.Sequential:
    """The network with weights drawn from the recipe's generator.

    The global generator is not touched.
    """
    # Without values: drawing them here would move the global generator.
    with torch.device("meta"):
        network = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * width, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, 10),
        )

    initial(network, torch.Generator().manual_seed(seed))
    return network


def train(network: nn.Module, seed: int = 0) -> None:
    """Train by the recipe: cross-entropy, with AdamW.

    The learning rate rises for a fifth of the steps and then falls to zero.
    """
    images, labels = digits("train")
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    rng = torch.Generator().manual_seed(seed + 1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * -(-len(x) // BATCH_SIZE)
    step = 0

    with torch.enable_grad():
        for _ in range(EPOCHS):
            for rows in torch.split(torch.randperm(len(x), generator=rng), BATCH_SIZE):
                step += 1
                part = step / steps
                # Both lines reach 1 after a fifth of the steps, where the smaller one changes.
                optimizer.param_groups[0]["lr"] = PEAK_RATE * min(5 * part, 1.25 * (1 - part))
                optimizer.zero_grad()
                F.cross_entropy(network(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    for parameter in network.parameters():
        parameter.grad = None


def cache_file(width: int = 16, seed: int = 0) -> Path:
    """Cache file for the weights of a network."""
    return cache_folder() / f"digits-cnn-{VERSION}-w{width}-s{seed}.safetensors"


def _write_cache(network: nn.Module, file: Path) -> None:
    """Write the weights atomically. If the cache cannot be written, the next run trains again."""
    state = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    part = file.with_name(f"{file.stem}-{uuid4().hex}.part")

    try:
        # Under another name first: processes that train at the same time replace the file as a
        # whole.
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(state, part, {"torch": torch.__version__})
        os.replace(part, file)
    except (OSError, SafetensorError) as error:
        _log.warning(
            "%s cannot be written (%s): digits-cnn will be trained again next time", file, error
        )
    finally:
        with suppress(OSError):
            part.unlink()
