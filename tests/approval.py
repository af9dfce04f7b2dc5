"""What people are shown, compared with a text that somebody approved: pages, terminals, tables.

    approve("epsilon", shown(epsilon_run))      # terminal, pages and tables of a finished run,
                                                against approved/epsilon.txt
    approve("epsilon-varied", terminal_of(varied(result), folder))
        # no two numbers of the result are equal

`BRINELL_APPROVE=1 pytest tests/studies/test_shown.py` writes the texts anew; read the difference
before you commit it. Seconds, digests, versions and folders are masked, and figures are rounded, so
that a text is the same on every machine.
"""

import base64
import csv
import difflib
import io
import itertools
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydantic import BaseModel

import brinell
from brinell.engine import provenance
from brinell.studies.register import study_of

APPROVED = Path(__file__).with_name("approved")
MASKS = {
    r"[\w:/.\-]*/(?:finished|pytest-)[\w/.\-]*": "PATH",
    r"\b\d(?:\.\d+)?e-0[5-9]\b": "ROUNDING",
    r"\b[0-9a-f]{8,}\b(?:\+dirty)?": "DIGEST",
    r"\b\d+(?:\.\d+)? ?(?:s|ms|min|minutes?|seconds?)\b": "SECONDS",
    r"\b\d{4}-\d\d-\d\d(?:[T ][\d:.+Z]+)?": "DATE",
    r"\b\d+\.\d+\.\d+[\w.+]*": "VERSION",
    r"\bPython \d\.\d+": "Python VERSION",
    re.escape(provenance._cpu()): "PROCESSOR",
    r"\bcores: \d+": "cores: NUMBER",
}
SHAPES = ("path", "line", "rect", "circle", "polyline", "polygon")
COUNTS = (
    "k",
    "n",
    "only_a",
    "only_b",
    "both_robust",
    "neither",
    "samples",
    "forwards",
    "backwards",
    "successes",
    "queries",
)
KEYS = ("eps", "low_eps", "high_eps")
"""Numbers by which entries are found, which stay as they are."""


def varied(value: Any, numbers: Any = None) -> Any:
    """A copy of a result in which no two counts or fractions are equal; those from 0 to 1 stay
    there.
    """
    numbers = itertools.count(1) if numbers is None else numbers
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        changed = {
            name: item if name in KEYS else varied(item, numbers) for name, item in fields.items()
        }
        changed |= {"seconds": 0.01 * next(numbers)} if "seconds" in fields else {}
        changed |= {
            name: 100 + next(numbers) for name in COUNTS if isinstance(fields.get(name), int)
        }
        return value.model_copy(update=changed)
    if isinstance(value, list | tuple):
        return type(value)(varied(item, numbers) for item in value)
    if isinstance(value, dict):
        return {key: varied(item, numbers) for key, item in value.items()}
    if isinstance(value, float) and np.isfinite(value):
        step = 0.0137 * next(numbers)
        return (0.005 + step) % 1 if 0 <= value <= 1 else value * (1 + step)
    return value


class _Text(HTMLParser):
    """Text of a page: rows of cells with their classes, shapes of figures, shades of the quarters
    of pictures.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.hidden += tag in ("style", "script")
        if tag in SHAPES:
            points = " ".join(values.pop("points", "").split()[::10])
            numbers = (
                " ".join(values[name] for name in values if name not in ("class", "style")) + points
            )
            numbers = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.0f}", numbers)
            self.parts.append(f"\n<{tag} {values.get('class', '')} {numbers}>")
        elif tag in ("td", "th"):
            self.parts.append(f" |{'{' + values['class'] + '}' if values.get('class') else ''} ")
        elif tag == "img" and values.get("src", "").startswith("data:"):
            pixels = Image.open(io.BytesIO(base64.b64decode(values["src"].partition(",")[2])))
            shades = " ".join(
                map(
                    str,
                    np.asarray(pixels.convert("L").resize((2, 2), Image.Resampling.BOX)).ravel(),
                )
            )
            self.parts.append(f"\n[{values.get('alt', '')}: {shades}]")
        elif tag not in ("b", "em", "i", "code", "span", "strong", "sub", "sup"):
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def page_text(html: str) -> str:
    """The text of a page, a line for each row, paragraph and shape."""
    parser = _Text()
    parser.feed(html.replace("<wbr>", ""))
    return "\n".join(line.strip() for line in "".join(parser.parts).split("\n") if line.strip(" |"))


def table_text(text: str) -> str:
    """A table of commas, without its seconds."""
    rows = list(csv.reader(io.StringIO(text)))
    if "seconds" not in rows[0]:
        return text
    index = rows[0].index("seconds")
    return "\n".join(" | ".join([*row[:index], "SECONDS", *row[index + 1 :]]) for row in rows)


def terminal_of(result: Any, folder: Path) -> str:
    """What a terminal shows of a result, by the study that made a folder."""
    return "\n".join(result.lines())


def shown(folder: Path) -> str:
    """All that a finished folder shows: the lines of the terminal, the page, and the tables."""
    has_result = (folder / "manifest.json").exists() and study_of(folder).open is not None
    texts = [terminal_of(brinell.open(folder), folder)] if has_result else []
    pages = [
        (str(file.relative_to(folder)), page_text(file.read_text()))
        for file in folder.rglob("*.html")
    ]
    texts += [
        text
        for _, text in sorted(
            pages, key=lambda page: [re.sub("[0-9a-f]{8,}", "", part) for part in page]
        )
    ]
    return "\n\n".join(
        [*texts, *(table_text(file.read_text()) for file in sorted(folder.rglob("*.csv")))]
    )


def approve(name: str, text: str, masks: dict[str, str] = MASKS) -> None:
    """Compare a text with the approved one."""
    text = re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.4g}", text)
    for pattern, mask in masks.items():
        text = re.sub(pattern, mask, text)
    text, file = f"{text}\n", APPROVED / f"{name}.txt"
    if os.environ.get("BRINELL_APPROVE"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    difference = "\n".join(
        difflib.unified_diff(file.read_text().split("\n"), text.split("\n"), n=0, lineterm="")
    )
    assert not difference, f"{file} differs: BRINELL_APPROVE=1 writes it anew\n{difference}"
