"""A study's folder: what it rests on (design/0023-across-models.md).

study.json     the request and the run folders
audit/         the run of the models that were audited for it; its own records
tables/*.csv   the tables of the page
study.html     the page; made from the records of the runs
"""

from brinell.core.form import Number
from brinell.store.folder import Layout

LAYOUT = Layout(
    what="study",
    verb="brinell study",
    version=1,
    manifest="study.json",
    form={"request": dict, "runs": [str], "at": Number(0)},
)
