"""Bound robust accuracy from both sides: proofs from below, attacks from above, class by class over a range of budgets."""

from brinell.studies.certify.request import CertifyOptions, CertifyRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="certify",
    request=CertifyRequest,
    options=CertifyOptions,
    run="run:carry_out",
    repeat="run:repeat",
    claimed=(("verdicts-*.jsonl", "the answers of outside verifiers, where --solver names any"),),
    plan="run:make_plan",
    parts="run:pieces",
    table="brinell.store.proofs:TABLE",
    result="analysis:CertifyResult",
    summarise="analysis:summarise",
    lines="terminal:lines",
    page="page:write",
    rates="analysis:gate_rates",
    warnings="analysis:warnings",
    proven="analysis:proven_budgets",
    halves=True,
    examples=(
        "brinell certify",
        "brinell certify --data npz:TEST.npz --model torch:model.py:make?weights=W.safetensors --eps 0:8/255:9",
        "brinell certify --method crown --export QUERIES",
        "brinell certify --method crown --solver TOOL --solver-timeout 30",
    ),
)
