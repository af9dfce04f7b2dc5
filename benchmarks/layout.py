"""How images lie in memory, and how the gradient comes back to them through the first convolution, on one core.

    python benchmarks/layout.py [--repetitions 7]

A pass goes forward and back to the input; both ways take turns. The last column is the choice of the model itself.
"""

import statistics
import time
from collections.abc import Callable

import measure
import torch

from brinell.models._torch_model import TorchModel, channels_last

CASES = (
    ("lenet5_clean", 45),
    ("lenet5_clean", 250),
    ("cnn4_pgd", 250),
    ("resnet20", 250),
    ("resnet4b", 250),
    ("cnn_wide_kw", 250),
)


def main() -> None:
    """The table."""
    options = measure.arguments(__doc__ or "", repetitions=7)
    columns = ("network", "batch", "first ms", "last ms", "last / first", "forward first ms", "forward last ms", "a model takes")
    table = measure.Table("Channels last", measure.command(options, "repetitions"), columns)
    for name, batch in CASES:
        subject = measure.subject(name)
        module, x = subject.module(), torch.rand(batch, *subject.shape, generator=torch.Generator().manual_seed(0))
        first, last, forward_first, forward_last = compare(module, x, options.repetitions)
        strides: list[tuple[int, ...]] = []
        hook = module.register_forward_pre_hook(lambda _, inputs, strides=strides: strides.append(inputs[0].stride()))
        TorchModel(module, subject.domain).predict(x)
        hook.remove()
        layout = "first" if strides[-1] == x.stride() else "last"
        seconds = (f"{forward_first:.1f}", f"{forward_last:.1f}")
        table.add(subject.name, batch, f"{first:.1f}", f"{last:.1f}", f"{last / first:.2f}", *seconds, layout)
    columns = ("network", "batch", "torch's ms", "ours ms", "ours / torch's", "a model takes")
    table = measure.Table("The first convolution's gradient", measure.command(options, "repetitions"), columns)
    for name in ("cnn4_pgd", "lenet5_clean", "resnet4b", "resnet2b", "cnn_wide_kw", "resnet20"):
        subject = measure.subject(name)
        model = TorchModel(subject.module(), subject.domain)
        layout = "ours" if model._first_conv else "torch's"
        for batch in (64, 250):
            x = torch.rand(batch, *subject.shape, generator=torch.Generator().manual_seed(0))
            plain, fast = first_conv(model, x, options.repetitions)
            table.add(subject.name, batch, f"{plain:.1f}", f"{fast:.1f}", f"{fast / plain:.2f}", layout)


def first_conv(model: TorchModel, x: torch.Tensor, repetitions: int) -> list[float]:
    """Median processor milliseconds of a pass forward and back: torch's gradient of the first convolution, and ours."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repetitions):
        for model._first_conv, durations in times.items():
            began = time.process_time()
            passes(model.predict, x, lambda x: x, backward=True)
            durations.append(1000 * (time.process_time() - began))
    return [statistics.median(durations) for durations in times.values()]


def compare(module: torch.nn.Module, x: torch.Tensor, repetitions: int) -> list[float]:
    """Medians in milliseconds of the processor: both ways first and last, then forward first and last."""
    turns = [(backward, turn) for backward in (True, False) for turn in (lambda x: x, channels_last)]
    times: dict[int, list[float]] = {number: [] for number in range(len(turns))}
    for _ in range(repetitions):
        for number, (backward, turn) in enumerate(turns):
            began = time.process_time()
            passes(module, x, turn, backward)
            times[number].append(1000 * (time.process_time() - began))
    return [statistics.median(times[number]) for number in range(len(turns))]


def passes(module: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, turn, backward: bool) -> None:
    """One pass forward and, if `backward`, a gradient of the input."""
    leaf = x.clone().requires_grad_(backward)
    with torch.set_grad_enabled(backward):
        logits = module(turn(leaf))
        if backward:
            torch.autograd.grad(logits.logsumexp(1).sum(), leaf)


if __name__ == "__main__":
    main()
