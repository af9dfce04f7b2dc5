"""Sound classifiers of many kinds on scikit-learn's digits, each trained in at most a second: no
check may fail on them.

`SOUND["gru"]()` trains one and gives it with all test samples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KDTree
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import measure
from benchmarks.zoo import base
from benchmarks.zoo.pair import Around, Change, generator, noise_like

Loaded = tuple[nn.Module, Tensor, Tensor]
"""A model, inputs (n, 1, 8, 8) in [0, 1] and labels (n,)."""

SOUND: dict[str, Callable[[], Loaded]] = {}
"""Every kind by its name."""
WITHOUT_GRADIENTS = ("nearest-neighbours", "nearest-votes", "stumps", "forest", "boosted-trees")
"""Kinds that answer scores alone."""
SIZES = {"clips": 60}
"""Test samples of kinds that have fewer than the digits."""
LARGE = ("clips", "resnet20", "resnet4b")
"""Kinds of which few samples are audited, since a pass takes long."""

Labels = Callable[[Tensor, Tensor], Tensor]


def sound(name: str, make: Callable[[], nn.Module], **settings: object) -> None:
    """Registers a network that is trained; settings as `trained` takes them."""
    SOUND[name] = lambda: trained(make, **settings)


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images with their labels and test images with theirs."""
    loaded = base.load("digits", 2000)
    return *loaded.train(2000), loaded.x, loaded.y


def trained(
    make: Callable[[], nn.Module],
    *,
    labels: Labels = lambda x, y: y,
    images: int = 2000,
    epochs: int = 12,
    finish: Callable[[nn.Module], nn.Module] = lambda net: net,
    penalty: float = 0.0,
) -> Loaded:
    """The network trained on the first `images` with an L1 penalty on its weights, and then
    finished.
    """
    x, y, test_x, test_y = digits()
    x, y = x[:images], labels(x, y)[:images]
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        net = make()
    optimizer, rng = torch.optim.AdamW(net.parameters(), lr=5e-3), generator(1)
    dtype = next(net.parameters()).dtype
    for _ in range(epochs * max(1, 800 // images)):
        for rows in torch.randperm(len(x), generator=rng).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[rows].to(dtype)), y[rows])
            (loss + penalty * sum(weight.abs().sum() for weight in net.parameters())).backward()
            optimizer.step()
    net = finish(net.eval().requires_grad_(False))
    return net.eval(), test_x, labels(test_x, test_y)


def answers(change: Change) -> Callable[[nn.Module], nn.Module]:
    """Changes what a trained network answers."""
    return lambda net: Around(net, after=change)


def dense(classes: int = 10, width: int = 64) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))


