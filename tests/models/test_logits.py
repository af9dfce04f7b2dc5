"""Logits of any type: float32 behind a model, with the same leading class, and the same figures of
an audit.
"""

import torch
from torch import Tensor, nn

import brinell
from brinell.core.domain import Domain
from brinell.core.model import Access, ModelInfo, as_logits, ask
from brinell.inputs import models_of

TYPES = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
X = torch.rand(12, 6, generator=torch.Generator().manual_seed(0))


def linear() -> nn.Linear:
    layer = nn.Linear(6, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(3, 6, generator=torch.Generator().manual_seed(1)))
        layer.bias.zero_()
    return layer


class Cast(nn.Module):
    """A network of float32 that answers with another type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.dtype = linear(), dtype

    def forward(self, x: Tensor) -> Tensor:
        logits = self.layer(x)
        if self.dtype.is_floating_point:
            return logits.to(self.dtype)
        return (
            logits - logits.amin() > 1
            if self.dtype == torch.bool
            else (20 * (logits - logits.amin())).clamp_max(100)
        ).to(self.dtype)


class Own:
    """A model of the user's own class."""

    name, domain, classes, access, info = (
        "own",
        Domain(kind="vector", shape=(6,)),
        3,
        Access.GRADIENTS,
        ModelInfo(),
    )

    def __init__(self, dtype: torch.dtype) -> None:
        self.network = Cast(dtype)

    def predict(self, x: Tensor) -> Tensor:
        return self.network(x)

    def digest(self) -> str:
        return "own"


def test_logits_of_any_type_are_float32_with_the_same_leader() -> None:
    data = brinell.data(X, linear()(X).argmax(1))
    models = {
        "module": Cast,
        "own": Own,
        "function": lambda dtype: Cast(dtype).forward,
        "network": lambda dtype: linear().to(dtype),
    }
    for name, make in models.items():
        for dtype in TYPES if name != "network" else (torch.float64, torch.float16):
            (model,) = models_of(make(dtype), data, "")
            logits = ask(model, X)
            assert logits.dtype == torch.float32
            reference = linear()(X) if name == "network" else Cast(dtype)(X).float()
            assert torch.allclose(logits, reference, atol=2e-3) or dtype == torch.bool
            assert torch.equal(logits.argmax(1), reference.argmax(1))


def test_the_leading_class_of_random_logits_stays() -> None:
    for scale in [1e-12, 1.0, 1e30, 1e300]:
        for dtype in TYPES:
            rng = torch.Generator().manual_seed(2)
            close = 1 + 1e-12 * torch.randn(500, 4, generator=rng, dtype=torch.float64)
            values = (
                torch.cat([torch.randn(500, 4, generator=rng, dtype=torch.float64), close, -close])
                * scale
            )
            if not dtype.is_floating_point:
                values = torch.randint(-(2**22), 2**22, values.shape, generator=rng)
                values = torch.cat([values, values % 3 + 2**60])
            answer = values.to(dtype)
            logits = as_logits(answer)
            leaders = (answer.long() if dtype == torch.bool else answer).argmax(1)
            assert logits.dtype == torch.float32 and torch.equal(logits.argmax(1), leaders)
            assert torch.isfinite(logits).all() == torch.isfinite(answer.double()).all()
