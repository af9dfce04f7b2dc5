"""The plug-ins as a terminal shows it."""

import textwrap
from collections.abc import Iterator
from typing import Any

from brinell.studies.catalogue.run import CASCADE


def lines(found: Any) -> Iterator[str]:
    """The result line by line."""
    width = max((15, *(len(row.name) for row in found.plugins)))
    for row in found.plugins:
        yield f"{row.kind:<9} {row.name:<{width}} {row.summary}"
        if row.settings:
            yield " " * (width + 11) + ", ".join(f"{key}={value}" for key, value in row.settings.items())
    for row in found.cascades:
        also = f" (also {', '.join(row.also)})" if row.also else ""
        yield f"{CASCADE:<9} {row.name:<{width}} {row.summary[0].upper()}{row.summary[1:]}{also}."
        yield (
            textwrap.indent(
                textwrap.fill(", ".join(row.stages), 100, break_on_hyphens=False, break_long_words=False), " " * (width + 11)
            )
        )
