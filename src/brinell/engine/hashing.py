"""Content hashes: what a row depends on, apart from its sample and its eps."""

import hashlib
import json
from typing import Any


def cell(**content: Any) -> str:
    """24 hex digits that change whenever any of `content` (JSON values) does."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
