"""A zoo of broken defences, each beside the model that an adaptive attacker would attack: `ZOO["jpeg"].build()`.

`python -m benchmarks.defences` audits them and compares the headline with the truth.
"""

from benchmarks.defences import gradients, inputs, inside, outputs, trained
from benchmarks.defences.base import Base, load
from benchmarks.defences.pair import ZOO, Defence, Pair

__all__ = ["ZOO", "Base", "Defence", "Pair", "gradients", "inputs", "inside", "load", "outputs", "trained"]
