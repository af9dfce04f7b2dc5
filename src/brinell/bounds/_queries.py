"""Queries in VNN-LIB: does an input of a region satisfy linear constraints of the outputs?
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
        """(n,): by how much the tightest constraint holds for outputs (n, outputs) float64.

        It is negative where one is violated.
        """
        if not len(self.b):
            return np.full(len(y), np.inf)
        slack: Array = (self.b - y @ self.a.T).min(1)
        return slack

    def holds(self, x: Array, y: Array) -> Array:
        """(n,) bool: whether inputs (n, inputs) and outputs (n, outputs) satisfy everything."""
        in_box = ((x >= self.low) & (x <= self.high)).all(1)
        differences = self.b - y @ self.a.T
        constraints = np.where(self.strict, differences > 0, differences >= 0)
        fulfilled: Array = in_box & constraints.all(1)
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
        """An error that says what the file does, and in which line."""
        line = ""
        if self.position:
            line = f" (line {self.text.count(chr(10), 0, self.position) + 1})"
        return RequestError(f"{self.path} {clause}{line}")

    def read(self, text: str) -> Query:
        """The query in the text of the file."""
        self.text = text
        for expression in self._expressions(text):
            self._read_statement(expression)

        # A query without one of these has an answer that says nothing.
        declared = {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "assertions": self.conjuncts,
        }
        for name, entries in declared.items():
            if not entries:
                raise self.refuse(
                    f"has no {name}: declare X_0, ... and Y_0, ..., and assert something"
                )
        return Query(self.network, tuple(self.inputs), tuple(self.outputs), tuple(self._cases()))

    def _read_statement(self, statement: Expression) -> None:
        """Note what a statement declares or asserts."""
        match statement:
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

    def _expressions(self, text: str) -> Iterator[Expression]:
        """The outermost lists of a text, read with a stack of those that are open."""
        stack: list[list[Expression]] = []
        position = 0
        while position < len(text):
            if not stack:
                self.position = position  # errors name the line of the outermost list
            token_match = TOKEN.match(text, position)
            if token_match is None:
                raise self.refuse(f"cannot be read at {text[position : position + 20]!r}")
            position = token_match.end()
            token = token_match.group(1)
            if token is None:  # white space or a comment
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
                # A variable and its index are one name, without the spaces between them.
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
        # The names of a second network would hide those of the first.
        if self.inputs:
            raise self.refuse("asks about several networks: only queries about one are answered")
        self.network = name

        for declaration in declarations:
            match declaration:
                case ["declare-input", str(variable), str(kind), *shape]:
                    self._declare_port(self.inputs, variable, kind, shape)
                case ["declare-output", str(variable), str(kind), *shape]:
                    self._declare_port(self.outputs, variable, kind, shape)
                case _:
                    raise self.refuse(
                        "declares something else than one input and one output of a network"
                    )

    def _declare_port(
        self, variables: dict[str, int], variable: str, kind: str, shape: Sequence[Expression]
    ) -> None:
        """The input or the output of a network of VNN-LIB 2.0: a number or an array of them."""
        if variables:
            raise self.refuse(
                "declares several inputs or outputs: only networks of one each are asked"
            )

        # The shape may follow the type with or without a space.
        words = [part for part in shape if isinstance(part, str)]
        element, _, text = "".join([kind, *words]).partition("[")
        if not re.fullmatch(r"Real|float(16|32|64)", element, flags=re.IGNORECASE):
            raise self.refuse(
                f"declares {variable!r} of type {element}: inputs and outputs are real numbers"
            )
        sides = [int(side) for side in re.findall(r"\d+", text)]
        if prod(sides) > MOST_VALUES:
            raise self.refuse(f"declares {variable!r} with {prod(sides)} values")

        # A single number has no index; the others count as the flattened input does.
        if not sides:
            variables[variable] = 0
            return
        for k, index in enumerate(np.ndindex(*sides)):
            variables[f"{variable}[{','.join(map(str, index))}]"] = k

    def _disjunction(self, formula: Expression) -> list[list[Literal]]:
        """A formula as a disjunction of conjunctions."""
        match formula:
            case ["and", *parts]:
                clauses: list[list[Literal]] = [[]]
                # A conjunction of disjunctions is multiplied out, which may make it much longer.
                for part in parts:
                    clauses = self._product([clauses, self._disjunction(part)])
                return clauses
            case ["or", *parts]:
                return [clause for part in parts for clause in self._disjunction(part)]
            # Everything is brought to one side, so that a literal has a constant bound.
            case [("<=" | ">=" | "<" | ">" | "=" | "==" | "!=") as relation, left, right]:
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
        # A lower bound is an upper bound with all signs changed.
        mirrored = {name: -coefficient for name, coefficient in linear.items()}
        below = (linear, bound, relation in ("<", "!="))
        above = (mirrored, -bound, relation in (">", "!="))

        match relation:
            case "=" | "==":
                return [[below, above]]
            case "!=":
                return [[below], [above]]
            case "<" | "<=":
                return [[below]]
            case _:
                return [[above]]

    def _linear(self, expression: Expression) -> tuple[dict[str, float], float]:
        """Coefficients of the variables, and the constant."""
        match expression:
            case str(token) if token in self.inputs or token in self.outputs:
                return {token: 1.0}, 0.0
            # Python reads inf and nan as numbers too, which no constraint may have.
            case str(token):
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
                return self._scaled(parts, expression)
            case _:
                raise self.refuse(f"has {_text(expression)} where a number is due")

    def _scaled(
        self, parts: Sequence[Expression], expression: Expression
    ) -> tuple[dict[str, float], float]:
        """A product, of which at most one factor may have variables."""
        factors = [self._linear(part) for part in parts]
        linear = [factor for factor in factors if factor[0]]
        if len(linear) > 1:
            raise self.refuse(
                f"multiplies variables: {_text(expression)}; constraints must be linear"
            )

        # All factors but one are numbers.
        scale = prod(constant for coefficients, constant in factors if not coefficients)
        coefficients, constant = linear[0] if linear else ({}, 1.0)
        scaled = {name: scale * value for name, value in coefficients.items()}
        return scaled, scale * constant

    def _sum(self, parts: Sequence[tuple[Expression, float]]) -> tuple[dict[str, float], float]:
        """A sum of expressions with signs: its coefficients, and its constant."""
        total: dict[str, float] = {}
        constant = 0.0
        for part, sign in parts:
            coefficients, shift = self._linear(part)
            constant += sign * shift
            for name, value in coefficients.items():
                total[name] = total.get(name, 0.0) + sign * value
        if not all(map(isfinite, (constant, *total.values()))):
            raise self.refuse("has numbers that overflow")
        # Variables that cancel out are no part of the sum.
        return {name: value for name, value in total.items() if value}, constant

    def _product(self, disjunctions: Sequence[list[list[Literal]]]) -> list[list[Literal]]:
        """The conjunction of disjunctions, as a disjunction again: each choice of one clause."""
        count = prod(len(disjunction) for disjunction in disjunctions)
        # Counted before it is built: a short formula may have very many cases.
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
        # What every case demands is worked out once: only the alternatives are multiplied out.
        shared = [
            literal for clauses in self.conjuncts if len(clauses) == 1 for literal in clauses[0]
        ]
        unbounded_low = np.full(len(self.inputs), -np.inf)
        unbounded_high = np.full(len(self.inputs), np.inf)
        low, high, rows = self._box(shared, unbounded_low, unbounded_high)

        clauses = self._product([clauses for clauses in self.conjuncts if len(clauses) != 1])
        # The product of alternatives may be larger than any memory: so it is counted first.
        numbers = len(self.inputs) + (len(rows) + 1) * len(self.outputs)
        if len(clauses) * numbers > MOST_NUMBERS:
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
        """A box within the bounds that some literals set, and the literals that are on outputs."""
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

            # Of one variable `coefficient x <= bound` is a bound above, or below if it is negative.
            k = self.inputs[names[0]]
            coefficient = linear[names[0]]
            end = bound / coefficient
            if strict:
                # A strict bound on an input is the next number inside of it.
                end = np.nextafter(end, -np.inf if coefficient > 0 else np.inf)
            if coefficient > 0:
                high[k] = min(high[k], end)
            else:
                low[k] = max(low[k], end)
        return low, high, rows

    def _case(
        self, literals: Sequence[Literal], low: Array, high: Array, shared: list[Literal]
    ) -> Case | None:
        """The case of a conjunction within a box; None where no input satisfies it."""
        low, high, rows = self._box(literals, low, high)
        rows = [*shared, *rows]

        bounded_both = np.isfinite(low) & np.isfinite(high)
        if not bounded_both.all():
            open_ = next(name for name, k in self.inputs.items() if not bounded_both[k])
            raise self.refuse(f"does not bound {open_} on both sides")
        # A contradiction in its bounds leaves no input, and the case is proved.
        if (low > high).any():
            return None

        a = np.zeros((len(rows), len(self.outputs)))
        for row, (linear, _, _) in zip(a, rows, strict=True):
            for name, coefficient in linear.items():
                row[self.outputs[name]] = coefficient
        b = np.array([bound for _, bound, _ in rows])
        strict = np.array([strict for *_, strict in rows], bool)
        return Case(low, high, a, b, strict)


def _text(expression: Expression) -> str:
    """The beginning of an expression, for messages."""
    text = expression
    if not isinstance(text, str):
        text = f"({' '.join(map(_text, text[:4]))})"
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
    """(constraints of all cases,): lower bounds of what violates each constraint on their box."""
    a = torch.from_numpy(np.concatenate([case.a for case in cases]))
    b = torch.from_numpy(np.concatenate([case.b for case in cases]))
    if not len(b):
        return b

    # Class 0 has the score 0, and class k what is left until constraint k is violated.
    weight = torch.cat([torch.zeros_like(a[:1]), -a])
    bias = torch.cat([torch.zeros_like(b[:1]), b])
    # One more layer, so that the margins of the classes are the constraints' violations.
    last = Node(Linear(weight, bias), (len(graph.nodes) - 1,), (len(bias),))

    # The bounds of the data cut the ball to the box, so it may be larger.
    low = torch.from_numpy(cases[0].low)[None]
    high = torch.from_numpy(cases[0].high)[None]
    radius = ((high - low) / 2).amax(1) * (1 + 1e-12) + 1e-300
    ball = Ball((low + high) / 2, radius, low, high, "linf")
    return method(Graph((*graph.nodes, last)), ball, torch.zeros(1, dtype=torch.long))[0]