def convolutional(*norm: nn.Module) -> nn.Module:
    """Two convolutions, with a norm between them."""
    first = nn.Conv2d(1, 16, 3, padding=1)
    return nn.Sequential(
        first,
        *norm,
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def quarters(x: Tensor, y: Tensor) -> Tensor:
    """Forty classes: the digit and the quarter of brightness."""
    return 4 * y + torch.bucketize(x.flatten(1).mean(1), torch.tensor([0.27, 0.305, 0.34]))


def pruned(net: nn.Module) -> nn.Module:
    """Nine of ten weights of each matrix become 0."""
    for weight in net.parameters():
        if weight.dim() > 1:
            weight.data *= weight.abs() >= weight.abs().flatten().quantile(0.9)
    return net


def eight_bits(net: nn.Module) -> nn.Module:
    """Weights on 255 steps, a scale for each tensor."""
    for weight in net.parameters():
        scale = weight.abs().max() / 127
        weight.data = (weight / scale).round() * scale
    return net


def hidden_classes(value: float) -> Callable[[nn.Module], nn.Module]:
    """Two further classes with a logit that never wins."""
    return answers(lambda z: torch.cat([z, z.new_full((len(z), 2), value)], 1))


def plus_noise(net: nn.Module) -> nn.Module:
    """The mean probability over sixteen kept draws of noise."""
    noise = 0.15 * noise_like(torch.empty(16, 1, 8, 8), generator(5))
    return Around(
        nn.Identity(),
        lambda x: torch.stack([net(x + draw).softmax(1) for draw in noise]).mean(0).log(),
    )


class Recurrent(nn.Module):
    """A GRU over the rows of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        return self.head(self.rows(x[:, 0])[0][:, -1])


class Experts(nn.Module):
    """Four experts, mixed by a gate; `top` takes the best expert alone."""

    def __init__(self, top: bool) -> None:
        super().__init__()
        self.gate, self.experts, self.top = (
            dense(4, 16),
            nn.ModuleList(dense() for _ in range(4)),
            top,
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        shares = self.gate(x).softmax(1)
        if self.top:
            shares = shares * F.one_hot(shares.argmax(1), 4)
        return (torch.stack([expert(x) for expert in self.experts], 1) * shares[..., None]).sum(1)


class Members(nn.Module):
    """The mean probability of three networks, trained together."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList([dense(width=24), convolutional(), dense(width=48)])

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        return torch.stack([member(x).log_softmax(1) for member in self.members]).logsumexp(0)


class Attention(nn.Module):
    """One transformer block over sixteen patches."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = (
            nn.Conv2d(1, 32, 2, stride=2),
            nn.Parameter(torch.randn(16, 32) / 8),
        )
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        return self.head(self.block(self.embed(x).flatten(2).movedim(1, 2) + self.place).mean(1))


class InPrecision(nn.Module):
    """A network that computes in another floating-point type; its answers are float32."""

    def __init__(self, net: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self.dtype = net.to(dtype), dtype

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return self.net(x.to(self.dtype)).float()


class Neighbours(nn.Module):
    """Training images vote with weights that fall with the squared distance."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.register_buffer("images", x.flatten(1))
        self.register_buffer("codes", F.one_hot(y).float())

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        distances = torch.cdist(x.flatten(1), self.images).square()
        return (-2 * distances).softmax(1).matmul(self.codes).clamp_min(1e-20).log()


class Nearest(nn.Module):
    """The negative distance to the nearest training image of each class, by search trees: no
    gradient.
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.trees = [KDTree(x[y == label].flatten(1).numpy()) for label in range(10)]

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        points = x.detach().flatten(1).numpy()
        return -torch.from_numpy(
            np.concatenate([tree.query(points)[0] for tree in self.trees], 1)
        ).float()


class Stumps(nn.Module):
    """A weighted vote of thresholds on single pixels."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.register_buffer("thresholds", torch.tensor([0.2, 0.4, 0.6, 0.8]))
        features = self.features(x)
        shares = torch.stack([features[y == label].mean(0) for label in range(10)]).clamp(
            0.02, 0.98
        )
        self.register_buffer("weights", shares.logit())
        self.register_buffer("bias", torch.log1p(-shares).sum(1))

    def features(self, x: Tensor) -> Tensor:
        """(n, 256) of 0 and 1."""
        return (x.flatten(1)[..., None] > self.thresholds).flatten(1).float()

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        return self.features(x) @ self.weights.T + self.bias


def fitted(make: Callable[[Tensor, Tensor], nn.Module]) -> Callable[[], Loaded]:
    """A model made of the training images."""

    def load() -> Loaded:
        x, y, test_x, test_y = digits()
        return make(x, y).eval(), test_x, test_y

    return load


class Votes(nn.Module):
    """The shares of the classes among the nearest five training images."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.tree, self.labels = KDTree(x.flatten(1).numpy()), y

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        nearest = self.tree.query(x.detach().flatten(1).numpy(), 5)[1]
        return F.one_hot(self.labels[torch.from_numpy(nearest)], 10).float().mean(1)


class OfSklearn(nn.Module):
    """A fitted model of scikit-learn that answers probabilities."""

    def __init__(self, model: Any, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.model = model.fit(x.flatten(1).numpy(), y.numpy())

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) to (n, 10)."""
        points = x.detach().flatten(1).double().numpy()
        return torch.from_numpy(self.model.predict_proba(points)).float()


def integer_weights(net: nn.Module) -> nn.Module:
    """Weights are whole numbers from -8 to 8, and biases whole numbers."""
    for weight in net.parameters():
        scale = 8 / weight.abs().max() if weight.dim() > 1 else 8.0
        weight.data = (weight * scale).round()
    return net


def ternary_weights(net: nn.Module) -> nn.Module:
    """Weights are -1, 0 or 1, and biases 0."""
    for weight in net.parameters():
        keep = weight.abs() > 0.7 * weight.abs().mean()
        weight.data = weight.sign() * keep if weight.dim() > 1 else torch.zeros_like(weight)
    return net


def on_five_levels() -> Loaded:
    """A network, and images of five levels."""
    net, x, y = trained(dense)
    return net, (4 * x).round() / 4, y


def beats() -> Loaded:
    """A small network over real heartbeats, in millivolts of -5 to 5 brought to 0 to 1."""
    with np.load(measure.SHARED / "ecg_mitbih" / "mitbih_beats_test_ds2.npz") as arrays:
        rows = np.random.default_rng(0).permutation(len(arrays["labels"]))[:2400]
        x = torch.from_numpy(arrays["beats_uV"][rows]).float().div(10_000).add(0.5)
        y = torch.from_numpy(arrays["labels"][rows].astype(np.int64))
    net = nn.Sequential(
        nn.Conv1d(1, 8, 9, 4),
        nn.ReLU(),
        nn.Conv1d(8, 16, 9, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    return _own(net, x.clamp(0, 1)[:, None], y, 539, epochs=12)


def clips() -> Loaded:
    """A small network over real clips of gestures, a quarter of their size."""
    with np.load(measure.SHARED / "video" / "asl_gesture_clips.npz") as arrays:
        pixels, labels = arrays["clips"][:, ::2], arrays["labels"].astype(np.int64)
    x = torch.from_numpy(pixels).movedim(-1, 1).float().div(255)
    net = nn.Sequential(
        nn.Conv3d(3, 8, 3, 2),
        nn.ReLU(),
        nn.Conv3d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(8),
    )
    return _own(
        net, F.avg_pool3d(x, (1, 4, 4)), torch.from_numpy(labels), SIZES["clips"], epochs=40
    )


def _own(net: nn.Module, x: Tensor, y: Tensor, held_out: int, *, epochs: int) -> Loaded:
    """A network trained on its own data, but for what is held out."""
    order = torch.randperm(len(x), generator=generator(3))
    test, rows = order[:held_out], order[held_out:]
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        net(x[:2])
        net.apply(
            lambda part: part.reset_parameters() if hasattr(part, "reset_parameters") else None
        )
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in rows.split(32):
            optimizer.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    return net.eval().requires_grad_(False), x[test], y[test]


def published(name: str) -> Callable[[], Loaded]:
    """A network of the shared data with the first of its test images."""

    def load() -> Loaded:
        subject = base.load(name, 539)
        return subject.net, subject.x, subject.y

    return load


def linear() -> nn.Module:
    """Logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


sound("linear", linear)
sound(
    "linear-two-classes",
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)),
    labels=lambda x, y: y % 2,
)
sound("linear-float64", linear, finish=lambda net: InPrecision(net, torch.float64))
sound("twenty-images", dense, images=20)
sound("dense", dense)
sound("half-precision", dense, finish=lambda net: InPrecision(net, torch.float16))
sound("bfloat16", convolutional, finish=lambda net: InPrecision(net, torch.bfloat16))
sound("batch-norm", lambda: convolutional(nn.BatchNorm2d(16)))
sound("normalised-inside", lambda: Around(dense(), before=lambda x: (x - 0.3) / 0.37))
sound("standardised-inputs", lambda: Around(dense(), before=lambda x: F.layer_norm(x, x.shape[1:])))
sound("two-classes", lambda: dense(2), labels=lambda x, y: y % 2)
sound("forty-classes", lambda: dense(40), labels=quarters)
sound("masked-classes", dense, finish=hidden_classes(-1e9))
sound("infinitely-masked-classes", dense, finish=hidden_classes(-torch.inf))
sound("shifted-logits", dense, finish=answers(lambda z: z + 1e5))
sound("tiny-logits", convolutional, finish=answers(lambda z: 1e-8 * z))
sound("huge-logits", convolutional, finish=answers(lambda z: 1e8 * z))
sound("gru", Recurrent)
sound("eight-bit-weights", convolutional, finish=eight_bits)
sound("experts", lambda: Experts(top=False))
sound("best-expert", lambda: Experts(top=True))
sound("attention", Attention, epochs=8)
sound("ensemble", Members)
sound("sparse-features", dense, penalty=2e-4, finish=pruned)
sound("kept-noise", dense, finish=plus_noise)
SOUND["soft-neighbours"] = fitted(Neighbours)
SOUND["nearest-neighbours"] = fitted(Nearest)
SOUND["stumps"] = fitted(Stumps)
SOUND["nearest-votes"] = fitted(Votes)
SOUND["forest"] = fitted(lambda x, y: OfSklearn(RandomForestClassifier(50, random_state=0), x, y))
SOUND["boosted-trees"] = fitted(
    lambda x, y: OfSklearn(HistGradientBoostingClassifier(max_iter=20, random_state=0), x, y)
)
sound("integer-weights", dense, finish=integer_weights)
sound("ternary-weights", lambda: dense(width=128), finish=ternary_weights)
sound("linear-integer-weights", linear, finish=integer_weights)
sound("wide", lambda: dense(width=1024), epochs=6)
SOUND["inputs-on-a-grid"] = on_five_levels
SOUND["heartbeats"], SOUND["clips"] = beats, clips
SOUND["resnet20"], SOUND["resnet4b"] = published("resnet20"), published("resnet4b")
