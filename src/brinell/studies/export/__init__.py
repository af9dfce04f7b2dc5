"""Write metrics, tables and the report of a run for TensorBoard, MLflow or a spreadsheet, or as RobustBench entries."""

from brinell.studies.export.request import ExportRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="export",
    request=ExportRequest,
    run="run:carry_out",
    result="run:ExportAnswer",
    lines="run:lines",
    positional=("run",),
    examples=(
        "brinell export RUN --to csv --out figures",
        "brinell export RUN --to mlflow --out mlruns",
        "brinell export RUN --to huggingface --about dataset=OWNER/NAME",
        "brinell export RUN --to robustbench --eps 8/255 --about venue='arXiv, Nov 2026' --about additional_data=false",
    ),
)
