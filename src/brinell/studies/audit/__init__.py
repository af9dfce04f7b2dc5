"""Attack the model and write records, tables and a report.

Without options: real handwritten digits and a small network, trained on first use; nothing is
downloaded.
"""

from brinell.engine.request import Request
from brinell.studies.audit.request import AuditOptions
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="audit",
    keeps_region=True,
    request=Request,
    options=AuditOptions,
    rows="brinell.core.record:Records",
    table_of="brinell.store.run:TABLE",
    run="run:carry_out",
    result="result:Audit",
    hosts=True,
    needs_inputs=True,
    memory=("model", "data", "detector_data"),
    examples=(
        "brinell audit --samples 100",
        "brinell audit --data FILE.npz --model model.py:factory --eps 8/255",
        "brinell audit --data FILE.npz --model model.onnx --eps 0:0.3:4 --attack black-box",
        "brinell audit --data DIR --model "
        "'timm:resnet18.a1_in1k?weights=FILE.safetensors' --dry-run",
        "brinell audit --data FILE.csv --model forest.skops --eps 0:0.2:5 "
        "--attack 'square?steps=300'",
        "brinell audit --detector mahalanobis --detector-data digits?split=train",
        "brinell audit --certify --samples 40",
        "brinell audit --resume --out RUN",
    ),
    of_tasks=Study(
        package=f"{__name__}.tasks",
        verb="audit pictures",
        keeps_region=True,
        request=Request,
        options=AuditOptions,
        rows="result:AttackRows",
        result="result:PicturesResult",
        examples=(
            "brinell audit --data 'masks:FOLDER?side=257' --model "
            "model.py:segmentation --eps 4/255,8/255",
            "brinell audit --data masks:FOLDER --model model.onnx --attack "
            "'square?steps=1000' --samples 10",
            "brinell audit --data boxes:FOLDER --model detector.py:network "
            "--criterion missed+false@0.5",
        ),
    ),
)
