"""Planted violators for the checkers of distances, data sets and models."""

import itertools

import numpy as np
import torch
from torch import nn

from _helpers import unrefused
from brinell import plugins
from brinell.core.contracts import DataInfo
from brinell.core.domain import Domain
from brinell.core.model import Access, ModelInfo
from brinell.core.norms import per_sample
from brinell.testing import check_dataset, check_distance, check_model, linear_problem

LINF = type(plugins.build("distance", "linf", {}))
L2 = type(plugins.build("distance", "l2", {}))

# Distances


class Signless(L2):
    def size(self, delta):
        return -super().size(delta)


class OneSizeForAll(L2):
    def size(self, delta):
        return super().size(delta).max()


class SizeOfNothing(L2):
    def size(self, delta):
        return super().size(delta) + 0.1


class ProjectsTooFar(L2):
    def project(self, delta, eps):
        return super().project(delta, 1.01 * eps)


class PushesOut(L2):
    def project(self, delta, eps):
        """Onto the sphere, also what lies inside."""
        return delta * per_sample(eps / self.size(delta), delta)


class ShrinksAgain(L2):
    def project(self, delta, eps):
        """The nearest point, but what lies on the border already is moved inwards."""
        at_border = ((self.size(delta) - eps).abs() < 1e-4 * eps).float()
        return super().project(delta, eps) * per_sample(1 - 0.1 * at_border, delta)


class LongSteps(L2):
    def ascent(self, grad):
        return grad


class NaNFromNothing(L2):
    def ascent(self, grad):
        return grad / per_sample(self.size(grad), grad)


class StepsLikeLinf(L2):
    """A sign step scaled to length 1: no violation of length, but not the steepest."""

    def ascent(self, grad):
        step = grad.sign()
        return step / per_sample(self.size(step).clamp_min(1e-12), step)


class StepsDown(L2):
    def ascent(self, grad):
        return -super().ascent(grad)


class SamplesOutside(L2):
    def sample(self, rng, shape):
        return 1.5 * super().sample(rng, shape)


class DirectionsTooShort(L2):
    def direction(self, rng, shape):
        return 0.5 * super().direction(rng, shape)

    def sample(self, rng, shape):
        return L2().sample(rng, shape)


class Squared(LINF):
    """Not homogeneous: no norm.

    (Its projection and steps are those of the cube of half the size ... for sizes of 1.)
    """

    def size(self, delta):
        return super().size(delta) ** 2

    def project(self, delta, eps):
        return super().project(delta, eps**0.5)


DISTANCES = {
    Signless: "gives no positive size to each perturbation",
    OneSizeForAll: "gives no positive size to each perturbation",
    SizeOfNothing: "gives the zero perturbation a size",
    ProjectsTooFar: "projects to outside of the ball",
    PushesOut: "moves what is inside the ball already",
    ShrinksAgain: "moves a projected point again",
    LongSteps: "steps by another length than 1",
    NaNFromNothing: "makes no finite step out of a zero gradient",
    StepsLikeLinf: "knows a steeper step than its ascent",
    StepsDown: "knows a steeper step than its ascent",
    SamplesOutside: "samples outside of the unit ball",
    DirectionsTooShort: "draws directions of another size than 1",
    Squared: "does not scale with the perturbation",
}


def test_distances():
    assert not unrefused(
        check_distance, [(violator(), rule) for violator, rule in DISTANCES.items()]
    )


# Data


class Data:
    """Honest data of twelve grey images on 256 levels."""

    name = "planted"
    info = DataInfo()
    classes = ("a", "b", "c")
    domain = Domain(kind="image", shape=(1, 4, 4), levels=256)

    def __init__(self):
        numbers = np.arange(12 * 16).reshape(12, 1, 4, 4) % 256
        self.x = torch.from_numpy(numbers.astype(np.float32)) / 255
        self.calls = itertools.count()

    def __len__(self):
        return len(self.x)

    def labels(self):
        return np.arange(12, dtype=np.int64) % 3

    def load(self, indices):
        return self.x[list(indices)].clone()

    def digest(self):
        return "0123456789abcdef"


class TooFewLabels(Data):
    def labels(self):
        return super().labels()[:-1]


class FloatLabels(Data):
    def labels(self):
        return super().labels().astype(np.float64)


class Empty(Data):
    def __len__(self):
        return 0

    def labels(self):
        return np.zeros(0, dtype=np.int64)


class NamelessClass(Data):
    classes = ("a", "b")


class NegativeLabel(Data):
    def labels(self):
        return super().labels() - 1


class Doubles(Data):
    def load(self, indices):
        return super().load(indices).double()


class ChannelsLast(Data):
    def load(self, indices):
        return super().load(indices).permute(0, 2, 3, 1)


