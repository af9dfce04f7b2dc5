"""`brinell plugins`: what can be named on the command line."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from brinell.cli.options import Json, answer, show


def plugins(
    kind: Annotated[
        str | None, typer.Argument(help="The kind: attack, distance, distortion, detector, dataset or model. Default: all.")
    ] = None,
    json: Json = False,
) -> int:
    """List attacks, distances, distortions, detectors, data sets and models with their settings."""
    from brinell import plugins as registry
    from brinell.cli.schemas import PluginAnswer, PluginsAnswer
    from brinell.core.errors import RequestError

    if kind is not None and kind not in registry.FOLDERS:
        raise RequestError(f"there is no kind {kind!r}{registry.nearest(kind, registry.FOLDERS)}: {', '.join(registry.FOLDERS)}")
    rows = []
    for one in [kind] if kind else registry.FOLDERS:
        for name in registry.names(one):
            plugin = registry.load(one, name)
            summary = (inspect.getdoc(plugin) or "").splitlines()[0]
            settings = {field.name: repr(field.default) for field in dataclasses.fields(plugin)}
            rows.append(PluginAnswer(kind=one, name=name, summary=summary, settings=settings))
    return answer(json, PluginsAnswer(plugins=tuple(rows)), lambda: _show(rows))


def _show(rows: Sequence[Any]) -> None:
    for row in rows:
        show(f"{row.kind:<9} {row.name:<15} {row.summary}")
        if row.settings:
            show(" " * 26 + ", ".join(f"{key}={value}" for key, value in row.settings.items()))
