"""Defences that are trainings: each trains a network of the base's architecture on the base's first
training images.

A training takes at most two minutes on one core, draws from a separate generator, and its weights
are kept as safetensors in the folder that the base names (`Base.keep`), under a hash of this file.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import SMALL, Base, kept_weights
from benchmarks.zoo.inside import Activated, largest
from benchmarks.zoo.pair import Around, Bpda, Change, Pair, defence, generator, value_of
from brinell.core.streams import initial

MNIST = {"base": "cnn4_pgd"}
SMALL_FACTOR = 6
"""How many times as often a quick member's network sees its images, which are few."""
IMAGES, EPOCHS, BATCH, RATE = 10_000, 6, 64, 2e-3

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(network, images, labels) to the loss that training lowers."""


def plain(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy."""
    return F.cross_entropy(net(x), y)


keep_small: Callable[[str, nn.Module], None] | None = None
"""Keeps the network that a quick member trains, while those are made (`zoo.quick`)."""


def begin(net: nn.Module, rng: torch.Generator) -> None:
    """Draw the weights of a network anew; batch norms begin as the identity."""
    initial(net, rng)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.reset_parameters()


def trained(
    base: Base, name: str, net: nn.Module, loss: Loss = plain, epochs: int = EPOCHS
) -> nn.Module:
    """The network with weights drawn anew and trained with AdamW at a falling rate, or with those
    that are kept.
    """
    if base.name in SMALL and (weights := kept_weights(f"{base.name}-{name}")):
        net.load_state_dict(weights)
        return net.eval().requires_grad_(False)
    key = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=6).hexdigest()
    file = base.keep and base.keep / "networks" / f"{name}-{base.name}-{key}.safetensors"
    if file and file.is_file():
        net.load_state_dict(load_file(file))
        return net.requires_grad_(False)
    rng = generator(1)
    begin(net, rng)
    x, y = base.train(IMAGES)
    net.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=1e-3)
    epochs *= SMALL_FACTOR if base.name in SMALL else 1
    steps = epochs * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=RATE, total_steps=steps, pct_start=0.2
    )
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=rng).split(BATCH):
            optimizer.zero_grad()
            loss(net, x[rows], y[rows]).backward()
            optimizer.step()
            schedule.step()
    for weight in net.parameters():
        weight.grad = None
    if keep_small is not None:
        keep_small(f"{base.name}-{name}", net)
        net.load_state_dict(kept_weights(f"{base.name}-{name}"))
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, file)
    return net.eval().requires_grad_(False)


def replaced(
    net: nn.Module,
    kind: type[nn.Module],
    make: Callable[[nn.Module], nn.Module],
    *,
    last: bool = False,
) -> nn.Module:
    """The network with its first (or last) layer of a kind replaced."""
    path = [name for name, layer in net.named_modules() if isinstance(layer, kind)][
        -1 if last else 0
    ]
    above, _, attribute = path.rpartition(".")
    setattr(net.get_submodule(above), attribute, make(net.get_submodule(path)))
    return net


LEVELS = 16
"""Of the thermometer code."""


@defence("thermometer", "no gradient", eps="0.06", **MNIST)
def thermometer(base: Base) -> Pair:
    """Each value becomes a thermometer of 16 levels (Buckman et al. 2018); the counterpart has the
    slope of a smooth one.

    The smooth thermometer is that of Athalye, Carlini & Wagner 2018, section 5.1.1, twice as wide,
    so that values between two levels have a slope. Deviation: no adversarial training.
    """
    marks = torch.arange(LEVELS)[:, None, None] / LEVELS

    def smooth(x: Tensor) -> Tensor:
        return ((x[:, :, None] - marks) * LEVELS / 2 + 0.5).clamp(0, 1).flatten(1, 2)

    def hard(x: Tensor) -> Tensor:
        return (x[:, :, None] > marks).float().flatten(1, 2)

    def wider(layer: nn.Module) -> nn.Module:
        assert isinstance(layer, nn.Conv2d)
        inputs = layer.in_channels * LEVELS
        return nn.Conv2d(inputs, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)

    net = replaced(base.empty(), nn.Conv2d, wider)
    trained(base, "thermometer", net, lambda net, x, y: plain(net, hard(x), y))
    return Pair(
        defended=Around(net, hard), counterpart=Around(net, lambda x: value_of(hard(x), smooth(x)))
    )


