"""Answers a query in VNN-LIB on a network in ONNX: a proof first, then attacks in turn on every case until the time is up.

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
from torch import Tensor, nn

from brinell import plugins
from brinell.bounds._bounding import Ball
from brinell.bounds._graph import Graph, Linear, Node
from brinell.bounds._queries import Case, Query, read_query
from brinell.bounds._trace import trace
from brinell.core import bounded
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line, option
from brinell.core.model import Access, ModelInfo
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.batch_attack import KINDS, BatchAttack, model_session, parse_stages
from brinell.engine.cascade import Stage
from brinell.engine.plan import open_distance
from brinell.engine.progress import Progress
from brinell.models._onnx_network import Rows, compare, convert_file
from brinell.models._onnx_session import WRONG_FORMAT, digest_of, open_session
from brinell.models.onnx import Network, Onnx
from brinell.studies.certify import CertifyRequest
from brinell.studies.certify.proofs import Method
from brinell.studies.certify.result import QueryResult

COMPARED = 4
"""Inputs on which the network in torch is compared with ONNX Runtime."""
STARTS = 16
"""Starts of an attack side by side."""
HALF = 0.5
"""The centre of the unit cube, and the budget that makes all of it reachable."""


def answer(request: CertifyRequest, progress: Progress) -> QueryResult:
    """Answer a query."""
    start, path = time.monotonic(), Path(str(request.query)).expanduser()
    if request.network is None:
        raise RequestError(f"{path} asks about a network, and none is named: add {option('network', 'MODEL.onnx')}")
    stages = parse_stages(request.attack)
    with bounded.time_limit(request.timeout, path):
        query = read_query(path)
    network = open_network(request.network, query)
    open_cases, end = list(query.cases), start + request.timeout
    for spec in request.method:
        method: Method = plugins.build("bound", *plugins.parse(spec)[::2])
        if open_cases and time.monotonic() < end:
            open_cases = _refute(method, open_cases, network, progress)
    example, best = _search(request.seed, stages, open_cases, network, end) if open_cases else (None, -np.inf)
    verdict: Literal["sat", "unsat", "unknown"] = "sat" if example else "unknown" if open_cases else "unsat"
    proven, all_cases = len(query.cases) - len(open_cases), len(query.cases)
    if example:
        reason = f"ONNX Runtime's answer to this input satisfies the query by {example.slack:.3g}"
    elif not open_cases:
        reason = f"{', '.join(request.method)} prove that no input satisfies any of {all_cases} cases"
    else:
        excluded = f"; {proven} of {all_cases} cases are excluded by proof" if proven else ""
        blind = "" if network.module is not None else f"; without gradients, since the network {network.obstacle}"
        reason = f"no attack found an input within {request.timeout:g} s{excluded}{blind}"
    return QueryResult(
        query=str(request.query),
        network=request.network,
        verdict=verdict,
        reason=reason,
        x=dict(zip(query.inputs, example.x.tolist(), strict=True)) if example else {},
        y=dict(zip(query.outputs, example.y.tolist(), strict=True)) if example else {},
        slack=float(slack) if np.isfinite(slack := example.slack if example else best) else None,
        cases=all_cases,
        gradients=network.module is not None,
        forwards=network.forwards,
        seconds=time.monotonic() - start,
    )


class QueryNetwork:
    """A network of one input and one output, asked with flattened inputs."""

    def __init__(self, path: Path, inputs: int) -> None:
        session = open_session(path)
        sides = [side for side in session.get_inputs()[0].shape[1:] if isinstance(side, int)]
        if math.prod(sides) != inputs or len(sides) + 1 not in KINDS:
            raise RequestError(f"{path} takes inputs of shape {sides}, and the query has {inputs} inputs")
        self._shape = tuple(sides)
        self._network = Network(session, Domain(kind=KINDS[len(sides) + 1], shape=self._shape), Onnx(), str(path))
        self.element_type, self.forwards = np.dtype(self._network.dtype), 0
        self.module: nn.Module | None = None
        """The same in torch; None where it cannot be converted."""
        self.obstacle = ""
        """Why there is none."""
        try:
            converted, _ = convert_file(path, session.get_outputs()[0].name, before_softmax=False)
            rows = Rows(converted, last=False, sides=self._shape, dtype=self.element_type)
            module = nn.Sequential(rows, nn.Flatten()).eval()
            x = np.random.default_rng(0).random((COMPARED, inputs))
            with torch.no_grad():
                compare(torch.from_numpy(self.answer(x)), module(torch.from_numpy(x)).double())
            self.module = module
        except Exception as error:  # whatever the converter meets
            self.obstacle = one_line(error, 120)

    def answer(self, x: Array) -> Array:
        """(n, outputs) float64 of inputs (n, inputs) in the type of the network, by ONNX Runtime."""
        self.forwards += len(x)
        outputs: Array = np.asarray(self._network(x.reshape(len(x), *self._shape))).reshape(len(x), -1).astype(np.float64)
        return outputs


def open_network(text: str, query: Query) -> QueryNetwork:
    """Open the network of a query, from MODEL.onnx or NAME=MODEL.onnx."""
    label, separator, file = text.partition("=")
    path = Path(file if separator else text).expanduser()
    if separator and query.network and label != query.network:
        raise RequestError(f"the query asks about {query.network!r}, and --network names {label!r}: write {query.network}={path}")
    if not path.is_file():
        raise RequestError(f"there is no file {str(path)!r}: name a network, such as --network MODEL.onnx")
    _, size = digest_of(path)
    with bounded.decoding(path, size, WRONG_FORMAT):
        network = QueryNetwork(path, len(query.inputs))
        width = network.answer(np.zeros((1, len(query.inputs)))).shape[1]
    if width != len(query.outputs):
        raise RequestError(f"{path} answers with {width} values, and the query has {len(query.outputs)} outputs")
    return network


def _by_box(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases of the same box together."""
    groups: dict[bytes, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.low.tobytes() + case.high.tobytes(), []).append(case)
    return list(groups.values())


