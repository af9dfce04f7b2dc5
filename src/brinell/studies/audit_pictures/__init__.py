"""Attack a model that answers more than a class: the class of each pixel, by masks, or the boxes of
objects.

`brinell audit` makes it of data with masks or boxes.
"""

from brinell.engine.request import Request
from brinell.studies.audit.request import AuditOptions
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="audit pictures",
    request=Request,
    options=AuditOptions,
    rows="result:Answers",
    result="result:PicturesResult",
    examples=(
        "brinell audit --data 'masks:FOLDER?side=257' --model "
        "model.py:segmentation --eps 4/255,8/255",
        "brinell audit --data masks:FOLDER --model model.onnx --attack "
        "'square?steps=1000' --samples 10",
        "brinell audit --data boxes:FOLDER --model detector.py:network "
        "--criterion missed+false@0.5",
    ),
)
