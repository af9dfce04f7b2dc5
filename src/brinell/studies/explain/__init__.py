"""Compute saliency maps of inputs by several methods, and measure how good each method's maps are.

With ground truth, the study measures how well maps match the objects. Without it, it measures how well the model follows them.
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
    table="records:TABLE",
    summarise="analysis:summarise",
    page="page:write",
    resume="Resume the explanations in --out.",
    within="run",
    foreign=True,
    truth=True,
    halves=True,
    workers=True,
    examples=(
        "brinell explain --samples 20",
        "brinell explain --data FILE.npz --model model.py:factory --truth masks:DIR --only right",
        "brinell explain --data DIR --model model.onnx --method rlab --method rise --method occlusion",
        "brinell explain --data masks:FOLDER --model model.py:segmentation --region class:dog --method rlab",
    ),
)
