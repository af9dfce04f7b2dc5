"""Queries in VNN-LIB: is there an input in a region on which the outputs of a network satisfy
linear constraints?

Both forms are read: that of the competitions up to 2025 (`X_0`, `Y_0`; Demarchi et al. 2023,
VNN-LIB 1.0) and version 2.0 with declared networks (`X[0,1]`; arXiv 2605.07451). The package
`vnnlib` reads the second form alone.

A query is a disjunction of cases, each a box of inputs and a conjunction of linear constraints of
outputs. Constraints that tie several inputs to each other, or inputs to outputs, are refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite, prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell.bounds._bounding import Ball
from brinell.bounds._graph import Graph, Linear, Node
from brinell.bounds._proofs import Method
from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array

MOST_BYTES = 1 << 25
"""Maximum size of a file."""
MOST_CASES, MOST_LITERALS = 10_000, 500_000
"""Maximum number of cases of a query, and of literals in all of them."""
MOST_VALUES, MOST_NUMBERS = 1_000_000, 10_000_000
"""Maximum number of inputs, or of outputs, and of numbers in all cases."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
TOKEN = re.compile(
    r"""\s+|;[^\n]*|([A-Za-z_][\w.-]*\s*\[[^\]]*\]|[()]|[^\s()\[\];]+(?:\[[^\]]*\])?|\[[^\]]*\])"""
)
"""White space and comments, or one token; an index belongs to the variable before it."""

Expression = str | list["Expression"]
"""A token, or a list in parentheses."""
Literal = tuple[dict[str, float], float, bool]
"""`sum of coefficients times variables <= bound`, and True if it is strict."""


@dataclass(frozen=True, eq=False)
class Case:
    """A box of inputs, and constraints `a @ y <= b` of outputs that hold together."""

    low: Array
    """(inputs,) float64."""
    high: Array
    a: Array
    """(constraints, outputs) float64."""
    b: Array
    """(constraints,) float64."""
    strict: Array
    """(constraints,) bool: True where `<` is asked for."""

    def slack(self, y: Array) -> Array:
        """(n,): by how much the tightest constraint holds for outputs (n, outputs) float64;
        negative where one is violated.
        """
        if not len(self.b):
            return np.full(len(y), np.inf)
        slack: Array = (self.b - y @ self.a.T).min(1)
        return slack

    def holds(self, x: Array, y: Array) -> Array:
        """(n,) bool: whether inputs (n, inputs) and outputs (n, outputs) satisfy everything
        exactly.
        """
        in_box = ((x >= self.low) & (x <= self.high)).all(1)
        differences = self.b - y @ self.a.T
        fulfilled: Array = in_box & np.where(self.strict, differences > 0, differences >= 0).all(1)
        return fulfilled


@dataclass(frozen=True, eq=False)
class Query:
    """A question about one network."""

    network: str
    """Name of the network in the query; empty in VNN-LIB 1.0."""
    inputs: tuple[str, ...]
    """Names of the inputs in the order of the network's flattened input."""
    outputs: tuple[str, ...]
    cases: tuple[Case, ...]
    """At least one must be satisfied."""


