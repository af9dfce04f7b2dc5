"""Defences that look robust and are not, each around a network: every one must raise its own check."""

import torch
from torch import nn


class Wrapper(nn.Module):
    """A network and something done to its inputs, its answers or its gradients."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


class Noisy(Wrapper):
    """Adds fresh noise to every answer."""

    def __init__(self, net, scale=1.0):
        super().__init__(net)
        self.scale, self.draw = scale, torch.Generator().manual_seed(0)

    def forward(self, x):
        logits = self.net(x)
        return logits + self.scale * torch.randn(logits.shape, generator=self.draw)


class Quantised(Wrapper):
    """Sees inputs on a few levels; `through` passes gradients on as if it did not."""

    def __init__(self, net, levels=8, through=False):
        super().__init__(net)
        self.levels, self.through = levels, through

    def forward(self, x):
        stair = (x * self.levels).round() / self.levels
        return self.net(x + (stair - x).detach() if self.through else stair)


class OneHot(Wrapper):
    """Answers with the class alone."""

    def forward(self, x):
        logits = self.net(x)
        return 10 * nn.functional.one_hot(logits.argmax(1), logits.shape[1]).float()


class Softmax(Wrapper):
    """Answers with probabilities."""

    def forward(self, x):
        return self.net(x).softmax(1)


class Scaled(Wrapper):
    """Logits so large that the softmax is exactly one class."""

    def __init__(self, net, factor=1e4):
        super().__init__(net)
        self.factor = factor

    def forward(self, x):
        return self.factor * self.net(x)


class Ripples(Wrapper):
    """Adds to every value a sine of itself: too small to matter to the answer, so fast that it
    rules the gradient.
    """

    def __init__(self, net, size=0.02, frequency=1000.0):
        super().__init__(net)
        self.size, self.frequency = size, frequency

    def forward(self, x):
        return self.net(x + self.size * torch.sin(self.frequency * x))


class _Backward(torch.autograd.Function):
    """The identity, with another gradient."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.change(grad), None


class WrongGradient(Wrapper):
    """Passes on zeros, noise or the opposite in place of its gradient."""

    def __init__(self, net, kind):
        super().__init__(net)
        self.kind = kind

    def forward(self, x):
        draw = torch.Generator().manual_seed(1)
        change = {
            "zeros": torch.zeros_like,
            "noise": lambda grad: grad.abs().mean() * torch.randn(grad.shape, generator=draw),
            "faint noise": lambda grad: 1e-6 * torch.randn(grad.shape, generator=draw),
            "opposite": torch.neg,
            "nan": lambda grad: grad * float("nan"),
        }[self.kind]
        return self.net(_Backward.apply(x, change))


class Purifier(Wrapper):
    """Moves its input by its own gradient before it answers."""

    def __init__(self, net, method="autograd"):
        super().__init__(net)
        self.method = method

    def forward(self, x):
        if self.method == "func":
            step = torch.func.grad(lambda z: self.net(z).logsumexp(1).sum())(x)
        elif self.method == "never":  # switches gradients on, and asks for none
            with torch.enable_grad():
                return (
                    self.net(x.detach().requires_grad_()).detach()
                    if not x.requires_grad
                    else self.net(x)
                )
        else:
            with torch.enable_grad():
                leaf = x.detach().clone().requires_grad_()
                (step,) = torch.autograd.grad(self.net(leaf).logsumexp(1).sum(), leaf)
        return self.net((x + 1e-3 * step.sign()).clamp(0, 1))
