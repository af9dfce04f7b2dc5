"""Builds the proxy of a plug-in that does not come with Brinell."""

from collections.abc import Callable, Mapping
from typing import Any

from brinell.isolation.attack import IsolatedAttack
from brinell.isolation.detector import IsolatedDetector
from brinell.isolation.distortion import IsolatedDistortion
from brinell.isolation.explainer import IsolatedExplainer
from brinell.isolation.process import PluginProcess
from brinell.isolation.proxy import IsolatedPlugin, named_class

PROXIES: dict[str, type[IsolatedPlugin]] = {
    "attack": IsolatedAttack,
    "detector": IsolatedDetector,
    "distortion": IsolatedDistortion,
    "explainer": IsolatedExplainer,
}
"""The proxy of each kind of plug-ins that runs in child processes (`plugins.ISOLATED`)."""


def build_isolated(
    kind: str, name: str, options: Mapping[str, Any], origin: Callable[[str, str], tuple[str, str]]
) -> IsolatedPlugin:
    """Start a child process that builds a plug-in, and return the proxy.

    Args:
        kind: the kind of the plug-in.
        name: its name.
        options: its settings.
        origin: gives the module and the source of a kind and a name, which the child could forge.

    Raises:
        RequestError: the child cannot build it.
    """
    base: Any = PROXIES[kind]
    process = PluginProcess(kind, name, options, base.form)
    properties = process.start()
    module, source = origin(kind, name)
    return named_class(base, properties["name"], module, properties["summary"])(process, properties, source)
