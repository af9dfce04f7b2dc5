"""Train a triplet network on the data, and measure how well its distances separate classes beside those between pixels."""

from brinell.studies.kit import Output, Study
from brinell.studies.metric.request import MetricRequest

STUDY = Study(
    package=__name__,
    verb="train-metric",
    request=MetricRequest,
    run="run:carry_out",
    result="run:MetricResult",
    lines="terminal:lines",
    memory=("data", "test"),
    output=Output.FILE,
    out="The file to write; name it in brinell audit as --norm embedding:FILE.",
    examples=("brinell train-metric --data FILE.npz --out distance.safetensors",),
)
