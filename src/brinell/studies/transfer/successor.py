"""Data whose truth is more than a class: another study shows inputs to several models of them."""

from typing import Any

from brinell.engine.sources import has_truth


def verb_for(data: Any) -> str:
    """The verb that takes such data, a spec or a data set; empty if a transfer does."""
    return "dense-transfer" if has_truth(data) else ""
