"""The band between proofs and attacks as a figure."""

from collections.abc import Sequence

from markupsafe import Markup, escape

from brinell.analysis.results import Rate
from brinell.pages.figures import LARGE, axis_label, key, percent_axis, svg, tick

__all__ = ["band_figure"]


def band_figure(budgets: Sequence[float], certified: Sequence[Rate], robust: Sequence[Rate], model: str) -> Markup:
    """The band between proofs and attacks over the budgets."""
    frame, largest = LARGE, max(budgets) or 1.0
    parts = [percent_axis(frame)]

    def points(rates: list[float]) -> list[str]:
        return [f"{frame.x(eps / largest):.1f},{frame.y(value):.1f}" for eps, value in zip(budgets, rates, strict=True)]

    low, high = ([rate.value or 0.0 for rate in rates] for rates in (certified, robust))
    parts.append(f'<polygon class="band" points="{" ".join([*points(low), *reversed(points(high))])}"/>')
    for style, rates in (("s0", high), ("s1", low)):
        parts.append(f'<polyline class="line {style}" points="{" ".join(points(rates))}"/>')
    parts += [tick(frame, frame.x(share), f"{share * largest:.3g}") for share in (0.0, 0.5, 1.0)]
    title = escape(f"robust accuracy of {model} over eps: attacks above, proofs below")
    parts.append(axis_label(frame, "eps"))
    legend = f'<ul class="legend"><li>{key(0)}attacked</li><li>{key(1)}proven</li></ul>'
    return Markup(legend) + svg(frame, str(title), parts, "large")
