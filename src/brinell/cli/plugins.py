"""`brinell plugins`: what can be named on the command line."""

import dataclasses
import inspect
import textwrap
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, answer, show

CASCADE = "cascade"


def plugins(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="The kind: attack, cascade, distance, distortion, defence, detector, explainer, dataset or model. Default: all."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """List attacks, cascades, distances, distortions, defences, detectors, explainers, data sets and models, with settings."""
    from brinell import plugins as registry
    from brinell.cli.schemas import CascadeAnswer, PluginAnswer, PluginsAnswer
    from brinell.core.errors import RequestError
    from brinell.engine.cascade import ABOUT, ALSO, CASCADES

    kinds = [*registry.FOLDERS, CASCADE]
    if kind is not None and kind not in kinds:
        raise RequestError(f"there is no kind {kind!r}{registry.nearest(kind, kinds)}: {', '.join(kinds)}")
    rows = []
    for one in [name for name in registry.FOLDERS if kind in (None, name)]:
        for name in registry.names(one):
            plugin = registry.load(one, name)
            summary = (inspect.getdoc(plugin) or "").splitlines()[0]
            settings = {field.name: repr(field.default) for field in dataclasses.fields(plugin)}
            rows.append(PluginAnswer(kind=one, name=name, summary=summary, settings=settings))
    cascades = [
        CascadeAnswer(name=name, also=tuple(also for also in ALSO if ALSO[also] == name), summary=ABOUT[name], stages=stages)
        for name, stages in CASCADES.items()
        if kind in (None, CASCADE)
    ]
    found = PluginsAnswer(plugins=tuple(rows), cascades=tuple(cascades))
    return answer(json, found, lambda: _show(found))


def _show(found: Any) -> None:
    width = max((15, *(len(row.name) for row in found.plugins)))
    for row in found.plugins:
        show(f"{row.kind:<9} {row.name:<{width}} {row.summary}")
        if row.settings:
            show(" " * (width + 11) + ", ".join(f"{key}={value}" for key, value in row.settings.items()))
    for row in found.cascades:
        also = f" (also {', '.join(row.also)})" if row.also else ""
        show(f"{CASCADE:<9} {row.name:<{width}} {row.summary[0].upper()}{row.summary[1:]}{also}.")
        show(
            textwrap.indent(
                textwrap.fill(", ".join(row.stages), 100, break_on_hyphens=False, break_long_words=False), " " * (width + 11)
            )
        )
