"""Look for an input that satisfies a query in VNN-LIB on a network in ONNX, by attacks; or prove that there is none."""

from brinell.studies.falsify.request import FalsifyRequest
from brinell.studies.kit import Output, Study

STUDY = Study(
    package=__name__,
    verb="falsify",
    request=FalsifyRequest,
    run="run:carry_out",
    result="result:FalsifyResult",
    lines="result:lines",
    positional=("query",),
    memory=(),
    output=Output.ANSWER_ONLY,
    examples=(
        "brinell falsify QUERY.vnnlib --network MODEL.onnx",
        "brinell falsify QUERY.vnnlib --network acc=MODEL.onnx --timeout 300 --answer ANSWER.txt",
    ),
)
