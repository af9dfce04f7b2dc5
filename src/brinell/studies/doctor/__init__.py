"""Show whether model and data fit together, or versions, devices, threads, disk and extras.

With a model and data it tries them on up to 200 samples in the forms in which people mix them up,
names the form that fits best and the line to type; the exit code is 1 if another form is better.
Models of masks or boxes are judged by what they show on eight pictures.
Without, it shows the installation; the exit code is 1 if a package that Brinell needs is missing or
too old. It attacks nothing and downloads nothing.
"""

from brinell.engine.request import BaseRequest, BatchSize, DataSpec, Device, Expect, ModelSpec
from brinell.studies.kit import Output, Study


class DoctorRequest(BaseRequest):
    """What `brinell doctor` is asked for: model and data, or nothing for the installation."""

    data: DataSpec | None = None
    """The data, named as for brinell audit, with which the models are tried."""
    model: tuple[ModelSpec, ...] = ()
    """A model, named as for brinell audit. Several are named by repeating it."""
    expect: Expect = None
    device: Device = "auto"
    batch_size: BatchSize = 128


STUDY = Study(
    verb="doctor",
    request=DoctorRequest,
    result="run:DoctorResult",
    output=Output.ANSWER_ONLY,
    examples=(
        "brinell doctor --data FILE.npz --model model.py:factory",
        "brinell doctor --data FILE.npz --model model.py:factory --expect 0.93",
        "brinell doctor",
    ),
)
