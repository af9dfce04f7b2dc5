"""The plug-ins that can be named, and the cascades of attacks."""

import textwrap
from collections.abc import Iterator

from brinell import plugins
from brinell.analysis.folder_result import Result
from brinell.core.errors import RequestError
from brinell.core.suggestions import suggestion
from brinell.engine.attack_names import ALIASES, CASCADE_DESCRIPTIONS, CASCADES
from brinell.studies.kit import Call

CASCADE = "cascade"


class PluginResult(Result):
    """One plug-in."""

    kind: str
    """attack, distance, distortion, defence, detector, explainer, dataset or model."""
    name: str
    """What to write on the command line."""
    summary: str
    """One sentence."""
    settings: dict[str, str]
    """Settings and their defaults, as Python writes them."""


class CascadeResult(Result):
    """Attacks in an order, under one name."""

    name: str
    """What to write after --attack."""
    also: tuple[str, ...]
    """Other names that mean the same."""
    summary: str
    """Purpose of the plug-in."""
    stages: tuple[str, ...]
    """The attacks with their exact settings, in order."""


class PluginsResult(Result):
    """What `brinell plugins --json` prints."""

    plugins: tuple[PluginResult, ...]
    """All of the kind asked for."""
    cascades: tuple[CascadeResult, ...]
    """The cascades, where they or all kinds were asked for."""

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line."""
        width = max((15, *(len(row.name) for row in self.plugins)))
        for row in self.plugins:
            yield f"{row.kind:<9} {row.name:<{width}} {row.summary}"
            if row.settings:
                yield " " * (width + 11) + ", ".join(f"{key}={value}" for key, value in row.settings.items())
        for cascade in self.cascades:
            also = f" (also {', '.join(cascade.also)})" if cascade.also else ""
            yield f"{CASCADE:<9} {cascade.name:<{width}} {cascade.summary[0].upper()}{cascade.summary[1:]}{also}."
            yield (
                textwrap.indent(
                    textwrap.fill(", ".join(cascade.stages), 100, break_on_hyphens=False, break_long_words=False),
                    " " * (width + 11),
                )
            )


def carry_out(call: Call) -> PluginsResult:
    """List the plug-ins of a kind, or of all."""
    kind: str | None = call.request.kind
    kinds = [*plugins.FOLDERS, CASCADE]
    if kind is not None and kind not in kinds:
        raise RequestError(f"there is no kind {kind!r}{suggestion(kind, kinds)}: {', '.join(kinds)}")
    rows = [_plugin(folder, name) for folder in plugins.FOLDERS if kind in (None, folder) for name in plugins.names(folder)]
    cascades = [
        CascadeResult(
            name=name,
            also=tuple(also for also in ALIASES if ALIASES[also] == name),
            summary=CASCADE_DESCRIPTIONS[name],
            stages=stages,
        )
        for name, stages in CASCADES.items()
        if kind in (None, CASCADE)
    ]
    return PluginsResult(plugins=tuple(rows), cascades=tuple(cascades))


def _plugin(kind: str, name: str) -> PluginResult:
    summary, settings = plugins.describe(kind, name)
    return PluginResult(kind=kind, name=name, summary=summary, settings=settings)
