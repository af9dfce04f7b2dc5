"""Attack a model that answers more than a class: the class of each pixel, by masks, or the boxes of objects.

`brinell audit` hands data with masks or boxes over to it.
"""

from brinell.studies.dense.request import DenseOptions, DenseRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="dense",
    request=DenseRequest,
    options=DenseOptions,
    run="dry_run:carry_out",
    plan="run:make_plan",
    parts="run:pieces",
    table="records:TABLE",
    result="results:DenseResult",
    more_schemas=(("dense-detection", "detection_results:DetectionResult"),),
    summarise="analysis:summarise",
    lines="terminal:lines",
    page="page:write",
    truth=True,
    examples=(
        "brinell dense --data 'masks:FOLDER?side=257' --model model.py:segmentation --eps 4/255,8/255",
        "brinell dense --data masks:FOLDER --model model.py:segmentation --norm l2 --eps 0.25,1 --lipschitz 6.532",
        "brinell dense --data masks:FOLDER --model model.onnx --attack 'square?steps=1000' --samples 10",
    ),
)
