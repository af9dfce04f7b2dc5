"""A report in a notebook: the answer, and the page folded in a frame."""

from markupsafe import Markup, escape

from brinell.reports.html import page
from brinell.reports.values import Report

PAGE_BYTES = 4 * 2**20
"""A page larger than this is not copied into a notebook."""


def notebook(report: Report) -> str:
    """HTML of a cell."""
    answer = Markup("").join(Markup("<p>{}</p>").format(sentence) for sentence in report.sentences)
    text = page(report)
    if len(text) > PAGE_BYTES:
        return f"<div>{answer}</div>"
    frame = (
        '<iframe sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:640px;border:0" srcdoc="{escape(text)}">'
    )
    return f"<div>{answer}<details><summary>The page</summary>{frame}</iframe></details></div>"
