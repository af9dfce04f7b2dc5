"""Every setting of a plug-in that has a range is refused beyond its ends, and taken within."""

import math

import pytest

from brinell import plugins
from brinell.core.settings import Checked, Range, _hints, mark_of

KINDS = ("attack", "bound", "dataset", "defence", "detector", "distortion", "explainer", "model")
PLUGINS = [
    (kind, name)
    for kind in KINDS
    for name in plugins.names(kind)
    if issubclass(plugins.load(kind, name), Checked)
]


def ends(limits):
    """Values beyond the ends of a range."""
    low, high = (float(end) for end in limits.text[1:-1].split(","))
    below = [low if limits.text[0] == "(" else low - 1] if math.isfinite(low) else []
    return below + ([high if limits.text[-1] == ")" else high + 1] if math.isfinite(high) else [])


@pytest.mark.parametrize("part", range(4))
def test_settings_beyond_their_range_are_refused(part):
    counted = 0
    for kind, name in PLUGINS[part::4]:
        plugin = plugins.load(kind, name)
        for setting, hint in _hints(plugin).items():
            limits = mark_of(hint, of=Range)
            for value in ends(limits) if limits else ():
                with pytest.raises(ValueError, match=f"{setting} is "):
                    plugin(**{setting: type(getattr(plugin(), setting) or 0.0)(value)})
                counted += 1
    assert counted > 10
