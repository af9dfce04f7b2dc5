"""Train an agent for the attack rlab and write it as one file.

A prior on which patches of an input are sensitive is fitted to random distortions, then the agent is trained on episodes. The
file is written at every report, so that an interruption loses little: with --resume the same command goes on. A fifth of the
inputs is held out: at the end up to 100 of them are attacked by the agent, by greedy and by the default, and the answer says
which needs fewer queries. Every query is counted.
"""

from brinell.studies.agent.request import TrainAgentRequest
from brinell.studies.kit import Output, Study

STUDY = Study(
    package=__name__,
    verb="train-agent",
    request=TrainAgentRequest,
    run="run:carry_out",
    result="run:AgentResult",
    lines="run:lines",
    output=Output.FILE,
    file="run:read_manifest",
    repeat="run:repeat",
    claimed=tuple(
        (f"*.safetensors:{key}", "the training: that it makes the stored weights, its settings, its history and its queries")
        for key in (
            "prior",
            "network",
            "surrogates",
            "classes",
            "class_names",
            "about.surrogates",
            "about.surrogate_passes",
            "about.config",
            "about.curve",
            "about.training_queries",
            "about.eps",
            "about.reward",
            "width",
            "scale",
            "families",
        )
    ),
    out="The policy file to write; name it in brinell audit as --attack 'rlab?policy=FILE'.",
    resume="Go on with the policy in --out, if there is one.",
    truth=True,
    examples=(
        "brinell train-agent --data FILE.npz --model model.py:factory --out policy.safetensors",
        "brinell train-agent --data masks:FOLDER --model model.py:segmentation --norm l2 --eps 2 --out policy.safetensors",
    ),
)
