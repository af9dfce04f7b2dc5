"""One way to attack inputs, and one way to ask about them: both build the ledger that counts and
judges.

An attack is handed the ledger's oracle, its batch and its threat, and what came of each sample
stands in the ledger afterwards. An explainer or a check,
which asks without being an attack, gets a ledger whose questions may go anywhere in the domain.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from brinell.core.contracts import Attack, Extras, reach_of
from brinell.core.eot import Precision
from brinell.core.errors import TimeUpError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat

OnPass = Callable[[int, int], None]
"""Told the forward and the backward evaluations of each batch of queries."""


def attack(
    model: Model,
    batch: Batch,
    threat: Threat,
    method: Attack,
    rng: Streams,
    *,
    queries: int | None = None,
    batch_size: int = 128,
    eot: int = 1,
    precision: Precision = "float32",
    strongest: bool = False,
    surrogates: Sequence[Model] = (),
    least: Tensor | None = None,
    on_pass: OnPass | None = None,
) -> tuple[Ledger, Extras]:
    """Attack a batch by a method; return the ledger, which judged it, and what the method says
    besides.

    Args:
        model: the model.
        batch: the samples, with ids 0 to n-1.
        threat: the budget of each sample and the criterion of success.
        method: the attack with its settings.
        rng: a stream of random numbers for each sample.
        queries: forward evaluations allowed for each sample; None for no limit.
        batch_size: the most inputs shown to the model at once.
        eot: answers by whose mean a question is answered.
        precision: precision of gradients away from the boundary.
        strongest: whether to keep the inputs of the largest margins (`Ledger.strongest`).
        surrogates: networks whose gradients the attack may follow.
        least: (n,) the smallest budgets of interest, where a minimal attack that stops at eps
            stops.
        on_pass: gets the forward and backward passes of each batch of queries; a TimeUpError that
            it raises ends the attack, and the ledger keeps everything found so far.

    Raises:
        ContractError: the attack breaks its contract.
        ModelError: the model gives no answer that can be judged.
    """
    ledger = Ledger(
        model,
        batch,
        threat,
        access=method.access,
        queries=queries,
        batch_size=batch_size,
        minimal=method.family == "minimal",
        reach=reach_of(method, threat.distance.name),
        eot=eot,
        precision=precision,
        strongest=strongest,
        surrogates=surrogates,
        least=least,
        on_pass=on_pass,
    )

    # The attack never sees the model: the oracle stands for it, and the ledger judges.
    try:
        extras = method(ledger.oracle(), ledger.batch, ledger.threat, rng)
    except TimeUpError:
        ledger.cut()
        extras = None
    return ledger, extras or Extras()


def open_questions(
    model: Model,
    batch: Batch,
    threat: Threat,
    *,
    access: Access = Access.GRADIENTS,
    anywhere: bool = True,
    batch_size: int = 128,
    strongest: bool = False,
    on_pass: OnPass | None = None,
) -> Ledger:
    """A ledger for questions that no attack asks.

    Args:
        model: the model.
        batch: the samples, with ids 0 to n-1.
        threat: the budget of each sample and the criterion of success.
        access: the most that is asked of the model.
        anywhere: whether inputs beyond the budgets may be asked about, and fooled samples go on.
        batch_size: the most inputs shown to the model at once.
        strongest: whether to keep the inputs of the largest margins.
        on_pass: told of each batch of queries.
    """
    # A minimal ledger is one that may look beyond the budget and goes on after a success.
    return Ledger(
        model,
        batch,
        threat,
        access=access,
        batch_size=batch_size,
        minimal=anywhere,
        strongest=strongest,
        on_pass=on_pass,
    )
