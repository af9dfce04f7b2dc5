"""Embedding: the distance between a network's embeddings of two inputs (`embedding:FILE`).

`brinell train metric` writes the file.

The distance is the Euclidean one between the embeddings of an input and of its clean version, and
eps is measured in it. Such a ball has no closed form: in pixels it may extend far along changes
that the network ignores, up to the bounds of the data. It suits gradient attacks, which only need a
projection into the ball.

Deviations from a projection:
- A point outside the ball takes up to four Newton steps along the gradient of its distance; if the
  embedding is a scaled copy of the input, one step ends at the nearest point of the ball. Bounds
  are kept after each step. A point that is still outside moves along the segment to its clean
  input, by bisection: the result is in ball and bounds, but not always the nearest point.
- Random starts are drawn in L2 at the scale of the file (the usual ratio of both distances) and
  then projected into the ball; the steepest step, too, is that of L2 at this scale. Attacks derive
  step sizes from eps, and the scale converts them to pixels.
- The ball is kept a ten-thousandth smaller than eps, since a float32 network answers slightly
  differently in another batch.

Passes of the embedding do not count as queries: the attacker has the file. They cost time, and
records count only passes of the model.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from brinell.core import bounded, norms, stored
from brinell.core.contracts import Domain, Streams
from brinell.core.errors import RequestError, one_line
from brinell.core.norms import per_sample
from brinell.core.torch_settings import float32_products
from brinell.distances import _embedding as embedding
from brinell.distances import _projections as projections
from brinell.manifest import Amount, Content, Count, Listing, Number, Size, fault

FORMAT = 1
MOST = 1 << 30
"""Bytes of a file at most."""
NEWTON = 4
BISECTIONS = 12
CLEARANCE = 1e-4
"""The share of eps that is kept clear."""
ROUNDING = 4e-6
"""The share of an embedding's length that float32 may be off."""
CHUNK = 128
"""Rows that the network sees at once."""


class _Shape(Content):
    """The space that inputs live in."""

    shape: Listing[Size]
    """The shape of one input."""


class _Header(Content):
    """Fields of the header, besides its format and kind."""

    layers: Listing[Listing[str | bool | Number | Listing[Count]]]
    """Each layer as its name and its numbers."""
    domain: _Shape
    """The space that inputs live in."""
    scale: Amount
    """The usual L2 distance of two inputs whose embeddings are 1 apart."""


