"""Checks that the margin that a model shows reaches zero where its decision changes.

The class that a model decides on and the scores that it shows may come from different computations.
Then gradients and finite differences of the scores agree, attacks fail, and neither tells how near
the decision boundary is. If scores decide, as in any network whose class is the argmax of
continuous logits, the lead of the first class over the second is zero on the boundary.

On straight lines between inputs of different classes the check brackets the first change of class
that it meets, and compares the lead on both sides of the bracket with that at the ends of the line
(`JUMP`). A jump is a property of the single line, so one line suffices, and faults of a single
class or of few samples are found if a line meets them. A lead that is continuous and stays large
until just before the boundary (`NEAR`) is judged on all lines together, because healthy networks
have a few such lines.

The idea of testing an attack's failure by the decision comes from Chen & Gu 2020 (RayS, section 5);
bracketing the boundary on a line is the first step of decision-based attacks (Brendel et al. 2018,
section 3). No source for the comparison of leads is known. Figures: docs/results/checks.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.checks import ERROR_RATE, TOO_FEW, Code, Finding, exact_test
from brinell.core.domain import Domain
from brinell.core.model import Access
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.engine.context import CheckContext, NotMadeError

FIRST_LINES, LINES = 12, 32
"""Largest numbers of lines that a first look asks about, and a check."""
TURNS = 32
"""Largest number of questions by which a boundary is bracketed."""
SECANTS = 10
"""Among so many first questions two of three are secants; all others halve the bracket."""
NARROW = 2.0**-20
"""Width of the narrowest bracket, as a share of the line; float32 distinguishes few inputs
within."""
APART = 1e-3
"""Two points at this share of a line or more from each other are apart: no continuous score is
the same at both."""
CLOSE = 0.05
"""A bracket is good if the leads on both sides are at most this share of the leads at the ends."""
JUMP = 0.25
"""Largest lead beside the boundary, as a share of that at the end of the line: healthy networks
stay below `CLOSE`."""
FLOOR = 0.25
"""Leads are compared with at least this share of the median clean one, below which they are of
the size of rounding."""
NEAR = (0.02, 0.002, 0.0002)
"""Distances from the boundary, as shares of the way there, at which the lead is measured again."""
STEEP = 0.5
"""A lead that is still above this share near the boundary is steep."""
MAX_STEEP = (0.3, 0.1, 0.01)
"""Share of the lines of healthy networks that are steep at most, for each of `NEAR`
(docs/results/checks.md)."""
MIN_FIRST, MIN_LINES = 8, 12
"""Fewest lines with which a first look can pass, and the check."""
SETS = 2
"""Sets of lines: before the attacks, and after them. They share one error rate."""
CLEAN = "lines between inputs of different classes"
LEFT = "lines between robust samples, others and adversarial examples"
REMEDY = "the scores do not tell how near the decision is; attack by labels alone: --attack ray-s"

AFTER_ATTACKS = ((6, 3), (32, 16))
"""Largest numbers of robust samples, and of adversarial examples, that the check asks about after
the attacks, in a first look and in all."""


@dataclass(frozen=True)
class Lines:
    """Straight lines between inputs, whose ends the model assigns to different classes."""

    ids: Tensor
    """(n,): the samples at their starts."""
    start: Tensor
    """(n, *shape)."""
    end: Tensor
    """(n, *shape)."""
    first: Tensor
    """(n, classes): logits at the start."""
    last: Tensor
    """(n, classes): logits at the end."""

    def at(self, share: Tensor, rows: Tensor) -> Tensor:
        """(m, *shape): the points of the lines `rows` (m,) at these shares (m,) of the way."""
        return torch.lerp(self.start[rows], self.end[rows], per_sample(share, self.start[rows]))


@dataclass(frozen=True)
class Crossings:
    """The decision boundary on each of n lines."""

    before: Tensor
    """(n,): lead just before the boundary, as a share of that at the start."""
    after: Tensor
    """(n,): lead just after it, as a share of that at the end."""
    near: Tensor
    """(n, len(NEAR)): lead at `NEAR` or farther from the boundary, as a share of that at the
    start."""
    classes: Tensor
    """(n, 2): the classes on both sides."""
    stepped: Tensor
    """(n,) bool: two points of the line that are apart have the same answer to the last digit,
    as on a step."""

    def jumps(self) -> Tensor:
        """(n, 2) bool: the sides on which the lead does not go to zero."""
        return torch.stack([self.before, self.after], 1) > JUMP

    def are_steps(self) -> bool:
        """True if lines with a jump have steps, and steps of one class differ in height, unlike a
        label with one confidence.
        """
        on_jumps = self.stepped[self.jumps().any(1)].float()
        if not len(on_jumps) or on_jumps.mean() <= 0.5:
            return False

        # Of one class: a label with one confidence has the same height everywhere.
        first = self.classes[:, 0]
        for number in set(first[self.stepped].tolist()):
            heights = self.before[self.stepped & (first == number)]
            if heights.min() < (1 - CLOSE) * heights.max():
                return True
        return False

    def steep(self) -> Tensor:
        """(len(NEAR),): share of the lines on which the lead is still large near the boundary."""
        return (self.near > STEEP).float().mean(0)


def lead(logits: Tensor) -> Tensor:
    """(n,): the largest of the logits (n, classes) minus the second."""
    top = logits.topk(2, 1).values
    return top[:, 0] - top[:, 1]


def _lead_of(logits: Tensor, classes: Tensor) -> Tensor:
    """(n,): logit of these classes (n,) minus the largest other one; negative where another class
    leads.
    """
    score = logits.gather(1, classes[:, None])[:, 0]
    return score - logits.scatter(1, classes[:, None], -torch.inf).amax(1)


def find_crossings(oracle: Oracle, lines: Lines, typical: Tensor) -> Crossings:
    """Bracket the decision boundary on each line by halving and secants in turn, and measure the
    leads beside it.

    A secant meets the boundary of a continuous lead after a few questions; where the lead jumps,
    the halving narrows the bracket. Costs at most `TURNS` and `len(NEAR)` forwards a line, and some
    four on healthy networks. `typical` () is the median lead on clean inputs.
    """
    classes = lines.first.argmax(1)  # the class at the start, of which the boundary is sought
    # One column for the start, one for the end: what leads beside the boundary are compared with.
    leads = torch.stack([lead(lines.first), lead(lines.last)], 1)
    scale = torch.maximum(leads, FLOOR * typical).clamp_min(torch.finfo(leads.dtype).tiny)
    # The bracket on each line, from `low` to `high`, with the answers at both ends.
    low = torch.zeros(len(classes), device=classes.device)
    high = torch.ones_like(low)
    before = lines.first.clone()
    after = lines.last.clone()
    # The first point on the way that is not steep.
    flat = torch.full_like(low, torch.inf)
    flat_lead = torch.zeros_like(low)
    stepped = torch.zeros_like(low, dtype=torch.bool)

    for turn in range(TURNS):
        # How far the class of the start leads before the boundary, and lags behind it: both
        # positive.
        gaps = torch.stack([_lead_of(before, classes), -_lead_of(after, classes)], 1)
        rows = ((high - low > NARROW) & (gaps > CLOSE * scale).any(1)).nonzero()[:, 0]
        if not len(rows):
            break
        part = _secant(gaps, scale) if turn % 3 and turn < SECANTS else torch.full_like(low, 0.5)
        middle = low[rows] + part[rows] * (high - low)[rows]
        logits = oracle.scores(lines.ids[rows], lines.at(middle, rows))

        # The point takes the place of the end of the bracket on its side of the boundary.
        is_before = logits.argmax(1) == classes[rows]
        # The same answer as at that end, far from it, is a step.
        end = torch.where(is_before[:, None], before[rows], after[rows])
        stepped[rows] |= (logits == end).all(1) & ((high - low)[rows] > APART)
        low[rows] = torch.where(is_before, middle, low[rows])
        high[rows] = torch.where(is_before, high[rows], middle)
        before[rows] = torch.where(is_before[:, None], logits, before[rows])
        after[rows] = torch.where(is_before[:, None], after[rows], logits)
        # The start does not count, and of later points only the first.
        share = lead(before) / scale[:, 0]
        turned = torch.isinf(flat) & (low > 0) & (share <= STEEP)
        flat = torch.where(turned, low, flat)
        flat_lead = torch.where(turned, share, flat_lead)

    near = flat_lead[:, None].repeat(1, len(NEAR))
    is_steep = torch.ones_like(stepped)
    for place, distance in enumerate(NEAR):
        # A lead that has fallen stays low on the rest of the way, so only lines that are steep up
        # to here are asked; until a nearer point is, its answer stands for those too.
        rows = (is_steep & (flat > (1 - distance) * low)).nonzero()[:, 0]
        if len(rows):
            logits = oracle.scores(lines.ids[rows], lines.at((1 - distance) * low[rows], rows))
            near[rows, place:] = (_lead_of(logits, classes[rows]) / scale[rows, 0])[:, None]
        is_steep = near[:, place] > STEEP

    # The lead after the boundary is that of the end's class, or of another that lies between, which
    # has no lead of its own at an end: the larger of both is its measure.
    rival = after.argmax(1)
    end_scale = torch.where(rival == lines.last.argmax(1), scale[:, 1], scale.amax(1))
    return Crossings(
        before=lead(before) / scale[:, 0],
        after=lead(after) / end_scale,
        near=near,
        classes=torch.stack([classes, rival], 1),
        stepped=stepped,
    )


def _secant(gaps: Tensor, scale: Tensor) -> Tensor:
    """(n,): where in the bracket a linear lead is close to 0, on the side of the boundary on which
    none is known.

    `gaps` (n, 2) are the leads at both ends of the bracket, both positive; `scale` (n, 2) those at
    the ends of the line.
    """
    # Where the start of the bracket is close enough, the point aims just beyond the boundary, else
    # just before it: half of `CLOSE` leaves room for a lead that is not quite linear.
    is_close = gaps[:, 0] <= CLOSE * scale[:, 0]
    target = CLOSE / 2 * torch.where(is_close, -scale[:, 1], scale[:, 0])
    return ((gaps[:, 0] - target) / gaps.sum(1)).nan_to_num(0.5).clamp(0.02, 0.98)


def lines_between(
    oracle: Oracle,
    batch: Batch,
    logits: Tensor,
    *,
    free: bool,
    most: int = LINES,
    nearest: bool = False,
) -> Lines:
    """At most `most` lines between inputs of different classes, those of all classes in turn; none
    if there is one class only.

    `logits` (n, classes) are the answers to the n inputs. A line leads to the nearest input of
    another class, if that is asked for, and each is taken once. Unless every value may change
    (`free`), the ends are asked about with the fixed values of the samples at the starts.
    """
    classes = logits.argmax(1)
    ordinals = torch.stack([(classes[:row] == classes[row]).sum() for row in range(len(classes))])
    # The first sample of each class, then the second of each: all classes are met early.
    order = torch.argsort(ordinals * logits.shape[1] + classes)
    distances = torch.cdist(batch.x.flatten(1), batch.x.flatten(1)) if nearest else None

    starts = list[int]()
    ends = list[int]()
    for position, row in enumerate(order[:most].tolist()):
        # By default the search begins behind the starts, each time at another sample, so that ends
        # differ too.
        partners = torch.roll(order, -position - most)
        if distances is not None:
            partners = distances[row].argsort()
        partners = partners[classes[partners] != classes[row]]
        # Two nearest inputs of each other are one line, which is taken once.
        if len(partners) and (int(partners[0]), row) not in zip(starts, ends, strict=True):
            starts.append(row)
            ends.append(int(partners[0]))

    last = logits[ends] if free or not starts else oracle.scores(batch.ids[starts], batch.x[ends])
    return crossing_lines(
        Lines(batch.ids[starts], batch.x[starts], batch.x[ends], logits[starts], last)
    )


def crossing_lines(lines: Lines) -> Lines:
    """The lines whose ends the model assigns to different classes; there may be none."""
    differ = lines.first.argmax(1) != lines.last.argmax(1)
    return Lines(
        lines.ids[differ],
        lines.start[differ],
        lines.end[differ],
        lines.first[differ],
        lines.last[differ],
    )


def boundary_margin(context: CheckContext) -> Finding:
    """The margin that the model shows reaches zero where its decision changes, on lines between
    clean inputs.
    """
    context.require(Access.SCORES)
    # The findings so far are with the context of all samples.
    (context.whole or context).require_steady_answers()
    return margin_of(context, CLEAN, is_first=context.whole is not None)


def margin_of(context: CheckContext, description: str, *, is_first: bool) -> Finding:
    """The finding on lines between the inputs of a context."""
    return check_margin(
        context.oracle,
        context.batch,
        context.first[0],
        context.domain,
        context.rng,
        free=context.model.domain.is_free,
        description=description,
        is_first=is_first,
    )


def check_margin(
    oracle: Oracle,
    batch: Batch,
    logits: Tensor,
    domain: Domain,
    rng: Streams,
    *,
    free: bool,
    description: str = CLEAN,
    is_first: bool = False,
) -> Finding:
    """Judge the margin on the lines between inputs of different classes.

    If all inputs are of one class, the lines end at random inputs or at what mirrors the input in
    the bounds of the data. The oracle is of a ledger whose threat is the whole domain; `logits` (n,
    classes) are its answers to the n inputs.
    """
    most = FIRST_LINES if is_first else LINES
    nearest = description == LEFT  # after the attacks, robust samples have examples nearby
    lines = lines_between(oracle, batch, logits, free=free, most=most, nearest=nearest)

    # Without two classes, lines lead to random inputs and to the opposite corners.
    if not len(lines.ids):
        description = "lines from the inputs, which are all of one class, to others"
        low, high = domain.bounds(batch.x)
        random = low + (high - low) * rng.fold("line ends").uniform(*batch.x.shape[1:])
        ids, start = batch.ids[:LINES], batch.x[:LINES]
        parts = []
        for end in (random[:LINES], (low + high - batch.x)[:LINES]):
            last = oracle.scores(ids, end)
            parts.append(crossing_lines(Lines(ids, start, end, logits[:LINES], last)))
        # Field after field of both sets of lines.
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        lines = Lines(*map(torch.cat, columns))
    if not len(lines.ids):
        raise NotMadeError("the inputs and random ones are of one class")

    crossings = find_crossings(oracle, lines, lead(logits).median())
    return judge_crossings(crossings, description, is_first=is_first)


def judge_crossings(crossings: Crossings, description: str, *, is_first: bool) -> Finding:
    """The finding on these crossings; `description` says what lines they are on.

    One jump fails: it is a property of its line. Steep lines fail by an exact test at each distance
    of `NEAR`; the lines before the attacks and those after them (`SETS`) share the error rate. A
    first look asks about fewer lines: it passes where no line is steep, and else decides nothing.
    Scores that change in steps, as those of trees, jump everywhere: nothing follows from it.
    """
    jumps = crossings.jumps()
    n = len(crossings.before)
    if crossings.are_steps():
        raise NotMadeError(
            "the scores change in steps, as those of trees, so no lead goes to "
            "zero; attack by labels alone"
        )

    if k := int(jumps.any(1).sum()):
        # Classes are named where they are few, in number and among those on the lines.
        leading = torch.unique(crossings.classes[jumps]).tolist()
        is_few = len(leading) <= 3 and 2 * len(leading) <= len(torch.unique(crossings.classes))
        scope = f" (where class {' or '.join(map(str, leading))} leads)" if is_few else ""
        text = (
            f"on {k} of {n} {description} the margin beside the decision boundary "
            f"is above {100 * JUMP:.0f} % of the clean one"
            f"{scope}: {REMEDY}"
        )
        return Finding(code=Code.BOUNDARY, passed=False, text=text, figure=k / n, limit=0.0)

    # The tests at all distances, on both sets of lines, have one error rate together.
    error_rate = 0.0
    rate = ERROR_RATE / SETS / len(NEAR)
    for distance, limit, share in zip(NEAR, MAX_STEEP, crossings.steep().tolist(), strict=True):
        failed, test_rate = exact_test(round(n * share), n, limit, rate)
        error_rate += test_rate
        if failed:
            text = (
                f"on {round(n * share)} of {n} {description} the margin is above "
                f"{100 * STEEP:.0f} % of the clean one at "
                f"{100 * (1 - distance):g} % of the way to the decision boundary: {REMEDY}"
            )
            return Finding(
                code=Code.BOUNDARY,
                passed=False,
                text=text,
                figure=share,
                limit=limit,
                error_rate=rate,
            )

    text = f"on all {n} {description} the margin goes to zero at the decision boundary"
    is_small = n < MIN_LINES
    if is_first:
        is_small = n < MIN_FIRST or bool(crossings.steep().any())
    return Finding(
        code=Code.BOUNDARY,
        passed=None if is_small else True,
        text=f"{TOO_FEW}: {text}" if is_small else text,
        figure=0.0,
        limit=0.0,
        error_rate=error_rate,
        reason=TOO_FEW if is_small else None,
    )