def _refute(method: Method, cases: Sequence[Case], network: QueryNetwork, progress: Progress) -> list[Case]:
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
    for group in _by_box(cases):
        margins = iter(_margins(graph, group, method).tolist())
        remaining += [case for case in group if not any([next(margins) > 0 for _ in case.b])]
    return remaining


def _margins(graph: Graph, cases: Sequence[Case], method: Method) -> Tensor:
    """(constraints of all cases,): lower bounds of what violates each constraint on the box of the cases."""
    a, b = (torch.from_numpy(np.concatenate([getattr(case, name) for case in cases])) for name in ("a", "b"))
    if not len(b):
        return b
    # Class 0 has the score 0, and class k what is left until constraint k is violated.
    weight, bias = (torch.cat([torch.zeros_like(part[:1]), part]) for part in (-a, b))
    last = Node(Linear(weight, bias), (len(graph.nodes) - 1,), (len(bias),))
    low, high = (torch.from_numpy(end)[None] for end in (cases[0].low, cases[0].high))
    radius = ((high - low) / 2).amax(1) * (1 + 1e-12) + 1e-300  # the bounds of the data cut the ball to the box
    ball = Ball((low + high) / 2, radius, low, high, "linf")
    return method(Graph((*graph.nodes, last)), ball, torch.zeros(1, dtype=torch.long))[0]


