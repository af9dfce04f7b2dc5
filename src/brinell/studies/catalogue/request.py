"""What `brinell plugins` is asked for."""

from brinell.core.settings import Plain
from brinell.engine.request import BaseRequest


class PluginsRequest(BaseRequest):
    """What `brinell plugins` is asked for."""

    kind: Plain | None = None
    """The kind: attack, cascade, distance, distortion, defence, detector, explainer, dataset or model. Default: all."""
