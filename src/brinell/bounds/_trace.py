"""A network as a graph, read from the operations that torch carries out when the network answers.

Whatever Python code the network runs on the way is carried out, not interpreted: only operations on
tensors that depend on the input are kept. Weights that are computed from other weights become
constants.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from brinell.bounds._graph import Graph, Node
from brinell.bounds._readers import READERS
from brinell.bounds._recorder import BATCH, GraphRecorder, Unbounded
from brinell.core.errors import one_line

TOLERANCE = 1e-3
"""Largest difference between the answers of graph and network, as a share of the largest score."""


def trace(answer: Callable[[Tensor], Tensor], x: Tensor) -> Graph:
    """The graph of a network, with its constants on the processor.

    Args:
        answer: takes inputs (n, *shape), returns scores (n, classes).
        x: at least one input (n, *shape), on which graph and network are compared.

    Raises:
        Unbounded: an operation that has no bound here, or answers of the graph that are not those
            of the network.
    """
    # Several equal samples show along which axes the batch lies.
    example = x[:1].repeat(BATCH, *[1] * (x.dim() - 1))

    recorder = GraphRecorder(example, READERS)
    try:
        with torch.no_grad(), _without_fast_path(), recorder:
            scores = answer(example)
        with torch.no_grad():
            expected = answer(x).double().cpu()
    except Unbounded:
        raise
    except RuntimeError as error:  # TorchScript wraps what is raised within it
        raise Unbounded(f"its operations cannot be followed ({one_line(error, 120)})") from None

    if id(scores) not in recorder.positions:
        raise Unbounded("the scores do not depend on the input by operations of torch")
    last = recorder.positions[id(scores)]
    graph = _without_unused(recorder.nodes, last)

    with torch.no_grad():
        # A wrong reading would make unsound proofs, so the graph is put to the test.
        answers = graph.values(x.double().cpu())[-1]
    difference = float("inf")
    if expected.shape == answers.shape:
        difference = float((expected - answers).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise Unbounded(
            "the network that was read answers differently than the model, by up "
            f"to {difference:.3g}"
        )
    return graph


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Attention by its parts, and not by one operation of torch."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)


def _without_unused(nodes: Sequence[Node], last: int) -> Graph:
    """The graph of those nodes on which the last one depends."""
    used = {0}
    waiting = [last]
    while waiting:
        k = waiting.pop()
        if k not in used:
            used.add(k)
            waiting += nodes[k].arguments

    # Nodes stay in the order of their numbers, in which each comes after its arguments.
    order = sorted(used)
    places = {k: place for place, k in enumerate(order)}
    remaining = []
    for k in order:
        arguments = tuple(places[j] for j in nodes[k].arguments)
        remaining.append(Node(nodes[k].operation, arguments, nodes[k].shape))
    return Graph(tuple(remaining))
