"""Choosing k of many options without replacement: greedily, at random, or by a probability; and their worth.

Rows never depend on one another. A row that allows nothing has no choices, no probabilities and no
influence.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from brinell.rlab.interface import Action, Heads, Observation

LOW = -1e9
"""A logit that leaves nothing of an option."""


def top(keys: Tensor, allowed: Tensor, choices: int) -> Tensor:
    """(n, choices) int64: the allowed options with the highest `keys` (n, options), highest first; -1 where none is left."""
    k = min(choices, keys.shape[1])
    best = keys.masked_fill(~allowed, -torch.inf).topk(k, dim=1).indices
    best = torch.where(allowed.gather(1, best), best, -1)
    return best if k == choices else torch.nn.functional.pad(best, (0, choices - k), value=-1)


def gumbel(uniform: Tensor) -> Tensor:
    """Standard Gumbel variables from uniform ones in [0, 1), finite for every one of them.

    The `top` of logits plus these is a sample of the Plackett-Luce distribution, in order (Kool,
    van Hoof & Welling 2019, Stochastic beams and where to find them, section 2.3). Values below
    2**-24 count as that, which is less than torch resolves.
    """
    return -(-uniform.clamp(2.0**-24, 1 - 2.0**-24).log()).log()


def best(keys: Iterable[Tensor], observation: Observation, choices: Sequence[int]) -> Action:
    """The `top` of each branch, as many as count; with outputs for keys they have the highest `worth` of all."""
    action = tuple(top(*each) for each in zip(keys, observation.allowed, choices, strict=True))
    if not observation.most:
        return action
    ranks = [torch.arange(one.shape[1], device=one.device) for one in action]
    return tuple(
        one.masked_fill(rank >= most[:, None], -1) for one, rank, most in zip(action, ranks, observation.most, strict=True)
    )


def worth(heads: Heads, allowed: Sequence[Tensor], action: Action, dueling: bool = True) -> Tensor:
    """(n,): Q of composite actions: the value plus the mean, over all choices of all branches, of the choices' advantages.

    Advantages are measured from their mean over the allowed options of the branch (Wang et al.
    2016, Dueling network architectures, equation 9; Tavakoli, Pardo & Kormushev 2018, Action
    branching architectures, equation 1). Tavakoli et al. give each branch a Q of its own and
    average their errors; here the action has one Q, which is exact where effects add up.

    Args:
        heads: what the network answered.
        allowed: what the state allowed.
        action: the choices. Without any, Q is the value.
        dueling: False takes a branch's outputs as they are, and no value: the Q of a plain network.
    """
    chosen = [(choices >= 0).to(heads.value.dtype) for choices in action]
    count = sum((one.sum(1) for one in chosen), start=torch.zeros_like(heads.value)).clamp(min=1)
    total = heads.value if dueling else torch.zeros_like(heads.value)
    for outputs, can, choices, real in zip(heads.branches, allowed, action, chosen, strict=True):
        share = torch.zeros_like(outputs).scatter_add_(1, choices.clamp(min=0), real)
        if dueling:
            share -= can * (real.sum(1) / can.sum(1).clamp(min=1))[:, None]
        total = total + (outputs * share).sum(1) / count
    return total


def likelihood(heads: Heads, allowed: Sequence[Tensor], action: Action) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ordered choices, and entropies, both (n,) and summed over independent branches.

    Plackett-Luce: each choice is a softmax over what is still there. The entropy is the sum of
    those softmaxes' entropies along the given choices. For one choice it is exact; for more its
    mean over sampled choices is the entropy of the whole (chain rule), and its gradient lacks the
    term by which earlier choices change what later ones choose from.
    """
    log_prob, entropy = torch.zeros_like(heads.value), torch.zeros_like(heads.value)
    for logits, can, choices in zip(heads.branches, allowed, action, strict=True):
        found = (_first if choices.shape[1] == 1 else _ordered)(logits, can, choices)
        log_prob, entropy = log_prob + found[0], entropy + found[1]
    return log_prob, entropy


def _first(logits: Tensor, can: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of one choice."""
    chosen, at = choices[:, 0] >= 0, choices.clamp(min=0)
    # A low number and not -inf: rows where nothing is allowed stay finite, in the gradient too.
    logs = logits.masked_fill(~can, LOW).log_softmax(1)
    entropy = -(logs.exp() * logs).sum(1)
    return logs.gather(1, at)[:, 0].masked_fill(~chosen, 0), entropy.masked_fill(~chosen, 0)


def _ordered(logits: Tensor, can: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of several choices, without a loop over them.

    With weights w that sum to 1, choice j is a softmax over what was never chosen and choices j,
    j+1, ...: sums from the end. In double precision, since those may be far below the weights of
    the first choices.
    """
    chosen, at = choices >= 0, choices.clamp(min=0)
    logs = logits.double().masked_fill(~can, LOW).log_softmax(1)
    weights = logs.exp()
    # One option more, for what was not chosen to be written to.
    taken = torch.zeros(len(can), can.shape[1] + 1, dtype=torch.bool, device=can.device)
    taken = taken.scatter(1, torch.where(chosen, choices, can.shape[1]), True)[:, :-1]
    log, weight = logs.gather(1, at), weights.gather(1, at).masked_fill(~chosen, 0)
    total = _from_end(weight) + weights.masked_fill(taken, 0).sum(1, keepdim=True)
    surprise = _from_end(weight * log) + (weights * logs).masked_fill(taken, 0).sum(1, keepdim=True)
    total = total.clamp(min=torch.finfo(total.dtype).tiny)
    log_prob, entropy = log - total.log(), total.log() - surprise / total
    return (log_prob.masked_fill(~chosen, 0).sum(1).to(logits.dtype), entropy.masked_fill(~chosen, 0).sum(1).to(logits.dtype))


def _from_end(values: Tensor) -> Tensor:
    """(n, k): the sum of each value and those after it."""
    return values.flip(1).cumsum(1).flip(1)
