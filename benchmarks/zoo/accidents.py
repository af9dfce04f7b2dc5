"""Defences that failed after publication, and honest accidents of engineers, by somebody who had
not read the checks.
"""

import zlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.inputs import unseen
from benchmarks.zoo.pair import Around, Bpda, Pair, around, defence, generator, noise_like, value_of


class EarlyExit(nn.Module):
    """A network on half the resolution answers where it is confident, and the whole network
    elsewhere.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.quick = Around(
            net, lambda x: F.interpolate(F.avg_pool2d(x, 2), x.shape[2:], mode="bilinear")
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        quick = self.quick(x)
        confident = quick.softmax(1).amax(1, keepdim=True) > 0.9
        return torch.where(confident, quick, self.net(x))


@defence("early-exit", "answers")
def early_exit(base: Base) -> Pair:
    """A coarse network answers where it is confident (BranchyNet: Teerapittayanon et al. 2016);
    each exit is one more route.
    """
    defended = EarlyExit(base.net)
    routes = tuple(Bpda(defended, route) for route in (base.net, defended.quick))
    return Pair(
        defended=defended, counterpart=defended, surrogates=(*routes, base.net, defended.quick)
    )


class Remembering(nn.Module):
    """A network that gives an input close to one of the first batch the answer of that one."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.inputs, self.answers = net, None, None

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        answers, images = self.net(x), x.detach().flatten(1)
        if self.inputs is None:
            self.inputs, self.answers = images[:64].clone(), answers[:64].detach()
        distances, nearest = (torch.cdist(images, self.inputs, p=1) / images.shape[1]).min(1)
        return torch.where(distances[:, None] < 0.06, self.answers[nearest], answers)


@defence("near-duplicates", "answers")
def near_duplicates(base: Base) -> Pair:
    """A cache answers near duplicates of the first 64 inputs (as Blacklight would: Li et al. 2022);
    an empty one judges.
    """
    return Pair(defended=Remembering(base.net), counterpart=base.net, judge=base.net)


@defence("clipped-log-probabilities", "answers")
def clipped_log(base: Base) -> Pair:
    """Logarithms of probabilities, clipped between 1/10 and 1/2 against infinities: flat where the
    network is sure.
    """
    low, high = torch.tensor([0.1, 0.5]).log()
    return Pair(
        defended=Around(base.net, after=lambda z: z.log_softmax(1).clamp(low, high)),
        counterpart=base.net,
    )


class CropVote(nn.Module):
    """Five shifted crops vote where they are confident; the answer counts votes, and the first of
    equal classes leads.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def members(self, x: Tensor) -> Tensor:
        """(5, n, classes) probabilities."""
        shifts = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
        return torch.stack([self.net(x.roll(shift, (-2, -1))).softmax(1) for shift in shifts])

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        members = self.members(x)
        votes = F.one_hot(members.argmax(2), members.shape[2]) * (
            members.amax(2, keepdim=True) > 0.5
        )
        return votes.sum(0).float()


@defence("crop-vote", "no gradient")
def crop_vote(base: Base) -> Pair:
    """Confident crops vote (in the manner of Guo et al. 2018, crop ensembles); the counterpart has
    their mean probabilities.
    """
    defended = CropVote(base.net)
    mean = Around(nn.Identity(), lambda x: defended.members(x).mean(0))
    return Pair(defended=defended, counterpart=Bpda(defended, mean), surrogates=(mean, base.net))


@defence("corrected-prior", "answers")
def corrected_prior(base: Base) -> Pair:
    """Probabilities times the prior of the deployment, written into the softmax's own storage: its
    gradient is wrong.
    """
    weights = torch.linspace(1, 3, base.classes)

    def correct(z: Tensor) -> Tensor:
        p = z.softmax(1)
        p.data *= weights
        return p

    return Pair(
        defended=Around(base.net, after=correct),
        counterpart=Around(base.net, after=lambda z: z + weights.log()),
    )


@defence("fallback-class", "answers")
def fallback_class(base: Base) -> Pair:
    """Class 0 with certainty where the confidence is below 0.6; in the counterpart its logit rises
    to that threshold.
    """

    def fall_back(z: Tensor) -> Tensor:
        p = z.softmax(1)
        return torch.where(
            p.amax(1, keepdim=True) < 0.6, F.one_hot(torch.tensor(0), z.shape[1]).float(), p
        )

    def raised(z: Tensor) -> Tensor:
        threshold = z.logsumexp(1, keepdim=True) + torch.tensor(0.6).log()
        return torch.cat([z[:, :1].maximum(threshold), z[:, 1:]], 1)

    return Pair(
        defended=Around(base.net, after=fall_back), counterpart=Around(base.net, after=raised)
    )


@defence("quilting", "no gradient")
def quilting(base: Base) -> Pair:
    """Each square of two by two pixels becomes the nearest of 512 from training images (Guo et al.
    2018, image quilting).

    Deviation: the squares do not overlap. The counterpart goes straight through.
    """
    squares = F.unfold(base.train(64)[0], 2, stride=2).movedim(1, 2).flatten(0, 1)
    book = squares[torch.randperm(len(squares), generator=generator())[:512]]

    def quilt(x: Tensor) -> Tensor:
        own = F.unfold(x, 2, stride=2).movedim(1, 2)
        nearest = torch.cdist(own, book[None].expand(len(x), -1, -1)).argmin(2)
        return F.fold(book[nearest].movedim(2, 1), x.shape[2:], 2, stride=2)

    return around(base, unseen(quilt))


@defence("matrix-estimation", "no gradient")
def matrix_estimation(base: Base) -> Pair:
    """Pixels of a kept mask are halved and each channel is cut to a low rank (ME-Net: Yang et al.
    2019); straight through.
    """
    rank, mask = (
        3 * base.x.shape[-1] // 8,
        1 - 0.5 * (torch.rand(base.x.shape[1:], generator=generator()) < 0.1).float(),
    )

    def estimate(x: Tensor) -> Tensor:
        left, values, right = torch.linalg.svd(x * mask, full_matrices=False)
        return (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]

    return around(base, unseen(estimate))


@defence("hashed-noise", "answers")
def hashed_noise(base: Base) -> Pair:
    """Noise of 0.1 drawn with a seed from the input's bytes, so that runs repeat; the adaptive
    attack averages over it.
    """

    def noisy(x: Tensor) -> Tensor:
        seeds = [zlib.crc32(image.numpy().tobytes()) for image in x.detach().contiguous()]
        return x + 0.1 * torch.stack([noise_like(x[0], generator(seed)) for seed in seeds])

    defended = Around(base.net, noisy)
    return Pair(
        defended=defended,
        counterpart=defended,
        surrogates=(Bpda(defended, base.net),),
        draws=4,
        spread=0.01,
    )


@defence("contrast-stretch", "partial gradient")
def contrast_stretch(base: Base) -> Pair:
    """Levels from 0.06 to 0.94 are stretched over the range by a clamp: dark pixels have no
    gradient; straight through.
    """

    def stretch(x: Tensor) -> Tensor:
        return ((x - 0.06) / 0.88).clamp(0, 1)

    def passed(x: Tensor) -> Tensor:
        return value_of(stretch(x), (x - 0.06) / 0.88)

    return Pair(defended=Around(base.net, stretch), counterpart=Around(base.net, passed))
