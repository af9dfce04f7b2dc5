"""Samples on a page: how cells name them, and their pictures in a folder next to it where they are
large.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from brinell.reports.values import Samples

EMBEDDED = 4 * 2**20
"""Bytes of pictures up to which the page holds them itself."""
FOLDER = "samples"
"""The folder of the pictures of a page."""
PNG = re.compile(r'(?<=src=")data:image/png;base64,([^"]+)')
SVG = re.compile(r'<svg class="([^"]*)" (.*?aria-label="([^"]*)".*?</svg>)', re.DOTALL)
STYLE = (
    "svg{font:11.5px sans-serif}text{fill:#7d848c}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".grid,.axis{stroke:#868b93;opacity:.5}.line{fill:none;stroke:currentColor;stroke-width:1.4}"
    ".s0{color:#0a7cc4}.s1{color:#d9651a}.ref{color:#868b93;stroke-dasharray:3 3}"
    ".touched{fill:#a8860a;opacity:.25}"
)
"""Of signals that are separate files: on light and on dark."""


def where(**choice: Any) -> str:
    """The samples that a cell opens, as the address of the page names them: `class=3&eps=4/255`."""
    return urlencode(choice, quote_via=quote, safe="/")


def data_of(block: Samples, views: Mapping[str, str]) -> str:
    """The samples with their drawn pictures as JSON that can stand in a page."""
    content = {**block.content, "views": views}
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def take_out(views: Mapping[str, str]) -> tuple[dict[str, str], dict[str, bytes]]:
    """Pictures as files of a folder next to the page: what is left of the views, and the files by
    their paths.
    """
    files: dict[str, bytes] = {}

    def name(ending: str, content: bytes) -> str:
        path = f"{FOLDER}/{len(files)}.{ending}"
        files[path] = content
        return path

    def draw(match: re.Match[str]) -> str:
        kind, markup, title = match.groups()
        head = '<svg xmlns="http://www.w3.org/2000/svg" '
        styled = f"{head}{markup}".replace(">", f"><style>{STYLE}</style>", 1)
        source = name("svg", styled.encode())
        return f'<img class="{kind}" alt="{title}" src="{source}">'

    shortened = {
        key: SVG.sub(draw, PNG.sub(lambda match: name("png", base64.b64decode(match[1])), view))
        for key, view in views.items()
    }
    return shortened, files
