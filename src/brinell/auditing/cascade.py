"""Stages: attacks with their settings, and the orders in which they run."""

from dataclasses import asdict, dataclass
from typing import Any

from brinell import plugins
from brinell.core.contracts import Attack
from brinell.core.errors import RequestError

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "apgd-ce": ("apgd", {"loss": "ce"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "apgd-t": ("apgd", {"loss": "dlr", "targets": 9}),
    "bim": ("pgd", {"random_start": False}),
    "fab-t": ("fab", {"targets": 9}),
}
"""Names that the field uses for one attack with certain settings."""

CASCADES: dict[str, tuple[str, ...]] = {
    "fast": (
        "apgd-ce?steps=20",
        "apgd-dlr?steps=20&within=0.5",
        "apgd-t?loss=margin&targets=3&steps=20&within=0.35",
        "apgd-t?steps=30&within=0.15",
        "apgd-ce?restarts=2&within=0.2",
        "apgd-t?within=0.03",
        "square?steps=1000&within=0.06",
        "square?within=0.015",
    ),
    "standard": ("apgd-ce", "apgd-t", "fab-t?stop_at_eps=true", "square?rescale_schedule=false"),
    "slides": ("apgd-ce", "apgd-dlr", "fab?stop_at_eps=true", "square?rescale_schedule=false"),
    "plus": (
        "apgd-ce?restarts=5",
        "apgd-dlr?restarts=5",
        "fab?restarts=5&stop_at_eps=true",
        "square",
        "apgd-t",
        "fab-t?stop_at_eps=true",
    ),
}
"""Orders of stages under one name: AutoAttack's standard and plus versions, and the per-class study's."""

DEFAULT = ("apgd-ce", "apgd-dlr")
"""What runs when nothing is asked for."""


@dataclass(frozen=True)
class Stage:
    """One attack of a run, under the name that the records give it."""

    name: str
    plugin: str
    attack: Attack
    within: float | None = None
    """Run only on samples that an earlier stage brought this near to the boundary: the best margin it saw is above -within times
    the clean margin. None runs on all that stand. A sample's turn depends on that sample alone, never on its company."""

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
    stages = tuple(_build(one) for spec in specs for one in CASCADES.get(spec, (spec,)))
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"attack {name} is named twice: a stage runs once; change its settings or leave one out")
    return stages


def _build(spec: str) -> Stage:
    name, path, options = plugins.parse(spec)
    if path:
        raise RequestError(f"attack {spec!r} has a path {path!r}: settings are written {name}?key=value")
    within = _within(spec, options.pop("within", None))
    plugin, preset = PRESETS.get(name, (name, {}))
    known = plugins.names("attack")
    if plugin not in known and "." not in plugin and "/" not in plugin:
        near = plugins.nearest(name, [*known, *PRESETS])
        raise RequestError(f"there is no attack {name!r}{near}; `brinell plugins` lists them")
    return Stage(spec, plugin, plugins.build("attack", plugin, preset | options), within)


def _within(spec: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        within = float(text)
    except ValueError:
        within = -1.0
    if not 0 <= within <= 1:
        raise RequestError(f"within is {text!r} in {spec!r}: it is the share of the clean margin that may be left, 0 to 1")
    return within
