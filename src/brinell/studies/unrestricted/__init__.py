"""Search a generator's latent space for inputs of an intended class that the model misclassifies,
without a norm ball.

The records contain who still sees the intended class and the distance of each input to the training
data.
"""

from pydantic import Field

from brinell.engine.request import BaseRequest, BatchSize, DataSpec, Device, File, ModelSpec, Seed
from brinell.studies.kit import Study


class UnrestrictedRequest(BaseRequest):
    """The settings of `brinell unrestricted`."""

    data: DataSpec = "digits?split=train"
    """The training data, which distances are measured to."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model under attack, as for brinell audit; it must give gradients."""
    judge: tuple[ModelSpec, ...] = ()
    """A judge: a further model that predicts the class of each input and is never attacked."""
    generator: File = ""
    """A generator file, written by brinell train generator."""
    per_class: int = Field(default=20, ge=1, le=100_000)
    """Number of attempts for each intended class."""
    noise: float = Field(default=0.1, ge=0)
    """Largest change of a value by added noise, in the units of the data. 0 leaves out the
    variant with noise."""
    steps: int = Field(default=200, ge=1)
    """Most gradient steps of a search."""
    class_probability: float = Field(default=0.9, ge=0, lt=1)
    """Least probability that the auxiliary classifier must give the intended class."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="unrestricted",
    request=UnrestrictedRequest,
    rows="result:AttemptRows",
    result="result:UnrestrictedResult",
    memory=("model", "data", "judge"),
    examples=(
        "brinell unrestricted --data TRAIN.npz --generator generator.safetensors "
        "--model model.py:factory",
    ),
)
