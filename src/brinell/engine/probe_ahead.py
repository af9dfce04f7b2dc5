"""Check that no attack which does not follow gradients outdoes those that do: then gradients
mislead.

Square asks about the margin, the boundary walk about the boundary; the attacks before them climb
other losses, some for a few steps. So where a probe seems to be ahead, APGD on the margin attacks
the same samples with as many passes, and only what the probe is still ahead on counts (Croce & Hein
2020 compare success alone).
"""

from torch import Tensor

from brinell import plugins
from brinell.core.attack import attack
from brinell.core.checks import ERROR_RATE, Code, Finding, exact_test
from brinell.core.contracts import Attack
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat

AHEAD = 0.1
"""A probe is ahead on a sample if it leaves less of the clean margin, by at least this share."""
LIMIT = 0.05
"""Share of the robust samples on which a probe may be ahead: on networks whose gradients lead
none to 4 % were seen, and 10 % or more on masked ones (design/0005-fast.md)."""
SAMPLES = 64
"""Largest number of samples on which both are compared."""


def is_ahead(count: int, compared: int, probes: int) -> bool:
    """True if a probe is ahead on more samples than on a healthy model, at the error rate of one of
    so many probes.
    """
    return compared > 0 and exact_test(count, compared, LIMIT, ERROR_RATE / probes)[0]


def check_lead(
    model: Model,
    opening: str,
    batch: Batch,
    threat: Threat,
    reach: Tensor,
    counts: tuple[int, int],
    probes: int,
    passes: int,
    rng: Streams,
    batch_size: int,
) -> tuple[Finding, int, int]:
    """Make the comparison; return the finding, and the forwards and backwards that it cost.

    The batch holds at most `SAMPLES` samples on which the probe is ahead, with ids 0 to n-1, and
    `counts` how many these are and how many it attacked. The run compares so many probes (`probes`)
    at most, and all have one error rate together. `reach` (n,) is the margin that it
    reached, from which it counts as ahead: infinite where it broke the sample. It spends at most
    `passes` forwards and backwards on a sample; the text begins with its name, `opening`.
    """
    # As many passes as the probe had: a step costs a forward and a backward.
    climb: Attack = plugins.build(
        "attack", "apgd", {"loss": "margin", "steps": max(1, passes // 2)}
    )
    ledger, _ = attack(model, batch, threat, climb, rng, batch_size=batch_size)

    behind = ledger.fooled | (ledger.best.margin >= reach)
    leads, compared = counts
    # Only some of the samples were compared, so their share stands for all that the probe led on.
    count = round(leads * float((~behind).float().mean()))
    observation = (
        f"{opening}which does not climb the loss, broke {count} of {compared} "
        "samples or came nearer to it than APGD on the "
        "margin with as many passes"
    )
    remedy = (
        "the gradients mislead, and attacks that follow them overestimate the model's robustness"
    )
    finding = Finding.of_share(
        Code.PROBE_AHEAD,
        count,
        compared,
        LIMIT,
        observation,
        remedy,
        fewest=1,
        rate=ERROR_RATE / probes,
    )
    return finding, int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())
