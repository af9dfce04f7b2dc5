"""Show which places of an input matter to a model, by several methods, and judge each method's maps.

With ground truth it is told how well maps lie on the objects; without, how well the model follows them.
"""

from brinell.studies.explain.request import ExplainRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="explain",
    request=ExplainRequest,
    run="run:carry_out",
    result="analysis:ExplainResult",
    lines="terminal:lines",
    open="run:open_result",
    page="page:write",
    layout="records:LAYOUT",
    resume="Go on with the explanations in --out.",
    shards=True,
    foreign=True,
    examples=(
        "brinell explain --samples 20",
        "brinell explain --data FILE.npz --model model.py:factory --truth masks:DIR --only right",
        "brinell explain --data DIR --model model.onnx --method rlab --method rise --method occlusion",
    ),
)
