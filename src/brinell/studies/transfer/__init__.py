"""Measure how adversarial examples transfer between models: examples made now, or read from
benchmark sets.

Without options it compares four networks for digits: one, the same retrained, a narrower and a
wider one.
"""

from brinell.engine.request import (
    AttackSpec,
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    DistanceSpec,
    Folder,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study

DIGITS = ("digits-cnn", "digits-cnn?seed=1", "digits-cnn?width=8", "digits-cnn?width=32")
"""The default models for digits: one network, the same retrained, a narrower and a wider one."""


class TransferRequest(BaseRequest):
    """The request of `brinell transfer`."""

    source: tuple[Folder, ...] = ()
    """A source of adversarial examples: the folder of a benchmark set, or the name of a model
    among those of --model, which is attacked. Names joined by + are attacked as one model, by
    the mean of their logits. Default: each model."""
    data: DataSpec | None = None
    """The data, as for brinell audit. Default: the clean inputs of the first benchmark set, or
    digits."""
    model: tuple[ModelSpec, ...] = ()
    """A model on which the examples are evaluated, as for brinell audit. Default: for digits,
    the built-in network, the same retrained, a narrower and a wider one."""
    norm: DistanceSpec = "linf"
    """The distance in which eps is measured: linf, l2, l1, l0, pixels or patch."""
    eps: Budgets | None = None
    """The budget of the examples that are made. Default: the largest budget that is usual in the
    field."""
    attack: AttackSpec | None = None
    """The attack that makes examples, for example mi-fgsm?diverse=0.5&kernel=3 or apgd-ce. It
    runs all its steps on each sample. Default: mi-fgsm; for masks and boxes the usual one of an
    audit."""
    criterion: str | None = None
    """For masks, boxes and other tasks, what ends the attacks on a picture, as for
    brinell audit.
    """
    samples: SampleCount = None
    """The number of samples, or all. Default: 1000, or all if there are fewer."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="transfer",
    keeps_region=True,
    request=TransferRequest,
    rows="result:ExampleRows",
    result="result:TransferResult",
    positional=("source",),
    examples=(
        "brinell transfer",
        "brinell transfer --data FILE.npz --model model.py:plain --model "
        "model.py:robust --eps 8/255",
        "brinell transfer SET plain plain+robust --data FILE.npz --model "
        "model.py:plain --model model.py:robust",
    ),
    of_tasks=Study(
        package=f"{__name__}.tasks",
        verb="transfer pictures",
        keeps_region=True,
        request=TransferRequest,
        rows="result:TransferRows",
        result="result:TaskTransferResult",
        positional=("source",),
        examples=(
            "brinell transfer --data 'masks:FOLDER?side=257' --model "
            "narrow.py:network --model wide.py:network --eps 1/255",
            "brinell transfer network --data boxes:FOLDER --model "
            "detector.py:network --model detector.onnx",
        ),
    ),
)
