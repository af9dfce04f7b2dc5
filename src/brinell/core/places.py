"""Where Brinell keeps what is a person's own, and belongs to no run."""

import os
from pathlib import Path


def own_folder() -> Path:
    """BRINELL_CACHE, or brinell/ in XDG_CACHE_HOME or ~/.cache; it need not exist."""
    named = os.environ.get("BRINELL_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brinell"
