"""What `brinell detect` is asked for."""

from typing import Annotated

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, Budgets, DataSpec, Folder, Seed


class DetectRequest(BaseRequest):
    """What `brinell detect` is asked for."""

    run: Folder
    """A finished run folder, made by brinell audit."""
    train: DataSpec
    """Clean data that the detectors are fitted to; none of the run's samples may be among them."""
    detector: tuple[Annotated[str, Names("detector")], ...] = ("background", "feature-squeezing", "mahalanobis")
    """A detector: background, feature-squeezing, mahalanobis, or file.py:Class."""
    fpr: float = Field(default=0.05, gt=0, lt=0.5)
    """The false-alarm rate on clean inputs at which the threshold is set."""
    fit: int = Field(default=2000, ge=20)
    """The clean inputs that detectors are fitted to. As many others set the threshold."""
    samples: int = Field(default=200, ge=1)
    """The number of samples of the run, counted from the first."""
    eps: Budgets | None = None
    """The budget of the adaptive attack. Default: the run's largest."""
    steps: int = Field(default=100, ge=0)
    """The gradient steps of the adaptive attack. 0 leaves it out."""
    seed: Seed = 0
