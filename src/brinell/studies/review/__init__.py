"""Show a person pairs of clean and changed pictures in a browser, and measure which changes are noticed.

The command serves the pairs on this machine until all are judged. It writes each answer to disk at once.
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
    repeat="run:repeat",
    claimed=(("answers.jsonl", "the answers of people"),),
    positional=("data",),
    live=True,
    resume="Resume the review in --out.",
    examples=("brinell review FILE.npz", "brinell review FILE.npz --resume --out REVIEW --reviewer second"),
)
