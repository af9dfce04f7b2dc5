"""What `brinell unrestricted` is asked for."""

from pydantic import Field

from brinell.core.settings import Plain
from brinell.engine.request import BaseRequest, DataSpec, Device, File, ModelSpec, Seed


class UnrestrictedRequest(BaseRequest):
    """What `brinell unrestricted` is asked for."""

    data: DataSpec = "digits?split=train"
    """The training data, to whose samples distances are measured."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model under attack: digits-cnn, torch:FILE.py:FACTORY?weights=FILE."""
    judge: tuple[ModelSpec, ...] = ()
    """A further model that says which class it sees and is never attacked."""
    generator: File = ""
    """A file of brinell train-generator."""
    per_class: int = Field(default=20, ge=1, le=100_000)
    """The attempts for each intended class."""
    noise: float = Field(default=0.1, ge=0)
    """The largest change of a value in the variant with small noise, in the units of the data. 0 leaves that variant out."""
    towards: Plain | None = None
    """The class, by name or number, that the models are to predict. Default: any wrong one."""
    steps: int = Field(default=200, ge=1)
    """The most gradient steps of a search."""
    rate: float = Field(default=0.05, gt=0)
    """The size of a step, in standard deviations of the latent."""
    radius: float = Field(default=0.1, ge=0)
    """How far each value of the latent may go freely."""
    hold: float = Field(default=1.0, ge=0)
    """The weight of the loss that keeps each value of the latent within the radius."""
    keep: float = Field(default=1.0, ge=0)
    """The weight of the auxiliary classifier's loss."""
    sure: float = Field(default=0.9, ge=0, lt=1)
    """The least probability of the intended class that the auxiliary classifier must give."""
    seed: Seed = 0
    batch_size: int = Field(default=128, ge=1)
    """The most inputs shown to a model at once."""
    device: Device = "auto"
