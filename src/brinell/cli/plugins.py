"""`brinell plugins`: what can be named on the command line."""

import dataclasses
import inspect
from typing import Annotated

import typer

from brinell.cli.options import Json, show, show_json


def plugins(
    kind: Annotated[
        str | None, typer.Argument(help="The kind: attack, distance, distortion, detector, dataset or model. Default: all.")
    ] = None,
    json: Json = False,
) -> int:
    """List attacks, distances, distortions, detectors, data sets and models with their settings."""
    from brinell import plugins as registry
    from brinell.core.errors import RequestError

    if kind is not None and kind not in registry.FOLDERS:
        raise RequestError(f"there is no kind {kind!r}{registry.nearest(kind, registry.FOLDERS)}: {', '.join(registry.FOLDERS)}")
    rows = []
    for one in [kind] if kind else registry.FOLDERS:
        for name in registry.names(one):
            plugin = registry.load(one, name)
            summary = (inspect.getdoc(plugin) or "").splitlines()[0]
            settings = {field.name: repr(field.default) for field in dataclasses.fields(plugin)}
            rows.append((one, name, summary, settings))
    if json:
        keys = ("kind", "name", "summary", "settings")
        show_json({"plugins": [dict(zip(keys, row, strict=True)) for row in rows]})
        return 0
    for one, name, summary, settings in rows:
        show(f"{one:<9} {name:<15} {summary}")
        if settings:
            show(" " * 26 + ", ".join(f"{key}={value}" for key, value in settings.items()))
    return 0
