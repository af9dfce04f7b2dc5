"""The settings of `brinell detect`."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, Budgets, DataSpec, Folder, Seed


class DetectRequest(BaseRequest):
    """The settings of `brinell detect`."""

    run: Folder
    """A finished run folder of brinell audit."""
    train: DataSpec
    """Clean data that the detectors are fitted to. It must not contain samples of the run."""
    detector: tuple[Annotated[str, Names("detector")], ...] = ("background", "feature-squeezing", "mahalanobis")
    """A detector: background, feature-squeezing, mahalanobis, or file.py:Class."""
    fpr: float = Field(default=0.05, gt=0, lt=0.5)
    """The false-alarm rate on clean inputs, which determines the threshold."""
    fit: int = Field(default=2000, ge=20)
    """Number of clean inputs that detectors are fitted to. As many further inputs determine the threshold."""
    samples: Annotated[int, Field(ge=1)] | Literal["all"] = 200
    """Number of samples of the run, counted from the first."""
    eps: Budgets | None = None
    """The budget of the adaptive attack. Default: the run's largest."""
    steps: int = Field(default=100, ge=0)
    """Gradient steps of the adaptive attack. 0 leaves it out."""
    seed: Seed = 0
