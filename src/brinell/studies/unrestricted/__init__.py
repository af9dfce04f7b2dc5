"""Search a generator's latent space for inputs of an intended class on which the models err, within no norm ball.

The records say who still sees the intended class, and how far each input is from the training data.
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
    resume="Go on with the run in --out.",
    examples=("brinell unrestricted --data TRAIN.npz --generator generator.safetensors --model model.py:factory",),
)
