"""Bound robust accuracy from both sides: proofs from below, attacks from above, class by class over a range of budgets."""

from brinell.studies.certify.request import CertifyRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="certify",
    request=CertifyRequest,
    plan="run:make_plan",
    parts="run:pieces",
    table="records:TABLE",
    result="analysis:CertifyResult",
    summarise="analysis:summarise",
    lines="terminal:lines",
    page="page:write",
    rates="analysis:gate_rates",
    examples=(
        "brinell certify",
        "brinell certify --data npz:TEST.npz --model torch:model.py:make?weights=W.safetensors --eps 0:8/255:9",
    ),
)
