"""Train a model adversarially, and audit it before and after on data that the training never uses.

By default it hardens the built-in network on real handwritten digits.
"""

from brinell.studies.harden.request import HardenRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="harden",
    request=HardenRequest,
    run="run:carry_out_call",
    result="analysis:HardenResult",
    lines="terminal:lines",
    open="analysis:summarise",
    page="page:write",
    layout="records:LAYOUT",
    repeat="run:repeat",
    claimed=(
        ("checkpoints/last.safetensors", "the training: that the recipe makes the stored weights, and the history of its checks"),
        *(
            (
                f"manifest.json:training.{key}",
                "the training: that the recipe makes the stored weights, and the history of its checks",
            )
            for key in ("recipe", "step", "best_step", "forwards", "backwards", "curve", "events")
        ),
    ),
    memory=("model", "data", "train"),
    needs_inputs=True,
    resume="Resume the hardening in --out.",
    examples=(
        "brinell harden --data digits",
        "brinell harden --data TEST.npz --train TRAIN.npz --model model.py:factory --eps 8/255 --recipe trades+awp",
    ),
)