@dataclass
class _Reader:
    """Collects declarations and assertions of a file."""

    path: Path
    network: str = ""
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    conjuncts: list[list[list[Literal]]] = field(default_factory=list)
    """Each assertion as a disjunction of conjunctions."""
    text: str = ""
    position: int = 0
    """Position in the text; 0 where an error has none."""

    def refuse(self, clause: str) -> RequestError:
        line = f" (line {self.text.count(chr(10), 0, self.position) + 1})" if self.position else ""
        return RequestError(f"{self.path} {clause}{line}")

    def read(self, text: str) -> Query:
        self.text = text
        for expression in self._expressions(text):
            match expression:
                case ["vnnlib-version", *_]:
                    pass
                case ["declare-const", str(name), str(kind)] if kind == "Real":
                    self._declare_number(name)
                case ["declare-network", str(name), *declarations]:
                    self._declare_network(name, declarations)
                case ["assert", formula]:
                    self.conjuncts.append(self._disjunction(formula))
                case [str(word), *_]:
                    raise self.refuse(
                        f"has a statement {word!r}, which is not read: it may declare and assert"
                    )
                case _:
                    raise self.refuse("is no VNN-LIB query: statements are lists in parentheses")
        if not self.inputs or not self.outputs or not self.conjuncts:
            missing = (
                "inputs" if not self.inputs else "outputs" if not self.outputs else "assertions"
            )
            raise self.refuse(
                f"has no {missing}: declare X_0, ... and Y_0, ..., and assert something"
            )
        return Query(self.network, tuple(self.inputs), tuple(self.outputs), tuple(self._cases()))

    def _expressions(self, text: str) -> Iterator[Expression]:
        stack: list[list[Expression]] = []
        position = 0
        while position < len(text):
            self.position = position if not stack else self.position
            match_ = TOKEN.match(text, position)
            if match_ is None:
                raise self.refuse(f"cannot be read at {text[position : position + 20]!r}")
            position = match_.end()
            token = match_.group(1)
            if token is None:
                continue
            if token == "(":
                stack.append([])
            elif token == ")":
                if not stack:
                    raise self.refuse("closes a parenthesis that is not open")
                complete = stack.pop()
                if stack:
                    stack[-1].append(complete)
                else:
                    yield complete
            elif stack:
                stack[-1].append(re.sub(r"\s+", "", token))
            else:
                raise self.refuse(f"has {token[:40]!r} outside of parentheses")
        if stack:
            raise self.refuse(f"ends with {len(stack)} open parentheses: it was cut off")
        self.position = 0

    def _declare_number(self, name: str) -> None:
        """A variable of VNN-LIB 1.0."""
        kind, _, number = name.partition("_")
        variables = {"X": self.inputs, "Y": self.outputs}.get(kind)
        if variables is None or number != str(len(variables)):
            raise self.refuse(
                f"declares {name!r}: inputs are X_0, X_1, ... and outputs Y_0, Y_1, ..., in order"
            )
        variables[name] = len(variables)

    def _declare_network(self, name: str, declarations: Sequence[Expression]) -> None:
        """A network of VNN-LIB 2.0."""
        if self.inputs:
            raise self.refuse("asks about several networks: only queries about one are answered")
        self.network = name
        for declaration in declarations:
            match declaration:
                case [str(word), str(variable), str(kind), *shape] if word in (
                    "declare-input",
                    "declare-output",
                ):
                    variables = self.inputs if word == "declare-input" else self.outputs
                    if variables:
                        raise self.refuse(
                            "declares several inputs or outputs: only networks "
                            "of one each are asked"
                        )
                    element, _, text = "".join(
                        [kind, *(part for part in shape if isinstance(part, str))]
                    ).partition("[")
                    if not re.fullmatch(r"Real|float(16|32|64)", element, flags=re.IGNORECASE):
                        raise self.refuse(
                            f"declares {variable!r} of type {element}: inputs and "
                            "outputs are real numbers"
                        )
                    sides = [int(side) for side in re.findall(r"\d+", text)]
                    if prod(sides) > MOST_VALUES:
                        raise self.refuse(f"declares {variable!r} with {prod(sides)} values")
                    names = (
                        (f"{variable}[{','.join(map(str, index))}]" for index in np.ndindex(*sides))
                        if sides
                        else [variable]
                    )
                    variables.update({entry: k for k, entry in enumerate(names)})
                case _:
                    raise self.refuse(
                        "declares something else than one input and one output of a network"
                    )

    def _disjunction(self, formula: Expression) -> list[list[Literal]]:
        match formula:
            case ["and", *parts]:
                clauses: list[list[Literal]] = [[]]
                for part in parts:
                    clauses = self._product([clauses, self._disjunction(part)])
                return clauses
            case ["or", *parts]:
                return [clause for part in parts for clause in self._disjunction(part)]
            case [str(relation), left, right] if relation in (
                "<=",
                ">=",
                "<",
                ">",
                "=",
                "==",
                "!=",
            ):
                linear, constant = self._sum([(left, 1.0), (right, -1.0)])
                return self._literals(relation, linear, -constant)
            case _:
                raise self.refuse(
                    f"asserts {_text(formula)}: formulas are and, or, <=, <, >=, >, = and !="
                )

    def _literals(
        self, relation: str, linear: dict[str, float], bound: float
    ) -> list[list[Literal]]:
        """`linear relation bound` as a disjunction of conjunctions of upper bounds."""
        mirrored = {name: -coefficient for name, coefficient in linear.items()}
        below = (linear, bound, relation in ("<", "!="))
        above = (mirrored, -bound, relation in (">", "!="))
        if relation in ("=", "=="):
            return [[below, above]]
        return (
            [[below], [above]]
            if relation == "!="
            else [[below]]
            if relation in ("<", "<=")
            else [[above]]
        )

    def _linear(self, expression: Expression) -> tuple[dict[str, float], float]:
        """Coefficients of the variables, and the constant."""
        match expression:
            case str(token):
                if token in self.inputs or token in self.outputs:
                    return {token: 1.0}, 0.0
                if NUMBER.fullmatch(token) is None or not isfinite(float(token)):
                    raise self.refuse(
                        f"uses {token[:40]!r}, which is no number and which it does not declare"
                    )
                return {}, float(token)
            case ["+", *parts]:
                return self._sum([(part, 1.0) for part in parts])
            case ["-", only]:
                return self._sum([(only, -1.0)])
            case ["-", first, *others]:
                return self._sum([(first, 1.0), *((part, -1.0) for part in others)])
            case ["*", *parts]:
                factors = [self._linear(part) for part in parts]
                linear = [factor for factor in factors if factor[0]]
                scale = prod(constant for coefficients, constant in factors if not coefficients)
                if len(linear) > 1:
                    raise self.refuse(
                        f"multiplies variables: {_text(expression)}; constraints must be linear"
                    )
                coefficients, constant = linear[0] if linear else ({}, 1.0)
                return {
                    name: scale * value for name, value in coefficients.items()
                }, scale * constant
            case _:
                raise self.refuse(f"has {_text(expression)} where a number is due")

    def _sum(self, parts: Sequence[tuple[Expression, float]]) -> tuple[dict[str, float], float]:
        total: dict[str, float] = {}
        constant = 0.0
        for part, sign in parts:
            coefficients, shift = self._linear(part)
            constant += sign * shift
            for name, value in coefficients.items():
                total[name] = total.get(name, 0.0) + sign * value
        if not all(map(isfinite, (constant, *total.values()))):
            raise self.refuse("has numbers that overflow")
        return {name: value for name, value in total.items() if value}, constant

    def _product(self, disjunctions: Sequence[list[list[Literal]]]) -> list[list[Literal]]:
        count = prod(len(disjunction) for disjunction in disjunctions)
        literals = sum(count // len(d) * sum(map(len, d)) for d in disjunctions if d)
        if count > MOST_CASES or literals > MOST_LITERALS:
            raise self.refuse(
                f"has {count} cases of {literals} constraints, and {MOST_CASES} "
                f"of {MOST_LITERALS} are read at most"
            )
        return [
            [literal for clause in choice for literal in clause]
            for choice in product(*disjunctions)
        ]

    def _cases(self) -> Iterator[Case]:
        """A case for each clause whose box holds an input."""
        shared = [
            literal for clauses in self.conjuncts if len(clauses) == 1 for literal in clauses[0]
        ]
        start = np.full(len(self.inputs), -np.inf), np.full(len(self.inputs), np.inf)
        low, high, rows = self._box(shared, *start)
        clauses = self._product([clauses for clauses in self.conjuncts if len(clauses) != 1])
        if len(clauses) * (len(self.inputs) + (len(rows) + 1) * len(self.outputs)) > MOST_NUMBERS:
            raise self.refuse(
                f"has {len(clauses)} cases of {len(self.inputs)} inputs, which is more than is read"
            )
        feasible = False
        for clause in clauses:
            case = self._case(clause, low, high, rows)
            if case is not None:
                feasible = True
                yield case
        if not feasible:
            raise self.refuse("has no input that satisfies its bounds: they contradict each other")

    def _box(
        self, literals: Sequence[Literal], low: Array, high: Array
    ) -> tuple[Array, Array, list[Literal]]:
        """A box, made smaller by those of some literals that bound an input, and the others, which
        are about outputs.
        """
        low = low.copy()
        high = high.copy()
        rows = []
        for linear, bound, strict in literals:
            names = [name for name in linear if name in self.inputs]
            if not names:
                rows.append((linear, bound, strict))
                continue
            if len(linear) > 1:
                first, second = list(linear)[:2]
                raise self.refuse(f"ties {first} to {second}: inputs may have bounds only")
            k = self.inputs[names[0]]
            coefficient = linear[names[0]]
            end = bound / coefficient
            end = np.nextafter(end, -np.inf if coefficient > 0 else np.inf) if strict else end
            if coefficient > 0:
                high[k] = min(high[k], end)
            else:
                low[k] = max(low[k], end)
        return low, high, rows

    def _case(
        self, literals: Sequence[Literal], low: Array, high: Array, shared: list[Literal]
    ) -> Case | None:
        low, high, rows = self._box(literals, low, high)
        rows = [*shared, *rows]
        if not (np.isfinite(low) & np.isfinite(high)).all():
            open_ = next(
                name for name, k in self.inputs.items() if not np.isfinite([low[k], high[k]]).all()
            )
            raise self.refuse(f"does not bound {open_} on both sides")
        if (low > high).any():
            return None
        a = np.zeros((len(rows), len(self.outputs)))
        for row, (linear, _, _) in zip(a, rows, strict=True):
            for name, coefficient in linear.items():
                row[self.outputs[name]] = coefficient
        return Case(
            low,
            high,
            a,
            np.array([bound for _, bound, _ in rows]),
            np.array([strict for *_, strict in rows], bool),
        )


def _text(expression: Expression) -> str:
    text = (
        expression if isinstance(expression, str) else f"({' '.join(map(_text, expression[:4]))})"
    )
    return text if len(text) < 60 else f"{text[:57]}..."


def read_query(path: Path) -> Query:
    """A query from a file."""
    try:
        content = bounded.read(path, MOST_BYTES)
    except OSError as error:
        raise RequestError(
            f"{path} {(error.strerror or 'cannot be read').lower()}: name a query in VNN-LIB"
        ) from None
    with bounded.decoding(path, len(content), "no query in VNN-LIB"):
        return _Reader(path).read(content.decode("utf-8"))


def by_box(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases of the same box together."""
    groups: dict[bytes, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.low.tobytes() + case.high.tobytes(), []).append(case)
    return list(groups.values())


def violations(graph: Graph, cases: Sequence[Case], method: Method) -> Tensor:
    """(constraints of all cases,): lower bounds of what violates each constraint on the box of the
    cases.
    """
    a = torch.from_numpy(np.concatenate([getattr(case, "a") for case in cases]))
    b = torch.from_numpy(np.concatenate([getattr(case, "b") for case in cases]))
    if not len(b):
        return b
    # Class 0 has the score 0, and class k what is left until constraint k is violated.
    weight, bias = (torch.cat([torch.zeros_like(part[:1]), part]) for part in (-a, b))
    last = Node(Linear(weight, bias), (len(graph.nodes) - 1,), (len(bias),))
    low = torch.from_numpy(cases[0].low)[None]
    high = torch.from_numpy(cases[0].high)[None]
    radius = ((high - low) / 2).amax(1) * (
        1 + 1e-12
    ) + 1e-300  # the bounds of the data cut the ball to the box
    ball = Ball((low + high) / 2, radius, low, high, "linf")
    return method(Graph((*graph.nodes, last)), ball, torch.zeros(1, dtype=torch.long))[0]
