"""The page of a certification: the band between proofs and attacks."""

from pathlib import Path

from markupsafe import Markup, escape

from brinell.pages.figures import LARGE, key, percent_axis, svg
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.store.folder import PAGE
from brinell.studies.certify.analysis import Band, CertifyResult, sentence, summarise
from brinell.studies.certify.records import TABLE


def write(path: Path | str) -> Path:
    """Write the page of a folder from its rows."""
    folder = TABLE.read(path)
    result = summarise(folder)
    page = folder.path / PAGE
    write_text(
        page,
        fill(
            __package__,
            "page.html",
            {},
            result=result,
            sentence=sentence(result),
            figure=band(result, result),
            request=folder.manifest["request"],
            bands=[(c, band(result, c)) for c in result.per_class],
        ),
    )
    return page


def band(result: CertifyResult, part: Band) -> Markup:
    """The band between proofs and attacks over the budgets."""
    frame, largest = LARGE, max(result.eps) or 1.0
    parts = [percent_axis(frame)]

    def points(rates: list[float]) -> list[str]:
        return [f"{frame.x(eps / largest):.1f},{frame.y(value):.1f}" for eps, value in zip(result.eps, rates, strict=True)]

    low, high = ([rate.value or 0.0 for rate in rates] for rates in (part.certified, part.robust))
    parts.append(f'<polygon class="band" points="{" ".join([*points(low), *reversed(points(high))])}"/>')
    for style, rates in (("s0", high), ("s1", low)):
        parts.append(f'<polyline class="line {style}" points="{" ".join(points(rates))}"/>')
    y = frame.height - frame.bottom + 16
    for share, anchor in ((0.0, "mid"), (0.5, "mid"), (1.0, "end")):
        parts.append(f'<text class="{anchor}" x="{frame.x(share):.1f}" y="{y}">{share * largest:.3g}</text>')
    title = escape(f"robust accuracy of {result.model} over eps: attacks above, proofs below")
    parts.append(f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">eps</text>')
    legend = f'<ul class="legend"><li>{key(0)}attacked</li><li>{key(1)}proven</li></ul>'
    return Markup(legend) + svg(frame, str(title), parts, "large")
