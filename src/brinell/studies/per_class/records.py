"""A study's folder: what it rests on (design/0023-across-models.md).

manifest.json  the request and the run folders
audit/         the run of the models that were audited for it; its own records
tables/*.csv   the tables of the page
report.html    the page; made from the records of the runs
"""

from typing import Any

from brinell.manifest import Amount, Listing, Manifest
from brinell.store.folder import Layout


class StudyManifest(Manifest):
    """What the manifest of a study says."""

    request: dict[str, Any]
    """Every setting that was asked for."""
    runs: Listing[str]
    """The folders of the runs that are compared."""
    at: Amount
    """The budget at which they are."""


LAYOUT = Layout(verb="study", what="study", version=1, manifest=StudyManifest)
