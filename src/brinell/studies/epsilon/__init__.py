"""Measure distances between the samples of each class, and recommend an eps for the data, each
class and each sample.

brinell audit --eps recommended:FOLDER attacks each sample within its recommended eps. brinell
review asks people which changes they notice.
"""

from typing import Literal

from pydantic import Field, field_validator

from brinell.engine.request import BaseRequest, Budgets, DataSpec, Folder, SampleCount, Seed
from brinell.studies.kit import Study


class EpsilonRequest(BaseRequest):
    """Settings of `brinell epsilon`."""

    data: DataSpec
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR."""
    train: DataSpec | None = None
    """The training data of the model, which also provide neighbours."""
    norm: tuple[Literal["linf", "l2", "l1", "l0"], ...] = ("linf", "l2")
    """A norm of the recommendation: linf, l2, l1, l0. L1 and L0 take minutes on some 10,000
    pictures."""
    samples: SampleCount = None
    """The number of samples, or all, counted from the first. Default: all."""
    eps: Budgets | None = None
    """A budget to judge in the first norm: which limits it keeps, by class."""
    pairs: int = Field(default=100, ge=0)
    """The number of samples of each class that measure mean distances in Linf, L1 and L0, and
    perceptibility. 0 means all."""
    allow: float = Field(default=0.01, ge=0, lt=1)
    """The share of samples on which a common eps of a class or of the data may break a
    condition."""
    ssim: float = Field(default=0.9, gt=0, le=1)
    """The least structural similarity (SSIM) that counts as unnoticed."""
    psnr: float = Field(default=30.0, gt=0)
    """The least peak signal-to-noise ratio in dB that counts as unnoticed."""
    evidence: tuple[Folder, ...] = ()
    """A review, in which people said which changes they notice, in place of random changes."""
    seed: Seed = 0

    @field_validator("eps")
    @classmethod
    def _one_budget(cls, value: str | None) -> str | None:
        # The list of commands starts without numpy.
        from brinell.engine.eps_grid import parse_eps

        if value is not None and [eps > 0 for eps in parse_eps(value).values] != [True]:
            raise ValueError("one budget above 0 is judged, such as 0.3 or 8/255")
        return value

    @field_validator("norm", "evidence")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("each may occur only once")
        return value


STUDY = Study(
    verb="epsilon",
    request=EpsilonRequest,
    rows="result:Distances",
    result="result:EpsilonResult",
    positional=("data",),
    memory=("data", "train"),
    examples=(
        "brinell epsilon FILE.npz --train TRAIN.npz",
        "brinell epsilon FILE.npz --norm linf --norm l2 --evidence REVIEW",
        "brinell epsilon FILE.npz --eps 0.3",
    ),
)
