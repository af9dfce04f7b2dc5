"""Search a generator's latent space for inputs of an intended class that the model misclassifies, without a norm ball.

The records contain who still sees the intended class and the distance of each input to the training data.
"""

from brinell.studies.kit import Study
from brinell.studies.unrestricted.request import UnrestrictedRequest

STUDY = Study(
    package=__name__,
    verb="unrestricted",
    request=UnrestrictedRequest,
    run="run:carry_out_call",
    result="analysis:UnrestrictedResult",
    lines="terminal:lines",
    open="run:open_result",
    page="page:write",
    layout="records:LAYOUT",
    memory=("model", "data", "judge"),
    resume="Resume the run in --out.",
    halves=True,
    examples=("brinell unrestricted --data TRAIN.npz --generator generator.safetensors --model model.py:factory",),
)
