"""The plug-ins that can be named, and the cascades of attacks."""

import textwrap
from collections.abc import Iterator

from brinell import plugins
from brinell.analysis.folder_result import Result
from brinell.core.errors import RequestError
from brinell.core.suggestions import suggestion
from brinell.engine.attack_names import ALIASES, CASCADE_DESCRIPTIONS, CASCADES
from brinell.reports.numbers import capital
from brinell.studies.kit import Call

CASCADE = "cascade"


class PluginResult(Result):
    """One plug-in, or a cascade of attacks."""

    kind: str
    """attack, cascade, distance, distortion, defence, detector, explainer, dataset or model."""
    name: str
    """What to write on the command line."""
    summary: str
    """One sentence."""
    settings: dict[str, str] = {}
    """Settings and their defaults, as Python writes them."""
    stages: tuple[str, ...] = ()
    """The attacks of a cascade with their exact settings, in order."""


class PluginsResult(Result):
    """What `brinell plugins --json` prints."""

    plugins: tuple[PluginResult, ...]
    """All of the kind asked for."""

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line."""
        width = max((15, *(len(row.name) for row in self.plugins)))
        for row in self.plugins:
            yield f"{row.kind:<9} {row.name:<{width}} {row.summary}"
            details = ", ".join(
                [*(f"{key}={value}" for key, value in row.settings.items()), *row.stages]
            )
            # The settings stand under the summary, behind kind, name and two blanks.
            text = textwrap.fill(details, 100, break_on_hyphens=False, break_long_words=False)
            yield from textwrap.indent(text, " " * (width + 11)).splitlines()


def carry_out(call: Call) -> PluginsResult:
    """List the plug-ins of a kind, or of all."""
    kind: str | None = call.request.kind
    kinds = [*plugins.FOLDERS, CASCADE]
    if kind is not None and kind not in kinds:
        raise RequestError(
            f"there is no kind {kind!r}{suggestion(kind, kinds)}: {', '.join(kinds)}"
        )

    rows = []
    # Cascades are no plug-ins: no folder holds them.
    for folder in plugins.FOLDERS if kind is None else {kind} - {CASCADE}:
        for name in plugins.names(folder):
            summary, settings = plugins.describe(folder, name)
            rows.append(PluginResult(kind=folder, name=name, summary=summary, settings=settings))

    for name, stages in CASCADES.items() if kind in (None, CASCADE) else ():
        also = ", ".join(alias for alias, meant in ALIASES.items() if meant == name)
        summary = f"{capital(CASCADE_DESCRIPTIONS[name])}{also and f' (also {also})'}."
        rows.append(PluginResult(kind=CASCADE, name=name, summary=summary, stages=stages))

    return PluginsResult(plugins=tuple(rows))
