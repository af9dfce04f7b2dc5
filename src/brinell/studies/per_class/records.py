"""The folder of a study (design/0023-across-models.md).

manifest.json  the request and the run folders
audit/         the audit of the models that the study itself audits
tables/*.csv   the tables of the page
report.html    the page; made from the records of the runs
"""

from typing import Any

from brinell.manifest import Amount, Listing, Manifest
from brinell.store.folder import Layout


class StudyManifest(Manifest):
    """The manifest of a study."""

    request: dict[str, Any]
    """All settings of the request."""
    command: str
    """The command line that repeats it."""
    runs: Listing[str]
    """Folders of the compared runs; `audit` is the study's own."""
    at: Amount
    """The budget at which models are compared."""


LAYOUT = Layout(verb="study", noun="study", version=1, manifest=StudyManifest)
