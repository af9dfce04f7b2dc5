"""Words of earlier versions that people may still write. None of them is accepted; whoever writes one is told the new word."""

from collections.abc import Container
from typing import Any

RENAMED = {
    "advised": "recommended",
    "filter": "distortion",
    "filters": "distortions",
    "flip": "adversarial",
    "stored": "quantised",
    "target": "model",
    "targets": "models",
}
"""Old word to new word: options and their values, keys, kinds of plugins."""


def renamed(word: str, known: Container[Any] | None = None) -> str:
    """The new word for an old one, where it is among `known`; empty where there is none."""
    new = RENAMED.get(word, "")
    return new if known is None or new in known else ""
