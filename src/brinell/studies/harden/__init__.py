"""Train a model adversarially, and audit it before and after on data that the training never uses.

By default it hardens the built-in network on real handwritten digits.
"""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import (
    JOINED,
    AttackSpec,
    BaseRequest,
    Budgets,
    DataSpec,
    Device,
    DistanceSpec,
    ModelSpec,
    Seed,
)
from brinell.studies.kit import Study

TRAINING = "the training: that the recipe makes the stored weights, and the history of its checks"


class HardenRequest(BaseRequest):
    """The settings of `brinell harden`."""

    data: DataSpec = "digits"
    """The data of both audits. The training never uses it."""
    train: DataSpec | None = None
    """The training data. Default: the training split of --data, if there is one."""
    model: ModelSpec = "digits-cnn"
    """The model to harden, named as for brinell audit. The seed determines the random
    initialisation of a factory."""
    recipe: Annotated[str, Names("defence")] = "pgd"
    """The training recipe: pgd, n-fgsm or a name that `brinell plugins defence` lists. Join
    recipes with +, as in pgd+distortions; they share each batch. Write settings in brackets, as
    in pgd(steps=5)."""
    norm: DistanceSpec = "linf"
    """The distance of eps: linf or l2."""
    eps: Budgets | None = None
    """The training budget, such as 8/255. Default: the largest of the field's usual budgets for
    images."""
    epochs: float = Field(default=30.0, gt=0)
    """Number of passes over the training samples."""
    minutes: float | None = Field(default=None, gt=0)
    """Duration of the training in minutes; overrides epochs. Counts processor time on a CPU,
    wall time on a GPU."""
    ramp: float = Field(default=0.3, ge=0, le=1)
    """Fraction of the training over which eps rises from 0."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """The optimiser."""
    rate: float | None = Field(default=None, gt=0)
    """The largest learning rate. Default: 0.005 for adamw and 0.02 for sgd. Large pretrained
    networks need less; networks with batch norm need more with sgd."""
    batch_size: int = Field(default=64, ge=1)
    """Samples in a training step, and the largest batch that the model evaluates."""
    augment: Literal["none", "shift", "shift-flip"] = "none"
    """Augmentation of training images: shifts of up to an eighth of their side with mirrored
    padding, or such shifts and horizontal flips of half of the images."""
    average: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the moving average of the weights at each step. 0 keeps the last weights instead
    of the average."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Precision of the training: float32; tf32, several times faster on GPUs; or bf16, where it
    is faster. Audits use float32."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """The attacks of the audits, named as for brinell audit."""
    budgets: Annotated[Budgets | None, JOINED] = None
    """The budgets of the audits, such as 0:8/255:9. Default: five from 0 to eps."""
    samples: Annotated[int, Field(ge=1)] | Literal["all"] = 200
    """Most samples in each audit. More samples give narrower intervals and cost time in both
    audits."""
    seed: Seed = 0
    device: Device = "auto"


STUDY = Study(
    verb="harden",
    request=HardenRequest,
    rows="result:Checks",
    checks_fit=False,  # its network may be untrained, and both audits check it
    result="result:HardenResult",
    claimed=(("rows.parquet", TRAINING), ("checkpoints/last.safetensors", TRAINING)),
    memory=("model", "data", "train"),
    needs_inputs=True,
    ignored=("device",),
    examples=(
        "brinell harden --data digits",
        "brinell harden --data TEST.npz --train TRAIN.npz --model "
        "model.py:factory --eps 8/255 --recipe trades+awp",
    ),
)
