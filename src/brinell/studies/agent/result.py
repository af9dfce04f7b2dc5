"""What the training of an agent says."""

from collections.abc import Iterator

from brinell.analysis.results import Result


class AgentValidation(Result):
    """What an agent is worth on inputs that it did not learn from. An input that it did not fool counts with the budget."""

    inputs: int
    """How many."""
    budget: int
    """Queries of one input at most."""
    queries: dict[str, float]
    """Mean queries of an input: of the policy, of greedy, of the default where it is another, and of the policy's own prior."""
    ratios: dict[str, tuple[float, float, float]]
    """Mean queries of the policy over those of each other, with the ends of the 95 % bootstrap interval over inputs."""
    verdict: str
    """The same in a sentence."""
    warning: str | None
    """What to do where the policy needs more queries than greedy; null where it does not."""


class AgentResult(Result):
    """What `brinell train-agent --json` prints."""

    policy: str
    """The policy file."""
    inputs: int
    """Inputs that it learned on."""
    training_queries: dict[str, int]
    """Forward evaluations by what they were for: first looks, probes, steps and validation."""
    validation: AgentValidation | None
    """What it is worth on inputs that it did not learn from; null where there was none to hold out."""


def lines(result: AgentResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    yield f"{result.inputs} inputs, {sum(result.training_queries.values()):,} training queries"
    if result.validation:
        yield result.validation.verdict
        if result.validation.warning:
            yield f"warning: {result.validation.warning}"
    yield f"policy: {result.policy} (brinell audit --attack 'rlab?policy={result.policy}')"