class _Loaded(NamedTuple):
    network: nn.Module
    scale: float
    shape: tuple[int, ...] | None
    digest: str


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """L2 distance in a learned embedding, for pgd and apgd."""

    path: str = ""
    """The file of the network; none is the input itself, and the distance then L2."""

    name = "embedding"

    @cached_property
    def _loaded(self) -> _Loaded:
        """The network with its scale; the identity without a file."""
        if not self.path:
            return _Loaded(embedding.build([["flatten"]]), 1.0, None, "identity")
        return _load(Path(self.path))

    @property
    def scale(self) -> float:
        """Usual L2 distance of two inputs whose embeddings are 1 apart."""
        return self._loaded.scale

    def check(self, domain: Domain) -> None:
        """Refuse data that the file is not for."""
        if not self.path:
            raise RequestError(
                "the norm embedding names no file: write embedding:FILE, as "
                "brinell train metric wrote it"
            )

        # Its layers were learned on inputs of which every value changes.
        if not domain.is_free:
            raise RequestError(
                "an embedding sees whole inputs, and some columns or values of these "
                "are fixed: choose another norm"
            )

        if self._loaded.shape != domain.shape:
            raise RequestError(
                f"{self.path} embeds inputs of shape {self._loaded.shape}, and "
                f"these are {domain.shape}: train one on such data"
            )

    def digest(self) -> str:
        """Hash of the content of the file."""
        return self._loaded.digest

    def embed(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, dimensions), without gradients."""
        with torch.no_grad(), float32_products():
            return torch.cat([self._points(part) for part in torch.split(x, CHUNK)])

    def _points(self, x: Tensor) -> Tensor:
        """(n, dimensions): the embeddings of inputs (n, *shape)."""
        points: Tensor = self._loaded.network.to(x.device)(x)
        return points.flatten(1)

    def measure(self, x: Tensor, x0: Tensor) -> Tensor:
        """(n,): the distances of the embeddings."""
        return norms.l2(self.embed(x) - self.embed(x0))

    def into(self, x: Tensor, x0: Tensor, eps: Tensor, domain: Domain) -> Tensor:
        """Newton steps towards the ball, then bisection on the way to the clean input.

        The module says why.
        """
        centre = self.embed(x0)
        clearance = torch.maximum(CLEARANCE * eps, ROUNDING * norms.l2(centre))
        radius = (eps - clearance).clamp_min(0)
        x = x.clone()
        rows = torch.arange(len(x), device=x.device)

        for _ in range(NEWTON):
            points = x[rows]
            size, slope = self._slope(points, centre[rows])
            over = (size - radius[rows]).clamp_min(0)
            steep = norms.l2(slope).clamp_min(1e-12)
            # No step longer than the way to the clean input: where the slope is flat, Newton's
            # would lead anywhere.
            length = torch.minimum(over / steep, norms.l2(points - x0[rows]))
            following = domain.clamp(points - slope * per_sample(length / steep, slope))
            x[rows] = following
            rows = rows[(following != points).flatten(1).any(1)]
            if not len(rows):
                return x

        # For no Newton step at all; the segment to a clean input lies within the bounds.
        x[rows] = domain.clamp(x[rows])
        self._draw_back(x, x0, centre, radius, rows)
        return x

    def _draw_back(
        self, x: Tensor, x0: Tensor, centre: Tensor, radius: Tensor, rows: Tensor
    ) -> None:
        """Move those of `rows` that are outside of the ball towards their clean inputs, in `x`."""
        rows = rows[norms.l2(self.embed(x[rows]) - centre[rows]) > radius[rows]]
        if not len(rows):
            return

        clean = x0[rows]
        change = x[rows] - x0[rows]
        low = torch.zeros(len(rows), device=x.device)
        high = torch.ones(len(rows), device=x.device)

        # The distance in the embedding need not grow along the way; bisection ends inside in any
        # case.
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            points = self.embed(clean + per_sample(middle, change) * change)
            is_inside = norms.l2(points - centre[rows]) <= radius[rows]
            low = torch.where(is_inside, middle, low)
            high = torch.where(is_inside, high, middle)
        x[rows] = clean + per_sample(low, change) * change

    def _slope(self, x: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) distances from `centre` (n, dimensions), and their gradients (n, *shape) to `x`.

        They are 0 at distance 0.
        """
        sizes = []
        slopes = []
        with torch.enable_grad(), float32_products():
            for part, targets in zip(
                torch.split(x, CHUNK), torch.split(centre, CHUNK), strict=True
            ):
                leaf = part.detach().requires_grad_()
                points = self._points(leaf)
                gap = (points - targets).detach()
                size = norms.l2(gap)
                # The derivative of a length: along the gap over the length.
                length = (points * gap / size.clamp_min(1e-30)[:, None]).sum()
                (slope,) = torch.autograd.grad(length, leaf)
                sizes.append(size)
                slopes.append(slope)

        return torch.cat(sizes), torch.cat(slopes)

    # What a change alone says: the lengths of steps.

    def size(self, delta: Tensor) -> Tensor:
        """(n,): L2 over the scale, as far as such a change usually leads; it judges no success."""
        return norms.l2(delta) / self.scale

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Scaled back to that size where longer; `delta` is overwritten."""
        return projections.project_l2(delta, eps * self.scale, out=delta)

    def ascent(self, grad: Tensor) -> Tensor:
        """The gradient at that size 1."""
        return norms.steepest_l2(grad).mul_(self.scale)

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in L2, up to that size 1."""
        return norms.ball_l2(rng, shape).mul_(self.scale)

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform on the sphere of that size 1."""
        return norms.sphere_l2(rng, shape).mul_(self.scale)


def _load(file: Path) -> _Loaded:
    """The network of a file; refuses what is no embedding of this version."""
    if not file.is_file():
        raise RequestError(
            f"there is no file {file}: make it with brinell train metric --out {file}"
        )
    # Everything in the file is a stranger's claim until the network was built and asked.
    try:
        texts, arrays, content = stored.read(file, MOST)
        facts = json.loads(texts.get("brinell", "{}"))
    except (ValueError, OSError, RecursionError) as error:
        raise RequestError(
            f"{file} is damaged or no safetensors file ({one_line(error)}): make it anew"
        ) from None
    is_embedding = isinstance(facts, dict) and facts.get("kind") == "embedding"
    if not is_embedding or facts.get("format") != FORMAT:
        raise RequestError(
            f"{file} holds no embedding of this version: make it with brinell train metric"
        )

    try:
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        network = _network(facts, state)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"{file} holds another network than it says ({one_line(error)}): make it anew"
        ) from None
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    scale = float(facts["scale"])
    shape = tuple(facts["domain"]["shape"])
    return _Loaded(network.eval().requires_grad_(False), scale, shape, digest)


def _network(facts: dict[str, Any], state: dict[str, Tensor]) -> nn.Module:
    """The network of a header with its weights.

    Raises:
        ValueError: numbers that are not finite, or a header of another form.
        KeyError: a field is missing.
        TypeError: a field of another type.
        RuntimeError: weights of other layers.
    """
    problem = fault(facts, _Header)
    if problem:
        raise ValueError(problem)
    values = math.prod(facts["domain"]["shape"])
    if values > bounded.MOST_PIXELS:
        raise ValueError(f"inputs of {values} values")

    network = embedding.build(facts["layers"])
    network.load_state_dict(state, strict=True, assign=True)
    is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in state.values())
    if not (0 < float(facts["scale"]) < float("inf") and is_finite):
        raise ValueError("its numbers are not finite")

    # One question shows layers that do not fit each other, before an attack meets them.
    with torch.no_grad():
        network(torch.zeros(1, *facts["domain"]["shape"]))
    return network
