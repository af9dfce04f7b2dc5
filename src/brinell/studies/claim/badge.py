"""The badge of a claim: figure, budget and date as a small SVG that stands alone."""

from markupsafe import escape

from brinell.pages.format import NBSP, norm, percent
from brinell.studies.claim.analysis import ClaimResult

WIDTH = 6.6
"""Width of a letter in pixels, about that of 11 px Verdana."""
LONGEST = 40
"""Letters of a text on the badge at most."""


def badge(result: ClaimResult) -> str:
    """The badge as SVG."""
    subject = f"robust at {norm(result.distance)} {result.eps_text}"[:LONGEST]
    figure = percent(result.robust.value).replace(NBSP, " ")
    proven = "" if result.certified is None else f"{percent(result.certified.value).replace(NBSP, ' ')} to "
    right = f"{proven}{'≤ ' if not proven else ''}{figure}, {result.date}"[:LONGEST]
    label = f"Brinell: {subject}: {right}; {result.n} samples, checks: {result.checks.verdict}"
    first, second = (round(WIDTH * len(text)) + 16 for text in (subject, right))
    width = first + second
    colour = "#3d5166" if result.checks.failed == 0 and result.verified == "proved" else "#7a5200"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="22" viewBox="0 0 {width} 22" role="img" '
        f'aria-label="{escape(label)}"><title>{escape(label)}</title>'
        f'<rect width="{width}" height="22" rx="4" fill="{colour}"/>'
        f'<path d="M4 0h{first - 4}v22H4a4 4 0 0 1-4-4V4a4 4 0 0 1 4-4z" fill="#1a1c1f"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{first / 2:g}" y="15" textLength="{first - 16}">{escape(subject)}</text>'
        f'<text x="{first + second / 2:g}" y="15" textLength="{second - 16}">{escape(right)}</text></g></svg>\n'
    )