@defence("distillation", "answers", eps="0.06", **MNIST)
def distillation(base: Base) -> Pair:
    """Defensive distillation at temperature 100 (Papernot et al. 2016): saturated logits; the
    counterpart divides them by 100.
    """
    heat = 100.0
    teacher = trained(
        base, "teacher", base.empty(), lambda net, x, y: F.cross_entropy(net(x) / heat, y)
    )

    def soft(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            soft_labels = (teacher(x) / heat).softmax(1)
        return F.cross_entropy(net(x) / heat, soft_labels)

    student = trained(base, "distillation", base.empty(), soft)
    return Pair(defended=student, counterpart=Around(student, after=lambda z: z / heat))


@defence("output-codes", "answers", eps="0.1", **MNIST)
def output_codes(base: Base) -> Pair:
    """Error-correcting codes of 16 bits (Verma & Swami 2019): classes by correlation with saturated
    bits, below zero cut off.

    The counterpart has the slope of the correlation with the raw bits. Deviation: one network for
    all bits.
    """
    codes = torch.ones(1, 1)
    for _ in range(4):
        codes = torch.cat([torch.cat([codes, codes], 1), torch.cat([codes, -codes], 1)])
    codes = codes[1:11]

    def bits(layer: nn.Module) -> nn.Module:
        assert isinstance(layer, nn.Linear)
        return nn.Linear(layer.in_features, codes.shape[1])

    def hinge(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.relu(1 - codes[y] * net(x)).mean()

    net = trained(base, "output-codes", replaced(base.empty(), nn.Linear, bits, last=True), hinge)

    def scores(z: Tensor) -> Tensor:
        chance = (torch.tanh(4 * z) @ codes.T).clamp_min(0)
        return (chance / chance.sum(1, keepdim=True)).clamp_min(1e-4).log()

    defended, raw = Around(net, after=scores), Around(net, after=lambda z: z @ codes.T)
    return Pair(defended=defended, counterpart=Bpda(defended, raw), surrogates=(raw,))


def activated(base: Base, name: str, activation: Change, **loss: Loss) -> Pair:
    """A network that was trained with another activation; gradients are averaged over neighbours."""
    net = Activated(base.empty(), activation)
    trained(base, name, net, **loss)
    return Pair(defended=net, counterpart=net, draws=8, spread=0.03)


@defence("sine-activations", "wrong gradient", eps="0.05", **MNIST)
def sine_activations(base: Base) -> Pair:
    """Sines in place of ReLU (Sitzmann et al. 2020), trained; the counterpart averages gradients
    over neighbours.
    """
    return activated(base, "sine-activations", lambda x: torch.sin(x))


@defence("k-wta-trained", "wrong gradient", eps="0.15", **MNIST)
def k_wta_trained(base: Base) -> Pair:
    """k-WTA of a tenth (Xiao, Zhong & Zheng 2020), trained; the counterpart averages gradients over
    neighbours.
    """
    return activated(base, "k-wta-trained", largest(0.1))


def gradient_step(
    net: nn.Module, x: Tensor, y: Tensor, size: float, of: Callable[[Tensor], Tensor] = torch.sign
) -> Tensor:
    """One step along the gradient of the cross-entropy, within [0, 1]."""
    leaf = x.detach().requires_grad_()
    grad = torch.autograd.grad(F.cross_entropy(net(leaf), y, reduction="sum"), leaf)[0]
    return (x + size * of(grad)).clamp(0, 1).detach()


@defence("fgsm-overfit", "wrong gradient", eps="0.1", **MNIST)
def fgsm_overfit(base: Base) -> Pair:
    """Trained with one step of FGSM from the clean input (Goodfellow et al. 2015): it may overfit
    to that very step.

    Catastrophic overfitting: Wong, Rice & Kolter 2020. Nothing is hidden from the gradient but its
    direction; the adaptive attack averages it over neighbours, and transfers from the base.
    """
    net = trained(
        base,
        "fgsm-overfit",
        base.empty(),
        lambda net, x, y: F.cross_entropy(net(gradient_step(net, x, y, 0.3)), y),
    )
    return Pair(defended=net, counterpart=net, draws=4, spread=0.1, surrogates=(net, base.net))


@defence("gradient-penalty", "wrong gradient", eps="0.15", **MNIST)
def gradient_penalty(base: Base) -> Pair:
    """The squared gradient of the loss is penalised, at the training inputs alone (Ross &
    Doshi-Velez 2018).
    """

    def penalised(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        loss = F.cross_entropy(net(leaf), y, reduction="sum")
        grad = torch.autograd.grad(loss, leaf, create_graph=True)[0]
        return loss / len(x) + 10 * grad.square().flatten(1).sum(1).mean()

    net = trained(base, "gradient-penalty", base.empty(), penalised)
    return Pair(defended=net, counterpart=net, draws=4, spread=0.1, surrogates=(net, base.net))


@defence("small-step-curvature", "wrong gradient", eps="0.15", **MNIST)
def small_step_curvature(base: Base) -> Pair:
    """The change of the gradient over a step of 0.02 is penalised (in the manner of CURE:
    Moosavi-Dezfooli et al. 2019).
    """

    def penalised(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        def slope(x: Tensor) -> tuple[Tensor, Tensor]:
            leaf = x.detach().requires_grad_()
            loss = F.cross_entropy(net(leaf), y, reduction="sum")
            return loss, torch.autograd.grad(loss, leaf, create_graph=True)[0]

        loss, grad = slope(x)
        step = 0.02 * grad.sign().detach()
        return loss / len(x) + 30 * (slope(x + step)[1] - grad).square().flatten(1).sum(1).mean()

    net = trained(base, "small-step-curvature", base.empty(), penalised)
    return Pair(defended=net, counterpart=net, draws=4, spread=0.1, surrogates=(net, base.net))
