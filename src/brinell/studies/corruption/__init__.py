"""Corrupt inputs in the published ways, at five severities, and count what models get wrong.

With --reference, the mean corruption error; with --placed, what RLAB makes of the same corruption on patches.
"""

from brinell.studies.corruption.request import CorruptRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="corrupt",
    request=CorruptRequest,
    plan="run:make_plan",
    parts="run:pieces",
    table="records:TABLE",
    summarise="analysis:summarise",
    result="results:CorruptResult",
    lines="terminal:lines",
    page="page:write",
    resume="Go on with the corruptions in --out.",
    examples=(
        "brinell corrupt --samples 200",
        "brinell corrupt --data FILE.npz --model model.py:plain --model model.py:hardened --reference plain",
        "brinell corrupt --data FILE.npz --model model.py:plain --kind published-gaussian-noise --severity 3 --placed 100",
    ),
)
