"""Measure how adversarial examples transfer between models: examples made now, or read from runs or benchmark sets.

Without options it compares four networks for digits: one, the same retrained, a narrower and a wider one.
"""

from brinell.studies.kit import Study
from brinell.studies.transfer.request import TransferRequest

STUDY = Study(
    package=__name__,
    verb="transfer",
    request=TransferRequest,
    run="run:carry_out",
    result="results:TransferResult",
    lines="report:lines",
    table="records:TABLE",
    summarise="analysis:summarise",
    page="report:write",
    positional=("source",),
    resume="Resume the transfer in --out.",
    successor="successor:verb_for",
    halves=True,
    workers=True,
    examples=(
        "brinell transfer",
        "brinell transfer --data FILE.npz --model model.py:plain --model model.py:robust --eps 8/255",
        "brinell transfer SET RUN plain plain+robust --data FILE.npz --model model.py:plain --model model.py:robust",
    ),
)
