"""Show the strongest inputs of one segmentation network or detector to others, and compare with an attack on each.

`brinell transfer` hands data with masks or boxes over to it.
"""

from brinell.studies.dense_transfer.request import DenseTransferRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="dense-transfer",
    request=DenseTransferRequest,
    plan="run:make_plan",
    parts="run:pieces",
    table="records:TABLE",
    result="results:DenseTransferResult",
    summarise="analysis:summarise",
    lines="terminal:lines",
    page="page:write",
    truth=True,
    examples=(
        "brinell dense-transfer --data 'masks:FOLDER?side=257' --model narrow.py:network --model wide.py:network --eps 1/255",
        "brinell dense-transfer --data boxes:FOLDER --model detector.py:network --model detector.onnx --source network",
    ),
)
