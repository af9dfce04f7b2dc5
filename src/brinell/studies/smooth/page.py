"""The page of a smoothed model: the proven share over the radius."""

from pathlib import Path

from markupsafe import Markup, escape

from brinell.pages.figures import LARGE, axis_label, percent_axis, svg, tick
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
    parts += [tick(frame, frame.x(share), f"{share * largest:.3g}") for share in (0.0, 0.5, 1.0)]
    parts.append(axis_label(frame, "L2 radius"))
    title = escape(f"share of samples that is proven for the smoothed {result.model} over the L2 radius")
    return svg(frame, str(title), parts, "large")
