"""The result of a training of an agent: its queries, its surrogates, and whether it needs fewer queries than others."""

from typing import Literal

from brinell.analysis.folder_result import Result
from brinell.reports.numbers import counted, whole
from brinell.reports.values import Measure, Note, Report, Step, Table
from brinell.studies.result import ReportedResult


class AgentValidation(Result):
    """Performance of an agent on held-out inputs. An input that it did not fool counts with its full query budget."""

    inputs: int
    """How many."""
    budget: int
    """Queries of one input at most."""
    fooled: int
    """How many of them the policy fooled."""
    cause: Literal["", "strength", "eps", "queries"]
    """Why most were not fooled: distortions that do not fill the budget, a full budget, few queries; empty for none."""
    queries: dict[str, float]
    """Mean queries of an input: of the policy, of greedy, of the default where it is another, and of the policy's own prior."""
    ratios: dict[str, tuple[float, float, float]]
    """Mean queries of the policy over those of each other, with the ends of the 95 % interval over inputs."""
    verdict: str
    """The same in a sentence."""
    warning: str | None
    """What to do where the policy needs more queries than greedy; null where it does not."""


class AgentSurrogate(Result):
    """A small network that was trained on the data."""

    width: int
    """Channels of its first convolution, or units of each layer for vectors."""
    kernel: int
    """Side of its convolutions; 1 for vectors."""
    accuracy: float | None
    """Accuracy on inputs that it did not learn on."""
    correlation: float
    """Mean correlation, over inputs set aside, of the model's answers to probes with those that its gradient lets expect."""
    low: float
    """The lower end of the 95 % interval of that."""
    kept: bool
    """True if that is above 0, so that the file keeps the network."""


class AgentResult(ReportedResult):
    """What `brinell train agent --json` prints."""

    policy: str
    """The policy file."""
    inputs: int
    """Inputs that it learned on."""
    training_queries: dict[str, int]
    """Forward evaluations by what they were for: first looks, selection of surrogates, probes, steps and validation."""
    surrogates: list[AgentSurrogate]
    """The small networks that were trained on the data."""
    surrogate_passes: dict[str, int]
    """Passes of surrogates by what they were for, each a forward and a backward of one of them; they are no queries."""
    validation: AgentValidation | None
    """Performance on held-out inputs; null if there were none."""
    command: str
    """A command that audits with the policy, its distortions and patches included."""

    def report(self) -> Report:
        """The lines of the terminal."""
        queries = counted(sum(self.training_queries.values()), "training query", "training queries")
        learned = f"It learned on {counted(self.inputs, 'input')} with {queries}."
        verdict = [] if self.validation is None else [f"{self.validation.verdict[0].upper()}{self.validation.verdict[1:]}."]
        warned = self.validation is not None and self.validation.warning
        return Report(
            verb="train agent",
            title="Policy",
            subject=self.policy,
            sentences=[*verdict, learned],
            blocks=[self._surrogates()] if self.surrogates else [],
            notes=[Note("no-better-than-greedy", "warn", warned)] if warned else [],
            steps=[Step("Audit with the policy.", self.command)],
        )

    def _surrogates(self) -> Table:
        count = sum(network.kept for network in self.surrogates)
        return Table(
            title=f"Surrogates: {count} of {counted(len(self.surrogates), 'network')} kept, "
            f"{whole(sum(self.surrogate_passes.values()))} passes, which are no queries",
            columns=("width", "kernel", "accuracy", "correlation with the model", "from", "kept"),
            rows=[(one.width, one.kernel, one.accuracy, Measure(one.correlation), one.low, one.kept) for one in self.surrogates],
            terminal=True,
        )
