"""A zoo of broken defences, each with the model that an adaptive attacker would attack:
`ZOO["jpeg"].build()`.

`python -m benchmarks.defences` audits them and compares the headline with the truth.
"""

from benchmarks.zoo import (
    accidents,
    gains,
    gradients,
    inputs,
    inside,
    masks,
    outputs,
    plateaus,
    raised,
    shown,
    stores,
    trained,
)
from benchmarks.zoo.base import Base, load
from benchmarks.zoo.pair import ZOO, Defence, Pair

__all__ = [
    "ZOO",
    "Base",
    "Defence",
    "Pair",
    "accidents",
    "gains",
    "gradients",
    "inputs",
    "inside",
    "load",
    "masks",
    "outputs",
    "plateaus",
    "raised",
    "shown",
    "stores",
    "trained",
]
