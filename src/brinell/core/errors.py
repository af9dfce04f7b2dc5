"""What goes wrong, in one line: what happened, why, and what to do about it. The command line turns each into its exit code."""


def one_line(error: BaseException, most: int = 300) -> str:
    """What an error says, without line breaks and cut to `most` characters; the name of its class where it says nothing."""
    return " ".join(str(error).split())[:most] or type(error).__name__


class BrinellError(Exception):
    """Base of every error that a user can mend. Its text is one line: what, why, what to do."""

    exit_code = 2


class BrinellWarning(UserWarning):
    """What a reader of figures must know before them: a failed check, a doubt about a budget."""


class RequestError(BrinellError):
    """A request that cannot be carried out: a bad option, a damaged file, a model that does not fit the data (exit 2)."""


class ModelError(BrinellError):
    """A model that answers with what no classifier may answer: NaN, a wrong shape (exit 2)."""


class StoppedError(BrinellError):
    """A run that stopped midway, with everything computed so far on disk (exit 3)."""

    exit_code = 3
    resumable = True
    """Whether going on may end otherwise."""


class DivergedError(StoppedError):
    """A training whose loss is no number: going on would end the same way (exit 3)."""

    resumable = False


class MemoryShortError(BrinellError):
    """The device had no memory for a batch; an audit halves its batches and asks again (exit 2)."""


class BatchError(ModelError):
    """A model that raises on a batch; whether one sample is to blame shows when the others are asked without it (exit 2)."""


class ContractError(BrinellError):
    """A plugin that broke its contract: an input out of bounds or over budget, undeclared access, a query too many (exit 2)."""


class UnreachableError(StoppedError):
    """A model on another machine that does not answer, or no longer answers sensibly (exit 3)."""


class SampleError(ModelError):
    """Samples that cannot be judged while the rest can: the model fails on them alone, or their inputs cannot be read."""
