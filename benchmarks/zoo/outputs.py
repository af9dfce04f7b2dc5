"""Defences that change what the network answers. The counterpart answers its raw logits."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base, load
from benchmarks.zoo.inputs import Mean
from benchmarks.zoo.pair import Around, Bpda, Change, Pair, defence


def _after(base: Base, after: Change) -> Pair:
    defended = Around(base.net, after=after)
    return Pair(defended=defended, counterpart=base.net)


@defence("none", "none")
def none(base: Base) -> Pair:
    """The network itself."""
    return Pair(defended=base.net, counterpart=base.net)


@defence("scaled-logits", "answers")
def scaled_logits(base: Base) -> Pair:
    """Logits times 10,000: the cross-entropy is exactly flat (Carlini & Wagner 2017, on
    distillation).
    """
    return _after(base, lambda z: 1e4 * z)


@defence("squashed-logits", "answers")
def squashed_logits(base: Base) -> Pair:
    """Logits through a hyperbolic tangent, which is flat where the network is sure."""
    return _after(base, lambda z: 5 * torch.tanh(0.5 * z))


@defence("probabilities", "answers")
def probabilities(base: Base) -> Pair:
    """Answers are probabilities (softmax)."""
    return _after(base, lambda z: z.softmax(1))


@defence("sigmoid-scores", "answers")
def sigmoid_scores(base: Base) -> Pair:
    """Answers are one sigmoid per class, which do not sum to one and are rounded to 1 where the
    network is sure.
    """
    return _after(base, lambda z: torch.sigmoid(2 * z))


@defence("one-hot", "answers")
def one_hot(base: Base) -> Pair:
    """Answers are ten times the one-hot code of the class."""
    return _after(base, lambda z: 10 * F.one_hot(z.argmax(1), z.shape[1]).float())


@defence("rounded-logits", "no gradient")
def rounded_logits(base: Base) -> Pair:
    """Logits are rounded to steps of a half."""
    defended = Around(base.net, after=lambda z: torch.round(2 * z) / 2)
    return Pair(defended=defended, counterpart=Bpda(defended, base.net), surrogates=(base.net,))


@defence("rounded-probabilities", "no gradient")
def rounded_probabilities(base: Base) -> Pair:
    """Answers are logarithms of probabilities that were rounded to two decimals and given a floor."""
    defended = Around(
        base.net, after=lambda z: (torch.round(100 * z.softmax(1)) / 100).clamp_min(1e-3).log()
    )
    return Pair(defended=defended, counterpart=Bpda(defended, base.net), surrogates=(base.net,))


@defence("half-precision-probabilities", "answers")
def half_precision(base: Base) -> Pair:
    """Answers are logarithms of probabilities that pass through half precision at a low
    temperature, and so vanish.
    """
    return _after(base, lambda z: (8 * z).softmax(1).half().float().clamp_min(1e-7).log())


@defence("reject-class", "answers", audit={"reject_class": "10"})
def reject_class(base: Base) -> Pair:
    """An eleventh class rejects inputs on which the largest probability is below 0.6 (in the manner
    of Bendale & Boult 2016).

    A rejected adversarial input does not count as a success. The gradient is intact; the criterion
    can go wrong.
    """

    def rejecting(z: Tensor) -> Tensor:
        return torch.cat([z, (z.logsumexp(1) + torch.tensor(0.6).log())[:, None]], 1)

    defended = Around(base.net, after=rejecting)
    return Pair(defended=defended, counterpart=defended, reject=base.classes)


@defence("reject-hard", "answers", audit={"reject_class": "10"})
def reject_hard(base: Base) -> Pair:
    """The same rule without a slope: the eleventh logit is 1000 or -1000; the counterpart has the
    smooth one's gradient.
    """

    def rule(z: Tensor) -> Tensor:
        return z.logsumexp(1) + torch.tensor(0.6).log()

    def hard(z: Tensor) -> Tensor:
        return torch.cat([z, torch.where(rule(z) > z.amax(1), 1e3, -1e3)[:, None]], 1)

    smooth = Around(base.net, after=lambda z: torch.cat([z, rule(z)[:, None]], 1))
    return Pair(defended=Around(base.net, after=hard), counterpart=smooth, reject=base.classes)


def members(base: Base) -> list[nn.Module]:
    """The three robust CIFAR-10 networks; elsewhere the base and two copies of it that see the
    input moved by a pixel.
    """
    if base.name in ROBUST:
        return [base.net, *(load(name, 1).net for name in ROBUST if name != base.name)]
    return [
        base.net,
        *(Around(base.net, lambda x, step=step: x.roll(step, -1)) for step in (-1, 1)),
    ]


ROBUST = ("resnet4b", "resnet2b", "cnn_wide_kw")


@defence("ensemble", "none")
def ensemble(base: Base) -> Pair:
    """The mean of the logits of three different networks. Nothing is broken."""
    mean = Mean(*members(base))
    return Pair(defended=mean, counterpart=mean)


@defence("ensemble-probabilities", "none")
def ensemble_probabilities(base: Base) -> Pair:
    """The logarithm of the mean of three networks' probabilities (Pang et al. 2019).

    Nothing is broken.
    """

    class MeanProbability(Mean):
        def forward(self, x: Tensor) -> Tensor:
            answers = torch.stack([member(x).log_softmax(1) for member in self.members])
            return answers.logsumexp(0) - torch.tensor(float(len(answers))).log()

    mean = MeanProbability(*members(base))
    return Pair(defended=mean, counterpart=mean)


@defence("ensemble-vote", "answers")
def ensemble_vote(base: Base) -> Pair:
    """Three networks vote: answers are counts of votes with the sum of their probabilities to break
    ties, detached.
    """

    class Vote(Mean):
        def forward(self, x: Tensor) -> Tensor:
            answers = torch.stack([member(x) for member in self.members])
            votes = F.one_hot(answers.argmax(2), answers.shape[2]).float().sum(0)
            return votes + 0.1 * answers.softmax(2).mean(0).detach()

    nets = members(base)
    defended = Vote(*nets)
    return Pair(
        defended=defended, counterpart=Bpda(defended, Mean(*nets)), surrogates=(Mean(*nets), *nets)
    )
