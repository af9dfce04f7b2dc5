"""Picking k of many without replacement: greedily, at random, with a probability; and what a set of picks is worth.

Rows never depend on one another, and a row that allows nothing has neither picks nor probabilities nor influence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.rl.interface import Action, Heads


def top(keys: Tensor, allowed: Tensor, picks: int) -> Tensor:
    """(n, picks) int64: the allowed options with the highest `keys` (n, options), highest first; -1 where none is left."""
    k = min(picks, keys.shape[1])
    best = keys.masked_fill(~allowed, -torch.inf).topk(k, dim=1).indices
    best = torch.where(allowed.gather(1, best), best, -1)
    return best if k == picks else torch.nn.functional.pad(best, (0, picks - k), value=-1)


def gumbel(uniform: Tensor) -> Tensor:
    """Standard Gumbel variables from uniform ones in [0, 1), finite for every one of them.

    The `top` of logits plus these is a sample of the Plackett-Luce distribution, in order (Kool, van Hoof & Welling 2019,
    Stochastic beams and where to find them, section 2.3). Values below 2**-24 count as that, which is less than torch resolves.
    """
    return -(-uniform.clamp(2.0**-24, 1 - 2.0**-24).log()).log()


def greedy(heads: Heads, allowed: Sequence[Tensor], picks: Sequence[int]) -> Action:
    """The best picks of each branch. With a fixed number of picks they have the highest `worth` of all actions."""
    return tuple(top(*each) for each in zip(heads.branches, allowed, picks, strict=True))


def worth(heads: Heads, allowed: Sequence[Tensor], action: Action, dueling: bool = True) -> Tensor:
    """(n,): Q of composite actions: the value plus the mean, over all picks of all branches, of the picks' advantages.

    Advantages are measured from their mean over the allowed options of the branch (Wang et al. 2016, Dueling network
    architectures, equation 9; Tavakoli, Pardo & Kormushev 2018, Action branching architectures, equation 1). Tavakoli et al. give
    each branch a Q of its own and average their errors; here the action has one Q, which is exact where effects add up.

    Args:
        heads: what the network answered.
        allowed: what the state allowed.
        action: the picks. Without any, Q is the value.
        dueling: False takes a branch's outputs as they are, and no value: the Q of a plain network.
    """
    chosen = [picks >= 0 for picks in action]
    share = 1 / sum((one.sum(1) for one in chosen), start=heads.value.new_zeros(())).clamp(min=1)
    total = heads.value if dueling else torch.zeros_like(heads.value)
    for outputs, can, picks, real in zip(heads.branches, allowed, action, chosen, strict=True):
        each = outputs.gather(1, picks.clamp(min=0))
        if dueling:
            each = each - ((outputs * can).sum(1) / can.sum(1).clamp(min=1))[:, None]
        total = total + share * (each * real).sum(1)
    return total


def sampled(heads: Heads, allowed: Sequence[Tensor], picks: Sequence[int], uniform: Sequence[Tensor]) -> Action:
    """Picks drawn from the Plackett-Luce distributions of the branches; `uniform` has (n, options) numbers for each."""
    keys = (logits + gumbel(u) for logits, u in zip(heads.branches, uniform, strict=True))
    return tuple(top(*each) for each in zip(keys, allowed, picks, strict=True))


def likelihood(heads: Heads, allowed: Sequence[Tensor], action: Action) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ordered picks, and entropies, both (n,) and summed over independent branches.

    Plackett-Luce: each pick is a softmax over what is still there. The entropy is the sum of those softmaxes' entropies along
    the given picks. For one pick it is exact; for more its mean over sampled picks is the entropy of the whole (chain rule), and
    its gradient lacks the term by which earlier picks change what later ones choose from.
    """
    log_prob, entropy = torch.zeros_like(heads.value), torch.zeros_like(heads.value)
    for logits, allowed_here, picks in zip(heads.branches, allowed, action, strict=True):
        left = allowed_here
        for pick in picks.unbind(1):
            chosen, at = pick >= 0, pick.clamp(min=0)[:, None]
            # The lowest number and not -inf: rows where nothing is left stay finite, in the gradient too.
            logs = logits.masked_fill(~left, torch.finfo(logits.dtype).min).log_softmax(1)
            log_prob = log_prob + logs.gather(1, at)[:, 0].masked_fill(~chosen, 0)
            entropy = entropy - (logs.exp() * logs).sum(1).masked_fill(~chosen, 0)
            if picks.shape[1] > 1:
                left = left.scatter(1, at, left.gather(1, at) & ~chosen[:, None])
    return log_prob, entropy
