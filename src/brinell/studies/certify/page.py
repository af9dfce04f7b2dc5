"""The page of a certification: the band between proofs and attacks."""

from pathlib import Path

from brinell.pages.bands import band_figure
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.store.folder import PAGE
from brinell.store.proofs import TABLE
from brinell.studies.certify.analysis import sentence, summarise

HALF = 0.5
"""Classes are shown at the budget at which nearest to this share of the samples is proven."""


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
            at=min(range(len(result.eps)), key=lambda k: abs((result.certified[k].value or 0.0) - HALF)),
            figure=band_figure(result.eps, result.certified, result.robust, result.model),
            request=folder.manifest["request"],
            bands=[(c, band_figure(result.eps, c.certified, c.robust, result.model)) for c in result.per_class],
        ),
    )
    return page
