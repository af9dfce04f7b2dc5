"""`brinell train-agent`: an RLAB agent that is trained on inputs and a model of one's own."""

from typing import TYPE_CHECKING

from brinell.cli.options import show, tell
from brinell.cli.verb import Asked, verb
from brinell.studies.agent.request import TrainAgentRequest

if TYPE_CHECKING:
    from brinell.rlab.train import Report


@verb(
    TrainAgentRequest,
    file="The policy file to write; name it in brinell audit as --attack 'rlab?policy=FILE'.",
    resume="Go on with the policy in --out, if there is one.",
)
def train_agent(asked: Asked) -> int:
    """Train an agent for the attack rlab and write it as one file.

    A prior on which patches of an input are sensitive is fitted to random distortions, then the agent is trained on episodes. The
    file is written at every report, so that an interruption loses little: with --resume the same command goes on. A fifth of the
    inputs is held out: at the end up to 100 of them are attacked by the agent, by greedy and by the default, and the answer says
    which needs fewer queries. Every query is counted.
    """
    from brinell.cli.schemas import AgentAnswer, AgentValidation
    from brinell.rlab.validation import verdict, warning
    from brinell.studies.agent.run import train_agent as train

    request, out = asked.request(TrainAgentRequest), asked.path
    asked.begin(request, out)
    about = train(request, out, _tell, resume=asked.resume).about or {}
    told = about["validation"]
    answer = AgentAnswer(
        policy=str(out),
        inputs=about["inputs"],
        training_queries=about["training_queries"],
        validation=told and AgentValidation(verdict=verdict(about), warning=warning(about) or None, **told),
    )

    def in_words() -> None:
        show(f"{answer.inputs} inputs, {sum(answer.training_queries.values()):,} training queries")
        if answer.validation:
            show(answer.validation.verdict)
            if answer.validation.warning:
                show(f"warning: {answer.validation.warning}")
        show(f"policy: {out} (brinell audit --attack 'rlab?policy={out}')")

    return asked.answer(answer, in_words)


def _tell(report: "Report") -> None:
    said = {name: value for name, value in report.values.items() if isinstance(value, int | float)}
    tell(f"{report.stage}: " + ", ".join(f"{name} {value:.4g}" for name, value in said.items()))
