"""Measure distances between the samples of each class, and recommend an eps for the data, each class and each sample.

brinell audit --eps recommended:FOLDER attacks each sample within its recommended eps. brinell review asks people which changes
they notice.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from brinell.engine.request import BaseRequest, DataSpec, Folder, ModelSpec
from brinell.studies.kit import Study


class EpsilonRequest(BaseRequest):
    """Settings of `brinell epsilon`."""

    data: DataSpec
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR."""
    train: DataSpec | None = None
    """The training data of the model, which also provide neighbours."""
    norm: tuple[Literal["linf", "l2", "l1", "l0"], ...] = ()
    """A norm of the recommendation: linf, l2, l1, l0. Default: linf and l2, and the others if they take no longer than
    seconds."""
    samples: Annotated[int, Field(ge=2)] | Literal["all"] | None = None
    """The number of samples, or all, counted from the first. Default: all."""
    pairs: int = Field(default=100, ge=0)
    """The number of samples of each class that measure mean distances in Linf, L1 and L0, and perceptibility. 0 means all."""
    fraction: float = Field(default=0.5, gt=0, le=1)
    """Label constancy: eps is at most this fraction of the distance to the nearest sample of another class."""
    allow: float = Field(default=0.01, ge=0, lt=1)
    """The share of samples on which a common eps of a class or of the data may break a condition."""
    conditions: tuple[Literal["label", "interpolation", "perception"], ...] = ("label", "interpolation", "perception")
    """A condition that the recommended eps keeps: label, interpolation or perception."""
    ssim: float = Field(default=0.9, gt=0, le=1)
    """The least structural similarity (SSIM) that counts as unnoticed."""
    psnr: float = Field(default=30.0, gt=0)
    """The least peak signal-to-noise ratio in dB that counts as unnoticed."""
    evidence: tuple[Folder, ...] = ()
    """A folder with evidence of which changes are noticed, instead of random changes: a review by people, or an audit of the same
    data with stored adversarial examples."""
    model: ModelSpec | None = None
    """A model that classifies the crafted counter-examples: digits-cnn, torch:FILE.py:FACTORY?weights=FILE."""
    seed: int = Field(default=0, ge=0)
    """The seed of random changes and of the subset of samples."""

    @field_validator("norm", "conditions", "evidence")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a value that occurs twice."""
        if len(set(value)) < len(value):
            raise ValueError("each may occur only once")
        return value


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