class Slack(nn.Module):
    """Cases of one box as a classifier of two classes on the unit cube: class 1 wins where all constraints of a case hold.

    The first score is 0, and the second is the slack of the tightest constraint, of the best case.
    """

    def __init__(self, network: nn.Module, cases: list[Case]) -> None:
        super().__init__()
        self.network = network
        self._parts = [(torch.from_numpy(case.a).float(), torch.from_numpy(case.b).float()) for case in cases]
        self._low, self._width = (torch.from_numpy(v).float() for v in (cases[0].low, cases[0].high - cases[0].low))

    def forward(self, u: Tensor) -> Tensor:
        """(n, inputs) in the unit cube to (n, 2) scores."""
        y = self.network(self._low + self._width * u)
        slacks = [(b - y @ a.T).amin(1) if len(b) else y.new_full((len(y),), torch.inf) for a, b in self._parts]
        slack = torch.stack(slacks, 1).amax(1)
        return torch.stack([torch.zeros_like(slack), slack], 1)


@dataclass(frozen=True)
class Counterexample:
    """An input that satisfies the query, with the outputs of ONNX Runtime."""

    x: Array
    y: Array
    slack: float


class CaseModel:
    """Cases of one box as a model that attacks can ask."""

    name, classes = "the query", 2

    def __init__(self, cases: list[Case], network: QueryNetwork) -> None:
        self._cases, self._network = cases, network
        self._module = None if network.module is None else Slack(network.module, cases).eval()
        self.domain = Domain(kind="vector", shape=(len(cases[0].low),))
        self.access = Access.SCORES if self._module is None else Access.GRADIENTS
        self.info = ModelInfo(module=self._module)

    def digest(self) -> str:
        """No digest: nothing is stored by it."""
        return ""

    def predict(self, u: Tensor) -> Tensor:
        """(n, 2) scores."""
        if self._module is not None:
            self._network.forwards += len(u)
            scores: Tensor = self._module(u)
            return scores
        y = self._network.answer(self._inputs(u))
        slack = torch.from_numpy(np.stack([case.slack(y) for case in self._cases], 1).max(1)).float()
        return torch.stack([torch.zeros_like(slack), slack], 1)

    def _inputs(self, u: Tensor) -> Array:
        """The inputs at points (n, inputs) of the unit cube, in the type of the network, in the box where one of that type is."""
        case, kind = self._cases[0], self._network.element_type
        x = (case.low + (case.high - case.low) * u.detach().double().numpy()).astype(kind)
        low, high = case.low.astype(kind), case.high.astype(kind)
        low = np.where(low.astype(np.float64) < case.low, np.nextafter(low, kind.type(np.inf)), low)
        high = np.where(high.astype(np.float64) > case.high, np.nextafter(high, kind.type(-np.inf)), high)
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
        return Counterexample(x[row].astype(np.float64), y[row], float(slacks[row, column])), float(slacks.max())


def _search(
    seed: int, stages: tuple[Stage, ...], cases: Sequence[Case], network: QueryNetwork, end: float
) -> tuple[Counterexample | None, float]:
    """Attack all boxes in turn, the cases of each together and then alone, until an input is found or the time is up."""
    joint = _by_box(cases)
    models = [CaseModel(group, network) for group in joint]
    models += [CaseModel([case], network) for group in joint if len(group) > 1 for case in group]
    usable = [stage for stage in stages if stage.attack.access <= models[0].access]
    if not usable:
        raise RequestError(f"no attack can run, since the network {network.obstacle}: add square")
    best, shape = -np.inf, (STARTS, len(cases[0].low))
    start = torch.full(shape, HALF)
    points = torch.cat([start[:1], Streams.of(seed, torch.arange(STARTS)).uniform(shape[1])])
    attempts = itertools.chain(
        ((model, None, 0) for model in models),
        ((model, stage, turn) for turn in itertools.count() for stage, model in itertools.product(usable, models)),
    )
    for model, stage, turn in attempts:
        if stage is not None:
            if time.monotonic() > end:
                break
            labels, number = torch.zeros(STARTS, dtype=torch.int64), seed + turn * len(usable)
            attack = BatchAttack(model, model.domain, open_distance("linf"), start, labels, STARTS, None, number)
            with model_session(model):
                points = attack.run((stage,), start[:, 0], None, worst=True)["x_adv"]
        example, slack = model.check(points)
        best = max(best, slack)
        if example:
            return example, best
    return None, best
