"""Have a person judge in a browser on this machine which changes of a picture show.

Pairs of clean and changed pictures are shown until all are judged. Answers are on disk one by one.
"""

from brinell.studies.kit import Study
from brinell.studies.review.request import ReviewOptions, ReviewRequest

STUDY = Study(
    package=__name__,
    verb="review",
    request=ReviewRequest,
    options=ReviewOptions,
    run="run:carry_out",
    result="analysis:ReviewResult",
    lines="terminal:lines",
    open="run:open_result",
    page="page:write",
    layout="records:LAYOUT",
    positional=("data",),
    live=True,
    resume="Go on with the review in --out.",
    examples=("brinell review FILE.npz", "brinell review FILE.npz --resume --out REVIEW --reviewer second"),
)
