"""Prove robustness in L2 of the smoothed model, which answers the class that is most frequent under Gaussian noise."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.engine.request import JOINED, BaseRequest, BatchSize, Budgets, DataSpec, Device, ModelSpec, Seed
from brinell.studies.kit import Study


class SmoothRequest(BaseRequest):
    """The settings of `brinell smooth`."""

    data: DataSpec = "digits"
    """The data, as for brinell audit."""
    model: ModelSpec = "digits-cnn"
    """The model, as for brinell audit: its predicted class is enough, so that models behind a server will do."""
    sigma: float = Field(default=0.25, gt=0, le=1e6)
    """Standard deviation of the noise, in the units of the data. Larger noise allows larger radii and costs accuracy."""
    draws: int = Field(default=10_000, ge=2, le=10_000_000)
    """Noisy inputs by which the share of the class is bounded. More draws allow larger radii: at most 2.46, 3.20 and 3.81 times
    sigma for 1,000, 10,000 and 100,000 at alpha 0.001."""
    first: int = Field(default=100, ge=1, le=1_000_000)
    """Other noisy inputs, by which the class is chosen."""
    alpha: float = Field(default=0.001, gt=0, lt=0.5)
    """Largest probability that a radius is too large, for each sample."""
    eps: Annotated[Budgets | None, JOINED] = None
    """Radii in L2, such as 0:1:5. Default: five from 0 to the largest that the draws allow."""
    samples: int | None = Field(default=None, ge=1)
    """The number of samples. Default: 100, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """How samples are selected: first, stratified or random."""
    seed: Seed = 0
    batch_size: BatchSize = 1000
    device: Device = "auto"


STUDY = Study(
    package=__name__,
    verb="smooth",
    request=SmoothRequest,
    plan="run:make_plan",
    pieces="run:pieces",
    rows="result:Radii",
    facts="result:SmoothFacts",
    summarise="result:summarise",
    result="result:SmoothResult",
    examples=(
        "brinell smooth",
        "brinell smooth --data npz:TEST.npz --model model.py:make?weights=W.safetensors --sigma 0.25 --draws 100000",
    ),
)
