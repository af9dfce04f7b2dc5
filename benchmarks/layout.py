"""How images lie in memory, and how the gradient comes back to them through the first convolution, on one core.

    python benchmarks/layout.py [--repetitions 7]

A pass goes forward and back to the input; both ways take turns. What a model chooses by itself is the last column.
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
        one = measure.subject(name)
        module, x = one.module(), torch.rand(batch, *one.shape, generator=torch.Generator().manual_seed(0))
        first, last, forward_first, forward_last = compare(module, x, options.repetitions)
        shown: list[tuple[int, ...]] = []
        hook = module.register_forward_pre_hook(lambda _, given, shown=shown: shown.append(given[0].stride()))
        TorchModel(module, one.domain).predict(x)
        hook.remove()
        chosen = "first" if shown[-1] == x.stride() else "last"
        both = (f"{forward_first:.1f}", f"{forward_last:.1f}")
        table.add(one.name, batch, f"{first:.1f}", f"{last:.1f}", f"{last / first:.2f}", *both, chosen)
    columns = ("network", "batch", "torch's ms", "ours ms", "ours / torch's", "a model takes")
    table = measure.Table("The first convolution's gradient", measure.command(options, "repetitions"), columns)
    for name in ("cnn4_pgd", "lenet5_clean", "resnet4b", "resnet2b", "cnn_wide_kw", "resnet20"):
        one = measure.subject(name)
        model = TorchModel(one.module(), one.domain)
        chosen = "ours" if model._first_conv else "torch's"
        for batch in (64, 250):
            x = torch.rand(batch, *one.shape, generator=torch.Generator().manual_seed(0))
            plain, fast = first_conv(model, x, options.repetitions)
            table.add(one.name, batch, f"{plain:.1f}", f"{fast:.1f}", f"{fast / plain:.2f}", chosen)


def first_conv(model: TorchModel, x: torch.Tensor, repetitions: int) -> list[float]:
    """Median processor milliseconds of a pass forward and back: torch's gradient of the first convolution, and ours."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repetitions):
        for model._first_conv, kept in times.items():
            began = time.process_time()
            passes(model.predict, x, lambda x: x, back=True)
            kept.append(1000 * (time.process_time() - began))
    return [statistics.median(kept) for kept in times.values()]


def compare(module: torch.nn.Module, x: torch.Tensor, repetitions: int) -> list[float]:
    """Medians in milliseconds of the processor: both ways first and last, then forward first and last."""
    turns = [(back, turn) for back in (True, False) for turn in (lambda x: x, channels_last)]
    times: dict[int, list[float]] = {number: [] for number in range(len(turns))}
    for _ in range(repetitions):
        for number, (back, turn) in enumerate(turns):
            began = time.process_time()
            passes(module, x, turn, back)
            times[number].append(1000 * (time.process_time() - began))
    return [statistics.median(times[number]) for number in range(len(turns))]


def passes(module: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, turn, back: bool) -> None:
    """One pass forward and, if `back`, to the input."""
    leaf = x.clone().requires_grad_(back)
    with torch.set_grad_enabled(back):
        logits = module(turn(leaf))
        if back:
            torch.autograd.grad(logits.logsumexp(1).sum(), leaf)


if __name__ == "__main__":
    main()
