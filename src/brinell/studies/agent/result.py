"""The result of a training of an agent: its queries, its surrogates, and whether it needs fewer
queries than others.
"""

from typing import Literal

from brinell.analysis.folder_result import Result
from brinell.reports.numbers import counted
from brinell.reports.values import Report, Step
from brinell.studies.result import ReportedResult


class AgentValidation(Result):
    """Performance of an agent on held-out inputs.

    An input that it did not fool counts with its full query budget.
    """

    inputs: int
    """How many."""
    budget: int
    """Queries of one input at most."""
    fooled: int
    """How many of them the policy fooled."""
    cause: Literal["", "strength", "eps", "queries"]
    """Why most were not fooled: distortions that do not fill the budget, a full budget, few
    queries; empty for none."""
    queries: dict[str, float]
    """Mean queries of an input: of the policy, of greedy, of the default where it is another,
    and of Square."""
    ratios: dict[str, tuple[float, float | None, float | None]]
    """Mean queries of the policy over those of each other, with the ends of the 95 % interval
    over inputs; null where fewer than 30 inputs, or fewer than 8 that differ, allow none."""
    verdict: str
    """The same in a sentence."""


class AgentResult(ReportedResult):
    """What `brinell train agent --json` prints."""

    policy: str
    """The policy file."""
    inputs: int
    """Inputs that it learned on."""
    training_queries: dict[str, int]
    """Forward evaluations by what they were for: first looks, selection of surrogates, probes,
    steps and validation."""
    surrogates: int
    """Small networks in the file, of those trained on the data, whose gradients explain the
    model's answers."""
    surrogate_passes: dict[str, int]
    """Passes of surrogates by what they were for, each a forward and a backward of one of them;
    they are no queries."""
    validation: AgentValidation | None
    """Performance on held-out inputs; null if there were none."""
    kept: Literal["all", "network", "prior", "greedy"]
    """What the file holds: all of the papers' agent; else what needed the fewest queries on
    inputs set aside."""
    command: str
    """A command that audits with the policy, its distortions and patches included, on other data
    than it learned on."""

    def report(self) -> Report:
        """The lines of the terminal."""
        queries = counted(sum(self.training_queries.values()), "training query", "training queries")
        surrogates = f", and follows {counted(self.surrogates, 'surrogate')}" * bool(
            self.surrogates
        )
        verdict = (
            []
            if self.validation is None
            else [f"{self.validation.verdict[0].upper()}{self.validation.verdict[1:]}."]
        )

        return Report(
            verb="train agent",
            title="Policy",
            subject=self.policy,
            sentences=[
                *verdict,
                KEPT[self.kept],
                f"It learned on {counted(self.inputs, 'input')} with {queries}{surrogates}.",
            ],
            steps=[Step("Audit with the policy, on data that it has not seen.", self.command)],
        )


KEPT = {
    "all": "The file holds the papers' own agent.",
    "network": "The file holds the network and its prior, which needed the fewest queries "
    "on inputs set aside.",
    "prior": "The file holds the prior alone: on inputs set aside the network needed no "
    "fewer queries.",
    "greedy": "The file plays greedy: on inputs set aside neither the network nor the "
    "prior needed fewer queries.",
}
"""What is left of what was learned, by its name."""
