"""The search: a proof first, then attacks in turn on every case, and ONNX Runtime's answer to what they find."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from brinell import plugins
from brinell.bounds._bounding import Ball
from brinell.bounds._graph import Graph, Linear, Node
from brinell.bounds._queries import Case, Query, read_query
from brinell.bounds._trace import trace
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access, ModelInfo
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.batch_attack import BatchAttack, model_session, parse_stages
from brinell.engine.cascade import Stage
from brinell.engine.plan import open_distance
from brinell.store.files import write_text
from brinell.studies.falsify.network import QueryNetwork, open_network
from brinell.studies.falsify.request import FalsifyRequest
from brinell.studies.falsify.result import FalsifyResult, competition_lines
from brinell.studies.kit import Call

Method = Callable[[Graph, Ball, Tensor], Tensor]
"""A bound: lower bounds (n, classes - 1) of the margins on balls, from the labels (n,)."""
HALF = 0.5
"""The centre of the unit cube, and the budget that makes all of it reachable."""


class Slack(nn.Module):
    """A query as a classifier of two classes on the unit cube: class 1 wins where all constraints of a case hold.

    The first score is 0, and the second is the slack of the tightest constraint, of the best case with this box.
    """

    def __init__(self, network: nn.Module, cases: list[Case]) -> None:
        super().__init__()
        self.network = network
        for name, value in (("low", cases[0].low), ("width", cases[0].high - cases[0].low)):
            self.register_buffer(name, torch.from_numpy(value).float())
        for k, case in enumerate(cases):
            self.register_buffer(f"a{k}", torch.from_numpy(case.a).float())
            self.register_buffer(f"b{k}", torch.from_numpy(case.b).float())
        self._count = len(cases)

    def forward(self, u: Tensor) -> Tensor:
        """(n, inputs) in the unit cube to (n, 2) scores."""
        y = self.network(self.get_buffer("low") + self.get_buffer("width") * u)
        slacks = [self._slack(y, k) for k in range(self._count)]
        slack = torch.stack(slacks, 1).amax(1)
        return torch.stack([torch.zeros_like(slack), slack], 1)

    def _slack(self, y: Tensor, k: int) -> Tensor:
        """(n,): the slack of a case."""
        a, b = self.get_buffer(f"a{k}"), self.get_buffer(f"b{k}")
        return (b - y @ a.T).amin(1) if len(b) else y.new_full((len(y),), torch.inf)


@dataclass(frozen=True, eq=False)
class CaseModel:
    """The cases of one box as a model that attacks can ask."""

    domain: Domain
    cases: list[Case]
    network: QueryNetwork
    module: Slack | None
    name: str = "the query"
    classes: int = 2

    @property
    def access(self) -> Access:
        """Gradients where the network is known in torch."""
        return Access.SCORES if self.module is None else Access.GRADIENTS

    @property
    def info(self) -> ModelInfo:
        """Info with the module of the network."""
        return ModelInfo(module=self.module)

    def digest(self) -> str:
        """No digest: nothing is stored by it."""
        return ""

    def inputs(self, u: Tensor) -> Array:
        """The inputs of the network at points (n, inputs) of the unit cube, in its type and within the box."""
        low, high = self.cases[0].low, self.cases[0].high
        return clip_to_box(low + (high - low) * u.detach().double().numpy(), self.cases[0], self.network)

    def predict(self, u: Tensor) -> Tensor:
        """(n, 2) scores."""
        if self.module is not None:
            scores: Tensor = self.module(u)
            return scores
        y = self.network.answer(self.inputs(u))
        slack = torch.from_numpy(np.stack([case.slack(y) for case in self.cases], 1).max(1)).float()
        return torch.stack([torch.zeros_like(slack), slack], 1)


def clip_to_box(x: Array, case: Case, network: QueryNetwork) -> Array:
    """Inputs in the type of the network, moved into the box where rounding took them out."""
    kind = network.element_type
    low, high = case.low.astype(kind), case.high.astype(kind)
    low = np.where(low.astype(np.float64) < case.low, np.nextafter(low, kind(np.inf)), low)
    high = np.where(high.astype(np.float64) > case.high, np.nextafter(high, kind(-np.inf)), high)
    fits = low <= high  # no number of this type lies in the box where it does not
    return np.where(fits, np.clip(x.astype(kind), low, np.maximum(low, high)), x.astype(kind))


@dataclass(frozen=True)
class Counterexample:
    """An input that satisfies the query, with the outputs of ONNX Runtime."""

    x: Array
    y: Array
    slack: float


def carry_out(call: Call) -> FalsifyResult:
    """Answer a query, and write the answer where a file is named."""
    start, request = time.monotonic(), call.request
    answer_file = Path(request.answer).expanduser() if request.answer else None
    if answer_file is not None and not answer_file.absolute().parent.is_dir():
        raise RequestError(f"the answer cannot be written to {answer_file}: there is no folder {answer_file.parent}")
    stages = parse_stages(request.attack)
    query = read_query(Path(request.query).expanduser())
    network = open_network(request.network, query.network, len(query.inputs), len(query.outputs))
    refuted = _refute(request.bound, query, network, call)
    example: Counterexample | None = None
    best = -np.inf
    if not all(refuted):
        cases = [case for case, is_refuted in zip(query.cases, refuted, strict=True) if not is_refuted]
        example, best = _search(request, stages, cases, network, start + request.timeout)
    result = FalsifyResult(
        query=str(request.query),
        network=str(request.network),
        verdict="sat" if example else "unsat" if all(refuted) else "unknown",
        reason=_reason(request, query, network, example, refuted),
        x=_values_by_name(query.inputs, example.x if example else None),
        y=_values_by_name(query.outputs, example.y if example else None),
        slack=example.slack if example else float(best) if np.isfinite(best) else None,
        cases=len(query.cases),
        gradients=network.module is not None,
        forwards=network.forwards,
        seconds=time.monotonic() - start,
    )
    if answer_file is not None:
        write_text(answer_file, "\n".join(competition_lines(result)) + "\n")
    return result


def _values_by_name(names: tuple[str, ...], values: Array | None) -> dict[str, float]:
    return {} if values is None else dict(zip(names, map(float, values), strict=True))


def _reason(
    request: FalsifyRequest, query: Query, network: QueryNetwork, example: Counterexample | None, refuted: list[bool]
) -> str:
    """How the verdict was reached."""
    if example:
        return f"ONNX Runtime's answer to this input satisfies the query by {example.slack:.3g}"
    if all(refuted):
        return f"{request.bound} proves that no input satisfies any of {len(query.cases)} cases"
    proven = f"; {sum(refuted)} of {len(query.cases)} cases are excluded by proof" if any(refuted) else ""
    blind = "" if network.module is not None else f"; without gradients, since the network {network.obstacle}"
    return f"no attack found an input within {request.timeout:g} s{proven}{blind}"


def _refute(spec: str, query: Query, network: QueryNetwork, call: Call) -> list[bool]:
    """For each case whether a bound proves that no input satisfies it."""
    refuted = [False] * len(query.cases)
    module = network.module
    if spec == "none" or module is None:
        return refuted
    name, _, options = plugins.parse(spec)
    method: Method = plugins.build("bound", name, options)
    centre = torch.from_numpy((query.cases[0].low + query.cases[0].high) / 2).float()[None]
    try:
        graph = trace(lambda x: module(x), centre)
    except RequestError as error:
        call.progress.note(f"no proof is tried: {error}")
        return refuted
    for group in _by_box(query.cases):
        margins = iter(_margins(graph, [query.cases[k] for k in group], method).tolist())
        for k in group:
            refuted[k] = any([next(margins) > 0 for _ in query.cases[k].b])
    return refuted


def _margins(graph: Graph, cases: list[Case], method: Method) -> Tensor:
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


def _by_box(cases: Sequence[Case]) -> list[list[int]]:
    groups: dict[bytes, list[int]] = {}
    for k, case in enumerate(cases):
        groups.setdefault(case.low.tobytes() + case.high.tobytes(), []).append(k)
    return list(groups.values())


def _search(
    request: FalsifyRequest, stages: tuple[Stage, ...], cases: list[Case], network: QueryNetwork, end: float
) -> tuple[Counterexample | None, float]:
    """Attack all boxes in turn until an input is found or the time is up."""
    models = [_model(group, network) for group in _groups(cases)]
    usable = [stage for stage in stages if stage.attack.access <= models[0].access]
    if not usable:
        raise RequestError(f"no attack can run, since the network {network.obstacle}: add square")
    starts, seed = request.starts, request.seed
    best = -np.inf
    for model in models:
        example, slack = _check(model, torch.cat([torch.full((1, _width(model)), HALF), _uniform(seed, starts, _width(model))]))
        best = max(best, slack)
        if example:
            return example, best
    for turn in itertools.count():
        for stage, model in itertools.product(usable, models):
            if time.monotonic() > end:
                return None, best
            x = torch.full((starts, _width(model)), HALF)
            attack = BatchAttack(
                model,
                model.domain,
                open_distance("linf"),
                x,
                torch.zeros(starts, dtype=torch.int64),
                starts,
                None,
                seed + turn * len(usable),
            )
            with model_session(model):
                result = attack.run((stage,), torch.full((starts,), HALF), None, worst=True)
            if network.module is not None:
                network.forwards += int(result["queries"].sum())
            example, slack = _check(model, result["x_adv"])
            best = max(best, slack)
            if example:
                return example, best
    raise AssertionError  # the turns have no end


def _uniform(seed: int, n: int, width: int) -> Tensor:
    """Points (n, width) of the unit cube."""
    return Streams.of(seed, torch.arange(n)).uniform(width)


def _width(model: CaseModel) -> int:
    """Number of inputs."""
    return model.domain.shape[0]


def _groups(cases: list[Case]) -> list[list[Case]]:
    """Cases of the same box: all together first, then each alone."""
    joint = [[cases[k] for k in group] for group in _by_box(cases)]
    return joint + [[case] for group in joint if len(group) > 1 for case in group]


def _model(cases: list[Case], network: QueryNetwork) -> CaseModel:
    domain = Domain(kind="vector", shape=(len(cases[0].low),))
    module = None if network.module is None else Slack(network.module, cases).eval()
    return CaseModel(domain, cases, network, module)


def _check(model: CaseModel, u: Tensor) -> tuple[Counterexample | None, float]:
    """The best of some points that ONNX Runtime confirms, and the largest slack of any."""
    x = model.inputs(u)
    y = model.network.answer(x)
    slacks = np.stack([case.slack(y) for case in model.cases], 1)
    holds = np.stack([case.holds(x.astype(np.float64), y) for case in model.cases], 1)
    confirmed = np.where(holds, slacks, -np.inf)
    row, column = np.unravel_index(int(confirmed.argmax()), confirmed.shape)
    if holds[row, column]:
        return Counterexample(x[row].astype(np.float64), y[row], float(slacks[row, column])), float(slacks.max())
    return None, float(slacks.max())
