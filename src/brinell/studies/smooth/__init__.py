"""Prove robustness in L2 of the smoothed model, which answers the class that is most frequent under Gaussian noise."""

from brinell.studies.kit import Study
from brinell.studies.smooth.request import SmoothRequest

STUDY = Study(
    package=__name__,
    verb="smooth",
    request=SmoothRequest,
    plan="run:make_plan",
    parts="run:pieces",
    table="records:TABLE",
    result="analysis:SmoothResult",
    summarise="analysis:summarise",
    lines="terminal:lines",
    page="page:write",
    rates="analysis:gate_rates",
    halves=True,
    examples=(
        "brinell smooth",
        "brinell smooth --data npz:TEST.npz --model model.py:make?weights=W.safetensors --sigma 0.25 --draws 100000",
    ),
)
