"""The page of a smoothed model: the proven share over the radius."""

from pathlib import Path

from markupsafe import Markup, escape

from brinell.pages.figures import LARGE, percent_axis, svg
from brinell.pages.html import fill, save_page
from brinell.studies.smooth.analysis import SmoothResult, condition, sentence, summarise
from brinell.studies.smooth.records import TABLE


def write(path: Path | str) -> Path:
    """Write the page of a folder from its rows."""
    folder = TABLE.read(path)
    result = summarise(folder)
    names = {
        "result": result,
        "sentence": sentence(result),
        "condition": condition(result),
        "figure": curve(result),
        "request": folder.manifest["request"],
    }
    return save_page(folder.path, fill(__package__, "page.html", {}, **names))


def curve(result: SmoothResult) -> Markup:
    """The proven share over the radius."""
    frame, largest = LARGE, max(rate.eps for rate in result.certified) or 1.0
    points = [f"{frame.x(rate.eps / largest):.1f},{frame.y(rate.value or 0.0):.1f}" for rate in result.certified]
    parts = [percent_axis(frame), f'<polyline class="line s0" points="{" ".join(points)}"/>']
    y = frame.height - frame.bottom + 16
    for share, anchor in ((0.0, "mid"), (0.5, "mid"), (1.0, "end")):
        parts.append(f'<text class="{anchor}" x="{frame.x(share):.1f}" y="{y}">{share * largest:.3g}</text>')
    parts.append(f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">L2 radius</text>')
    title = escape(f"share of samples that is proven for the smoothed {result.model} over the L2 radius")
    return svg(frame, str(title), parts, "large")
