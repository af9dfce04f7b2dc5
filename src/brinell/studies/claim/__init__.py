"""State what a run shows and what it does not, for a model card, a paper or a technical file, and where its figure stands.

A claim is a page, a card in Markdown, a badge and one JSON, all made from a row for each sample.
"""

from brinell.studies.claim.request import ClaimRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="claim",
    request=ClaimRequest,
    run="run:carry_out",
    result="analysis:ClaimResult",
    lines="terminal:lines",
    open="analysis:open_claim",
    page="page:write",
    layout="records:LAYOUT",
    repeat="run:repeat",
    claimed=(("manifest.json:verification", "what the verification of the run found, which brinell verify RUN finds again"),),
    positional=("run",),
    within="run",
    examples=(
        "brinell claim RUN",
        "brinell claim RUN --eps 8/255 --against robustbench",
        "brinell claim RUN --proofs CERTIFICATE --out claim",
    ),
)
