"""Make a static site of any number of runs: a table for each task, and a page for each model and each pair of models.

Nothing is taken over that verification refuses; the reason stands on a page of refusals. Made again, it changes only what is new.
"""

from brinell.studies.board.request import BoardRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="board",
    request=BoardRequest,
    run="run:carry_out",
    result="analysis:BoardResult",
    lines="terminal:lines",
    positional=("folder",),
    out="The folder of the site. A site that is there is brought up to date. Default: a fresh one under runs/.",
    examples=(
        "brinell board runs --out site",
        "brinell board RUN_A RUN_B CERTIFICATE --out site",
        "brinell board runs --level replay --out site",
    ),
)
