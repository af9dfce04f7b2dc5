"""`brinell plugins`: what can be named on the command line."""

import dataclasses
import inspect
from typing import Annotated

import typer

from brinell.cli.options import Json, show, show_json


def plugins(
    kind: Annotated[str | None, typer.Argument(help="attack, distance, dataset or target. Default: all.")] = None,
    json: Json = False,
) -> int:
    """List attacks, distances, data sets and targets with their settings."""
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
            rows.append({"kind": one, "name": name, "summary": summary, "settings": settings})
    if json:
        show_json({"plugins": rows})
        return 0
    for row in rows:
        show(f"{row['kind']:<9} {row['name']:<14} {row['summary']}")
        if row["settings"]:
            show(" " * 25 + ", ".join(f"{key}={value}" for key, value in row["settings"].items()))
    return 0
