"""The rules that every distortion keeps. `check_distortion` names the first one that is broken."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Distortion, Domain, Kind, Streams
from brinell.core.norms import l2
from brinell.distortions._published import Published
from brinell.rlab.distort import SEVERITIES, distorted
from brinell.testing.form import check_form, check_settings, demand, generator_states

SHAPES: dict[Kind, tuple[tuple[int, ...], ...]] = {
    "image": ((3, 16, 16), (1, 9, 14), (2, 1, 5)),
    "signal": ((2, 60), (12, 7), (1, 1)),
    "video": ((3, 4, 12, 12), (1, 1, 9, 5)),
    "vector": ((40,), (1,)),
}
"""Inputs that a distortion is tried on; its strength is measured on the first of each kind."""
ROWS, MANY = 6, 24
"""Inputs in a batch; more where their mean is measured."""
FEW = 16
"""Draws that are compared, where they are finite."""
SYNONYMS = {
    "seed": "the streams",
    "severity": "the argument severity",
    "level": "the argument severity",
    "strength": "the argument severity",
}
ROUNDING = 1e-5
"""Tolerance between batch sizes: kernels sum in another order."""


class _Arguments(NamedTuple):
    """Arguments of a distortion: inputs, severities, streams and draws."""

    x: Tensor
    severity: Tensor
    rng: Streams
    draw: Tensor

    def select(self, rows: Tensor) -> "_Arguments":
        """Those of some rows."""
        return _Arguments(self.x[rows], self.severity[rows], self.rng.select(rows), self.draw[rows])


def check_distortion(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over a distortion, on inputs of several shapes of each kind that it declares.

    Args:
        plugin: the distortion's class.
        settings: settings to check it with, where not its defaults.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("domains", "draws"), SYNONYMS)
    distortion = plugin(**settings)
    check_settings(distortion)

    for kind in (kind for kind in KINDS if kind in distortion.domains):
        for shape in SHAPES[kind]:
            _check(distortion, Domain(kind=kind, shape=shape))
        # On a handful of values chance may make two draws, or two severities, the same.
        _check_strength(distortion, Domain(kind=kind, shape=SHAPES[kind][0]))


def _demand(distortion: Distortion, domain: Domain, holds: bool, rule: str) -> None:
    """Demand a rule of a distortion of inputs of a domain."""
    subject = f"distortion {type(distortion).__name__}"
    demand(subject, holds, f"{rule} ({domain.kind} of shape {domain.shape})")


def _arguments(
    domain: Domain, severity: int | None = None, draw: int = 0, rows: int = ROWS
) -> _Arguments:
    """Smooth inputs that fill their range, as photographs and signals do.

    Without a severity every row has another.
    """
    rng = Streams.of(0, torch.arange(rows))
    x = rng.fold("x").uniform(*domain.shape)
    for axis in range(2 if x.ndim > 2 else 1, x.ndim):
        for _ in range(2):
            x = (x + x.roll(1, axis) + x.roll(-1, axis)) / 3

    flat = x.flatten(1)
    least = flat.amin(1, keepdim=True)
    most = flat.amax(1, keepdim=True)
    x = ((flat - least) / (most - least).clamp_min(1e-3)).reshape(x.shape)
    severities = torch.arange(rows) % 5 + 1 if severity is None else torch.full((rows,), severity)
    return _Arguments(x, severities, rng.fold("filter"), torch.full((rows,), draw))


def _extremes(domain: Domain) -> _Arguments:
    """Inputs at the ends of their ranges, flat ones among them."""
    arguments = _arguments(domain)
    x = arguments.x.round()
    for row, value in enumerate((0.0, 1.0, 0.5)):
        x[row] = value
    return arguments._replace(x=x)


def _distort(distortion: Distortion, domain: Domain, arguments: _Arguments) -> Tensor:
    """The distorted inputs."""
    x, severity, rng, draw = arguments
    return distorted(distortion, x, severity, rng, domain=domain, draw=draw)


def _versions(distortion: Distortion, domain: Domain) -> list[int]:
    """Numbers of a few draws: all of a few, or some of endless ones."""
    draws = distortion.draws(domain.shape)
    if draws is None:
        return [0, 1, 99]
    valid = isinstance(draws, int) and not isinstance(draws, bool) and draws >= 1
    rule = f"offers {draws!r} draws; it must be a whole number above 0, or None for endless ones"
    _demand(distortion, domain, valid, rule)
    return [*range(min(draws, FEW))]


def _check(distortion: Distortion, domain: Domain) -> None:
    """Run the rules on inputs of one shape.

    Shape, bounds, NaN and writing into `x` are judged by `distorted`.
    """
    for draw in _versions(distortion, domain):
        _distort(distortion, domain, _arguments(domain, draw=draw))
        _distort(distortion, domain, _extremes(domain)._replace(draw=torch.full((ROWS,), draw)))

    # What is not the distortion's stays as it was.
    arguments = _arguments(domain)
    copy = _arguments(domain)
    before = generator_states()
    full = _distort(distortion, domain, arguments)
    rule = "drew from a global random generator; draw from the streams it is given"
    _demand(distortion, domain, generator_states() == before, rule)
    tensors = (arguments.x, arguments.severity, arguments.rng.keys, arguments.draw)
    clean = (copy.x, copy.severity, copy.rng.keys, copy.draw)
    equal = all(
        torch.equal(tensor, original) for tensor, original in zip(tensors, clean, strict=True)
    )
    _demand(distortion, domain, equal, "wrote into what it was given")

    # The answers are the same each time and in any batch.
    rule = "gave two answers to the same inputs and streams; draw from the streams it is given"
    _demand(distortion, domain, torch.equal(full, _distort(distortion, domain, copy)), rule)
    order = torch.arange(ROWS)
    rule = "gave other answers when the batch was split or reordered"
    for rows in (order.flip(0), order[:1], order[ROWS // 2 :]):
        part = _distort(distortion, domain, arguments.select(rows))
        _demand(distortion, domain, torch.allclose(part, full[rows], atol=ROUNDING), rule)


def _check_strength(distortion: Distortion, domain: Domain) -> None:
    """Check that draws differ, and that higher severities change more."""
    # At the largest severity, where chance shows most.
    answers = [
        _distort(distortion, domain, _arguments(domain, severity=5, draw=draw))
        for draw in _versions(distortion, domain)
    ]
    rule = "gave the same answer in two draws; offer as many as there are"
    for number, answer in enumerate(answers):
        is_new = not any(torch.equal(answer, earlier) for earlier in answers[:number])
        _demand(distortion, domain, is_new, rule)

    change = []
    for severity in SEVERITIES:
        arguments = _arguments(domain, severity, rows=MANY)
        # The mean over many inputs, since a single one may be changed little by chance.
        sizes_of_rows = l2(_distort(distortion, domain, arguments) - arguments.x)
        change.append(float(sizes_of_rows.mean()))
    _demand(distortion, domain, change[0] > 0, "changed nothing at severity 1")
    # The strength of each severity may be published, and not ours.
    if isinstance(distortion, Published) and not distortion.rising:
        _demand(distortion, domain, min(change) > 0, "changed nothing at some severity")
        return

    # A parameter that is rounded may stay the same, and blocks may fit the picture by chance; on
    # the whole it must rise.
    rises = all(later >= 0.97 * earlier for earlier, later in zip(change, change[1:], strict=False))
    sizes = ", ".join(f"{size:.3g}" for size in change)
    rule = f"is not stronger at higher severities: mean L2 {sizes}"
    _demand(distortion, domain, rises and change[-1] >= 1.2 * change[0], rule)
