"""Compare any number of models class by class: stages, drops, places with intervals, and what goes with robustness.

The models are those of runs that are there, or are audited first. Without options: four networks for digits.
"""

from brinell.studies.kit import Study
from brinell.studies.per_class.request import StudyRequest

STUDY = Study(
    package=__name__,
    verb="study",
    request=StudyRequest,
    run="run:carry_out",
    result="results:StudyResult",
    lines="terminal:lines",
    layout="records:LAYOUT",
    rewrite="run:rewrite",
    without_page="has a page that is made of runs in other folders: name them to brinell study again",
    positional=("run",),
    resume="Go on with the audit in --out.",
    examples=(
        "brinell study",
        "brinell study RUN_A RUN_B --at 4/255",
        "brinell study --data FILE.npz --model model.py:small --model model.py:large --attack slides",
    ),
)
