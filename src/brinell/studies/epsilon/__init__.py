"""Measure distances between the samples of each class, and recommend an eps for the data, each class and each sample.

brinell audit --eps recommended:FOLDER attacks each sample within its recommended eps. brinell review asks people which changes
they notice.
"""

from brinell.studies.epsilon.request import EpsilonRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="epsilon",
    request=EpsilonRequest,
    run="run:carry_out",
    result="result:EpsilonResult",
    open="figures:summarise",
    page="figures:write_page",
    layout="records:LAYOUT",
    positional=("data",),
    memory=("data", "train", "model"),
    examples=("brinell epsilon FILE.npz --train TRAIN.npz", "brinell epsilon FILE.npz --norm linf --norm l2 --evidence REVIEW"),
)
