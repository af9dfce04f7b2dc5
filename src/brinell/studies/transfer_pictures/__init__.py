"""Show the strongest inputs of one segmentation network or detector to others, and compare with an
attack on each.

`brinell transfer` makes it of data with masks or boxes.
"""

from brinell.studies.kit import Study
from brinell.studies.transfer import TransferRequest

STUDY = Study(
    package=__name__,
    verb="transfer pictures",
    request=TransferRequest,
    rows="result:Answers",
    result="result:TransferResult",
    positional=("source",),
    examples=(
        "brinell transfer --data 'masks:FOLDER?side=257' --model "
        "narrow.py:network --model wide.py:network --eps 1/255",
        "brinell transfer network --data boxes:FOLDER --model "
        "detector.py:network --model detector.onnx",
    ),
)
