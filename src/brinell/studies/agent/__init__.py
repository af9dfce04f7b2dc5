"""Train an agent for the attack rlab and write it as one file.

A prior on which patches of an input are sensitive is fitted to random distortions, then the agent
is trained on episodes. What does not save queries on inputs set aside is left out. A fifth of the
inputs is held out: at the end up to 100 of them are attacked by the agent, by greedy, the default
and Square, and the answer says which needs fewer queries. Every query is counted. The attack
rlab?policy=dqn trains the agent of RLAB's papers, a dueling DQN alone.
"""

from pydantic import Field

from brinell.engine.request import (
    AttackSpec,
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    DistanceSpec,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Output, Study

MOST_SURROGATES = 8
"""Surrogates of a file at most."""


class TrainAgentRequest(BaseRequest):
    """The settings of `brinell train agent`."""

    data: DataSpec = "digits?split=train"
    """The inputs to train on; those that are audited later should not be among them."""
    model: ModelSpec = "digits-cnn"
    """The model whose scores the agent sees."""
    attack: AttackSpec = "rlab"
    """The attack that the agent is for, with its distortions, patches and steps, 300 by default:
    rlab?distortions=gaussian-noise+fog&patch=4&steps=200."""
    norm: DistanceSpec = "l2"
    """The distance in which eps is measured: l2 or linf."""
    eps: Budgets = "1"
    """The budget of the episodes, such as 1 or 8/255."""
    criterion: str | None = None
    """The criterion of success for masks and boxes, as for brinell audit, such as pixels:0.5 or
    missed:0.5. Default: half of the pixels are wrong, or half of the objects are missed."""
    samples: SampleCount = None
    """The number of inputs, or all; those that the model gets wrong, or that meet the criterion,
    are left out. Default: the first 1000, or all if there are fewer."""
    minutes: float = Field(default=3.0, gt=0)
    """The wall time of the training of the network alone. Surrogates and probes before it, and the
    choice and validation after it, take time that grows with the samples."""
    steps: int | None = Field(default=None, ge=0)
    """The steps of that training, in place of minutes: such a training is repeatable. 0 fits the
    prior alone."""
    surrogates: int = Field(default=3, ge=0, le=MOST_SURROGATES)
    """Small networks that are trained on the labelled data; those whose gradients explain the
    model's answers are kept in the file as surrogates. 0 trains none, and data with masks or
    boxes, which label no input, train none."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


STUDY = Study(
    verb="train agent",
    request=TrainAgentRequest,
    result="result:AgentResult",
    output=Output.FILE,
    examples=(
        "brinell train agent --data FILE.npz --model model.py:factory --out policy.safetensors",
        "brinell train agent --data masks:FOLDER --model model.py:segmentation "
        "--norm l2 --eps 2 --out policy.safetensors",
    ),
)
