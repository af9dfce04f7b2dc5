"""What `brinell harden` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import JOINED, AttackSpec, BaseRequest, Budgets, DataSpec, Device, DistanceSpec, ModelSpec, Seed


class HardenRequest(BaseRequest):
    """What `brinell harden` is asked for."""

    data: DataSpec = "digits"
    """The data that the model is audited on before and after, and never trained on."""
    train: DataSpec | None = None
    """The training data. Default: the same data with split=train, where they have such a split."""
    model: ModelSpec = "digits-cnn"
    """The model to harden, named as for brinell audit. What a factory leaves to chance follows from the seed."""
    recipe: Annotated[str, Names("defence")] = "pgd"
    """How to train: pgd, n-fgsm and what `brinell plugins defence` lists; several share each batch as pgd+distortions, settings
    stand in brackets as pgd(steps=5)."""
    norm: DistanceSpec = "linf"
    """The distance of eps: linf or l2."""
    eps: Budgets | None = None
    """The budget that is trained for, such as 8/255. Default: the largest of the field's usual ones for images."""
    epochs: float = Field(default=30.0, gt=0)
    """How often each training sample is seen."""
    minutes: float | None = Field(default=None, gt=0)
    """The time of the training in place of epochs: processor time on a CPU, wall time on a GPU."""
    ramp: float = Field(default=0.3, ge=0, le=1)
    """The share of the training in which eps rises from 0."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """The optimiser."""
    rate: float | None = Field(default=None, gt=0)
    """The largest learning rate. Default: 0.005 for adamw and 0.02 for sgd; large networks that were trained before want less,
    and with sgd those with batch norm more."""
    weight_decay: float = Field(default=5e-4, ge=0)
    """The weight decay."""
    batch_size: int = Field(default=64, ge=1)
    """The samples of a step, and the most inputs shown to the model at once."""
    augment: Literal["none", "shift", "shift-flip"] = "none"
    """What is done to training images: shifted by up to an eighth of their side, with the edge mirrored outwards, or that and
    half of them mirrored."""
    clip: float = Field(default=1.0, ge=0)
    """The length to which longer gradients are scaled, which sets the pace of most steps; 0 leaves gradients as they are."""
    average: float = Field(default=0.999, ge=0, lt=1)
    """What the average of the weights, which is kept, remembers at each step; 0 keeps the last weights."""
    validation: int = Field(default=500, ge=1)
    """The most training samples that are set aside, and by which the best weights are chosen; never more than a tenth."""
    patience: int | None = Field(default=None, ge=1)
    """The checks without a better robust accuracy after which the training stops. Default: it goes on to its end."""
    precision: Literal["float32", "bf16"] = "float32"
    """The precision of the training: float32, or bf16 where the processor computes it faster. Audits are in float32."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """The attacks of the audits, named as for brinell audit."""
    budgets: Annotated[Budgets | None, JOINED] = None
    """The budgets of the audits, such as 0:8/255:9. Default: five from 0 to eps."""
    samples: int = Field(default=200, ge=1)
    """The most samples of the audits; more make intervals narrower, and take their time twice."""
    seed: Seed = 0
    device: Device = "auto"