class BytesNotScaled(Data):
    def load(self, indices):
        return super().load(indices) * 255


class HoldsNaN(Data):
    def load(self, indices):
        return super().load(indices) * torch.nan


class OffTheLevels(Data):
    def load(self, indices):
        return (super().load(indices) + 0.001).clamp(0, 1)


class IgnoresTheIndices(Data):
    def load(self, indices):
        return self.x[: len(indices)].clone()


class Augments(Data):
    def load(self, indices):
        return super().load(indices).roll(next(self.calls), 3)


class NewDigestEachTime(Data):
    def digest(self):
        return f"0123456789abcdef{next(self.calls)}"


class ShortDigest(Data):
    def digest(self):
        return "1"


DATA = {
    TooFewLabels: "has not one int64 label per sample",
    FloatLabels: "has not one int64 label per sample",
    Empty: "has not one int64 label per sample",
    NamelessClass: "has labels without a class name",
    NegativeLabel: "has labels without a class name",
    Doubles: "loads another type or shape",
    ChannelsLast: "loads another type or shape",
    BytesNotScaled: "leaves its bounds",
    HoldsNaN: "leaves its bounds",
    OffTheLevels: "is not on its storage levels",
    IgnoresTheIndices: "loads other inputs in another order",
    Augments: "loads other inputs in another order",
    NewDigestEachTime: "has no stable digest",
    ShortDigest: "has no stable digest",
}


def test_honest_data_pass():
    check_dataset(Data())


def test_datasets():
    assert not unrefused(
        check_dataset, [(violator(), f"data planted {rule}") for violator, rule in DATA.items()]
    )


# Models


class Net:
    """An honest model: a small network with a batch norm in evaluation mode."""

    name = "planted"
    info = ModelInfo()
    classes = 3
    access = Access.GRADIENTS
    domain = Domain(kind="image", shape=(1, 3, 3))

    def __init__(self):
        rng = torch.Generator().manual_seed(0)
        layers = [
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(36, 3),
        ]
        self.module = nn.Sequential(*layers).eval()
        for parameter in self.module.parameters():
            parameter.data = torch.randn(parameter.shape, generator=rng)
        self.calls = itertools.count()

    def predict(self, x):
        return self.module(x)

    def digest(self):
        return repr([tensor.flatten().tolist() for tensor in self.module.state_dict().values()])


class OneLogitMissing(Net):
    def predict(self, x):
        return super().predict(x)[:, :2]


class AnswersNaN(Net):
    def predict(self, x):
        return super().predict(x).log()


class Counts(Net):
    def predict(self, x):
        return super().predict(x) + next(self.calls)


class Sharpens(Net):
    """Divides by the spread of the whole batch."""

    def predict(self, x):
        logits = super().predict(x)
        return logits / logits.std()


class TrainsItsBatchNorm(Net):
    def __init__(self):
        super().__init__()
        self.module.train()


class Learns(Net):
    """Changes weights that play no part in the next answer: only its digest tells."""

    def __init__(self):
        super().__init__()
        self.module.register_buffer("seen", torch.zeros(()))

    def predict(self, x):
        self.module.seen += len(x)
        return super().predict(x)


class GradientWithoutEnd(Net):
    def predict(self, x):
        return super().predict(x) + (x - x.detach()).sqrt().flatten(1)[:, :3]


class WritesIntoItsInputs(Net):
    def predict(self, x):
        with torch.no_grad():
            x.data.mul_(1.0).add_(0.0 if next(self.calls) else 0.25)
        return super().predict(x)


MODELS = {
    OneLogitMissing: r"answers \(4, 2\), not \(4, 3\)",
    AnswersNaN: "answers NaN or infinity",
    Counts: "answers differently twice",
    Sharpens: "answers differently in other company",
    TrainsItsBatchNorm: "answers differently in other company|changes when asked",
    Learns: "changes when asked",
    GradientWithoutEnd: "has no finite input gradient",
    WritesIntoItsInputs: "writes into its inputs",
}


def test_honest_models_pass():
    check_model(Net())
    check_model(linear_problem("image", "l2").model)


def test_models():
    assert not unrefused(
        check_model, [(violator(), f"model planted ({rule})") for violator, rule in MODELS.items()]
    )


def test_a_member_of_the_contract_is_missing():
    for kind, honest, check in (("Model", Net, check_model), ("Dataset", Data, check_dataset)):
        for member in ("info", "digest"):
            lacking = type(
                "Lacking",
                (),
                {name: value for name, value in vars(honest).items() if name != member},
            )
            assert not unrefused(
                check, [(lacking.__new__(lacking), f"^Lacking is no {kind}: it lacks {member}")]
            )
