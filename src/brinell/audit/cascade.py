"""Stages: attacks with their settings, and the orders in which they run."""

from dataclasses import asdict, dataclass
from typing import Any

from brinell import plugins
from brinell.core.contracts import Attack
from brinell.core.errors import RequestError

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "apgd-ce": ("apgd", {"loss": "ce"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "bim": ("pgd", {"random_start": False}),
}
"""Names that the field uses for one attack with certain settings."""

DEFAULT = ("apgd-ce", "apgd-dlr")
"""What runs when nothing is asked for."""


@dataclass(frozen=True)
class Stage:
    """One attack of a run, under the name that the records give it."""

    name: str
    plugin: str
    attack: Attack

    def settings(self) -> dict[str, Any]:
        """All settings of the attack, defaults included."""
        return asdict(self.attack)  # type: ignore[call-overload, no-any-return]


def build_stages(specs: tuple[str, ...]) -> tuple[Stage, ...]:
    """The stages of a run, in order.

    Raises:
        RequestError: unknown attack or setting, the same stage twice, or none at all.
    """
    if not specs:
        raise RequestError("no attack is named: give at least one --attack, such as apgd-ce")
    stages = tuple(_build(spec) for spec in specs)
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"attack {name} is named twice: a stage runs once; change its settings or leave one out")
    return stages


def _build(spec: str) -> Stage:
    name, path, options = plugins.parse(spec)
    if path:
        raise RequestError(f"attack {spec!r} has a path {path!r}: settings are written {name}?key=value")
    plugin, preset = PRESETS.get(name, (name, {}))
    known = plugins.names("attack")
    if plugin not in known and "." not in plugin and "/" not in plugin:
        near = plugins.nearest(name, [*known, *PRESETS])
        raise RequestError(f"there is no attack {name!r}{near}; `brinell plugins` lists them")
    return Stage(spec, plugin, plugins.build("attack", plugin, preset | options))
