"""The settings of `brinell unrestricted`."""

from pydantic import Field

from brinell.engine.request import BaseRequest, DataSpec, Device, File, ModelSpec, Seed


class UnrestrictedRequest(BaseRequest):
    """The settings of `brinell unrestricted`."""

    data: DataSpec = "digits?split=train"
    """The training data, which distances are measured to."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model under attack: digits-cnn, torch:FILE.py:FACTORY?weights=FILE."""
    judge: tuple[ModelSpec, ...] = ()
    """A judge: a further model that predicts the class of each input and is never attacked."""
    generator: File = ""
    """A generator file, written by brinell train-generator."""
    per_class: int = Field(default=20, ge=1, le=100_000)
    """Number of attempts for each intended class."""
    noise: float = Field(default=0.1, ge=0)
    """Largest change of a value by added noise, in the units of the data. 0 leaves out the variant with noise."""
    towards: str | None = None
    """The target class, by name or number. Default: untargeted."""
    steps: int = Field(default=200, ge=1)
    """Most gradient steps of a search."""
    rate: float = Field(default=0.05, gt=0)
    """The size of a step, in standard deviations of the latent."""
    radius: float = Field(default=0.1, ge=0)
    """Change of a latent value that costs no penalty."""
    hold: float = Field(default=1.0, ge=0)
    """Weight of the penalty on latents beyond the radius."""
    keep: float = Field(default=1.0, ge=0)
    """Weight of the auxiliary classifier's loss."""
    sure: float = Field(default=0.9, ge=0, lt=1)
    """Least probability that the auxiliary classifier must give the intended class."""
    seed: Seed = 0
    batch_size: int = Field(default=128, ge=1)
    """The largest batch that a model evaluates."""
    device: Device = "auto"
