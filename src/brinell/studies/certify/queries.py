"""Answers a query in VNN-LIB on a network in ONNX: a proof first, then attacks in turn on every
case until the time is up.

What attacks find counts where ONNX Runtime confirms it.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.bounds._proofs import Method
from brinell.bounds._queries import Case, Query, by_box, read_query, violations
from brinell.bounds._trace import trace
from brinell.core import bounded
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, ModelInfo
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.batch_attack import KINDS, BatchAttack, model_session, parse_stages
from brinell.engine.cascade import Stage
from brinell.engine.plan import open_distance
from brinell.engine.progress import Progress
from brinell.models._onnx_network import FlatNetwork
from brinell.models._onnx_session import WRONG_FORMAT, digest_of, open_session
from brinell.models.onnx import Network, Onnx
from brinell.studies.certify import CertifyRequest
from brinell.studies.certify.result import QueryResult

STARTS = 16
"""Starts of an attack side by side."""


def answer(request: CertifyRequest, progress: Progress) -> QueryResult:
    """Answer a query."""
    start = time.monotonic()
    path = Path(str(request.query)).expanduser()
    if request.network is None:
        raise RequestError(
            f"{path} asks about a network, and none is named: add {option('network', 'MODEL.onnx')}"
        )
    stages = parse_stages(request.attack)
    with bounded.time_limit(request.timeout, path):
        query = read_query(path)
    network = open_network(request.network, query)

    # Proofs first: a case that is excluded need not be attacked.
    open_cases = list(query.cases)
    end = start + request.timeout
    for spec in request.method:
        # Of a spec the name and the options: a bound has no address between them.
        method: Method = plugins.build("bound", *plugins.parse(spec)[::2])
        if open_cases and time.monotonic() < end:
            open_cases = _refute(method, open_cases, network, progress)
    example = None
    best = -np.inf
    if open_cases:
        example, best = _search(request.seed, stages, open_cases, network, end)

    verdict: Literal["sat", "unsat", "unknown"] = "unknown" if open_cases else "unsat"
    reason = _reason(request, len(query.cases), len(open_cases), network)
    slack = best
    x, y = {}, {}
    if example:
        verdict = "sat"
        reason = f"ONNX Runtime's answer to this input satisfies the query by {example.slack:.3g}"
        slack = example.slack
        x = dict(zip(query.inputs, example.x.tolist(), strict=True))
        y = dict(zip(query.outputs, example.y.tolist(), strict=True))
    return QueryResult(
        query=str(request.query),
        network=request.network,
        verdict=verdict,
        reason=reason,
        x=x,
        y=y,
        slack=float(slack) if np.isfinite(slack) else None,
        gradients=network.module is not None,
        forwards=network.forwards,
        seconds=time.monotonic() - start,
    )


def _reason(request: CertifyRequest, cases: int, open_cases: int, network: FlatNetwork) -> str:
    """Why no input of a query is known: proofs of all cases, or the time was up."""
    if not open_cases:
        return f"{', '.join(request.method)} prove that no input satisfies any of {cases} cases"
    proven = cases - open_cases
    excluded = f"; {proven} of {cases} cases are excluded by proof" if proven else ""
    blind = ""
    if network.module is None:
        blind = f"; without gradients, since the network {network.obstacle}"
    return f"no attack found an input within {request.timeout:g} s{excluded}{blind}"


def open_network(text: str, query: Query) -> FlatNetwork:
    """Open the network of a query, from MODEL.onnx or NAME=MODEL.onnx."""
    label, separator, file = text.partition("=")
    path = Path(file if separator else text).expanduser()
    if separator and query.network and label != query.network:
        raise RequestError(
            f"the query asks about {query.network!r}, and --network names "
            f"{label!r}: write {query.network}={path}"
        )
    if not path.is_file():
        raise RequestError(
            f"there is no file {str(path)!r}: name a network, such as --network MODEL.onnx"
        )

    _, size = digest_of(path)
    with bounded.decoding(path, size, WRONG_FORMAT):
        session = open_session(path)
        sides = tuple(side for side in session.get_inputs()[0].shape[1:] if isinstance(side, int))
        if math.prod(sides) != len(query.inputs) or len(sides) + 1 not in KINDS:
            raise RequestError(
                f"{path} takes inputs of shape {list(sides)}, and the query has "
                f"{len(query.inputs)} inputs"
            )
        domain = Domain(kind=KINDS[len(sides) + 1], shape=sides)
        network = FlatNetwork(Network(session, domain, Onnx(), str(path)), sides, path)
        width = network.answer(np.zeros((1, len(query.inputs)))).shape[1]
    if width != len(query.outputs):
        raise RequestError(
            f"{path} answers with {width} values, and the query has {len(query.outputs)} outputs"
        )
    return network


def _refute(
    method: Method, cases: Sequence[Case], network: FlatNetwork, progress: Progress
) -> list[Case]:
    """The cases for which a bound does not prove that no input satisfies them."""
    if (module := network.module) is None:
        return list(cases)

    centre = torch.from_numpy((cases[0].low + cases[0].high) / 2).float()[None]
    try:
        graph = trace(lambda x: module(x), centre)
    except RequestError as error:
        progress.note(f"no proof is tried: {error}")
        return list(cases)

    remaining = []
    for group in by_box(cases):
        margins = iter(violations(graph, group, method).tolist())
        # All margins of a group come in one list, those of a case together: each takes its own.
        remaining += [case for case in group if not any([next(margins) > 0 for _ in case.b])]
    return remaining


@dataclass(frozen=True)
class Counterexample:
    """An input that satisfies the query, with the outputs of ONNX Runtime."""

    x: Array
    y: Array
    slack: float


class CaseModel:
    """Cases of one box as a classifier of the unit cube that attacks can ask: class 1 wins where
    all constraints of a case hold.

    The first score is 0, and the second is the slack of the tightest constraint, of the best case.
    """

    name, classes, info = "the query", 2, ModelInfo()

    def __init__(self, cases: list[Case], network: FlatNetwork) -> None:
        self._cases, self._network = cases, network
        # All cases are of one box, which attacks see as the unit cube.
        self._low = torch.from_numpy(cases[0].low).float()
        self._high = torch.from_numpy(cases[0].high).float()
        self._constraints = [(torch.from_numpy(case.a), torch.from_numpy(case.b)) for case in cases]
        self.domain = Domain(kind="vector", shape=(len(cases[0].low),))
        self.access = Access.SCORES if network.module is None else Access.GRADIENTS

    def digest(self) -> str:
        """No digest: nothing is stored by it."""
        return ""

    def predict(self, u: Tensor) -> Tensor:
        """(n, 2) scores."""
        if self._network.module is None:
            y = torch.from_numpy(self._network.answer(self._inputs(u)))
        else:
            self._network.forwards += len(u)
            y = self._network.module(self._low + (self._high - self._low) * u).double()
        slacks = [
            (b - y @ a.T).amin(1) if len(b) else y.new_full((len(y),), torch.inf)
            for a, b in self._constraints
        ]
        slack = torch.stack(slacks, 1).amax(1).float()
        return torch.stack([torch.zeros_like(slack), slack], 1)

    def _inputs(self, u: Tensor) -> Array:
        """The inputs at points (n, inputs) of the unit cube, in the type of the network, in the box
        where one of that type is.
        """
        case, kind = self._cases[0], self._network.element_type
        x = (case.low + (case.high - case.low) * u.detach().double().numpy()).astype(kind)
        # Both ends are rounded into the box; if they cross, no number of the type lies in it.
        low, high = case.low.astype(kind), case.high.astype(kind)
        low = np.where(low.astype(np.float64) < case.low, np.nextafter(low, kind.type(np.inf)), low)
        high = np.where(
            high.astype(np.float64) > case.high, np.nextafter(high, kind.type(-np.inf)), high
        )
        inputs: Array = np.where(low <= high, np.clip(x, low, np.maximum(low, high)), x)
        return inputs

    def check(self, u: Tensor) -> tuple[Counterexample | None, float]:
        """The best of some points that ONNX Runtime confirms, and the largest slack of any."""
        x = self._inputs(u)
        y = self._network.answer(x)
        slacks = np.stack([case.slack(y) for case in self._cases], 1)
        holds = np.stack([case.holds(x.astype(np.float64), y) for case in self._cases], 1)
        row, column = np.unravel_index(int(np.where(holds, slacks, -np.inf).argmax()), slacks.shape)
        if not holds[row, column]:
            return None, float(slacks.max())
        return Counterexample(x[row].astype(np.float64), y[row], float(slacks[row, column])), float(
            slacks.max()
        )


def _search(
    seed: int, stages: tuple[Stage, ...], cases: Sequence[Case], network: FlatNetwork, end: float
) -> tuple[Counterexample | None, float]:
    """Attack all boxes in turn, the cases of each together and then alone, until an input is found
    or the time is up.
    """
    joint = by_box(cases)
    models = [CaseModel(group, network) for group in joint]
    models += [CaseModel([case], network) for group in joint if len(group) > 1 for case in group]
    usable = [stage for stage in stages if stage.attack.access <= models[0].access]
    if not usable:
        raise RequestError(f"no attack can run, since the network {network.obstacle}: add square")

    # The centre of the unit cube: a budget of as much makes all of it reachable.
    best = -np.inf
    shape = (STARTS, len(cases[0].low))
    start = torch.full(shape, 0.5)
    # The centre once, then the random points.
    points = torch.cat([start[:1], Streams.of(seed, torch.arange(STARTS)).uniform(shape[1])])
    # These points first, then all attacks in turn, each time with other random numbers.
    attempts = itertools.chain(
        ((model, None, 0) for model in models),
        (
            (model, stage, turn)
            for turn in itertools.count()
            for stage, model in itertools.product(usable, models)
        ),
    )
    for model, stage, turn in attempts:
        if stage is not None:
            if time.monotonic() > end:
                break
            labels = torch.zeros(STARTS, dtype=torch.int64)
            number = seed + turn * len(usable)  # other random numbers in every turn
            attack = BatchAttack(
                model,
                model.domain,
                open_distance("linf"),
                start,
                labels,
                batch_size=STARTS,
                queries=None,
                seed=number,
            )
            # The coordinates of the centre, 0.5, are the budgets as well: they reach all of the
            # cube.
            with model_session(model):
                points = attack.run((stage,), eps=start[:, 0], targeted=None, worst=True)["x_adv"]
        example, slack = model.check(points)
        best = max(best, slack)
        if example:
            return example, best
    return None, best
