"""Corrupt inputs with the published corruptions or others at five severities, and count the errors of models.

With --reference it computes the mean corruption error; with --placed, RLAB places the corruptions on patches.
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
    resume="Resume the corruptions in --out.",
    halves=True,
    examples=(
        "brinell corrupt --samples 200",
        "brinell corrupt --samples 200 --suite published --suite synthetic",
        "brinell corrupt --data FILE.npz --model model.py:plain --model model.py:hardened --reference plain",
        "brinell corrupt --data FILE.npz --model model.py:plain --kind published-gaussian-noise --severity 3 --placed 100",
    ),
)
