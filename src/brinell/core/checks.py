"""The checks of an audit, by the codes that results, `gate --allow` and the report use."""

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """The checks of an audit. A check that fails says that robust accuracy may be too high, never that it is wrong.

    Those up to `unconstrained-failure` are made before the attacks, on at most 64 samples but for the first, the others on what
    the attacks found and on the model afterwards; the last two are named by the literature and need no measurement here.
    """

    CLEAN = "clean-accuracy"
    """On clean inputs the model is no better than chance, or far better with the classes in another order, with labels shifted
    by one, or on the same inputs in another form: multiplied by 255, normalised by the usual means, channels reversed."""
    RANDOM = "random-answers"
    """The same input is answered differently a second time (Croce & Hein 2020; their check of randomised outputs)."""
    PLACE = "answers-by-place"
    """The same input is answered otherwise in another row of the same batch: something is drawn or looked up by row."""
    COMPANY = "answers-by-company"
    """An input is answered otherwise beside other inputs, or alone: batch norm in training mode, statistics of a batch."""
    MODE = "training-mode"
    """A call leaves modules in training mode, or the answers differ where gradients are asked for."""
    DRIFT = "answers-drift"
    """Answers change with the number of calls, or at the end differ from those at the beginning: the model keeps something of
    what it is asked, or another took its place."""
    ANSWERS = "kind-of-answers"
    """Answers are rounded, so that small changes do not show in them. Probabilities, sigmoids, single numbers and logits
    that a last function flattens are turned into logits, and the line says so."""
    ONE_HOT = "one-hot-answers"
    """Every answer has the same margin, as after an argmax in the forward pass: scores guide no attack (the same)."""
    INSIDE = "gradients-inside"
    """The model takes gradients within its own forward pass, as defences that optimise at test time do (the same)."""
    ZERO = "zero-gradients"
    """Clean inputs have no gradient (Croce & Hein 2020; unavailable gradients in Pintor et al. 2022)."""
    SATURATED = "saturated-logits"
    """The cross-entropy has lost its gradient to rounding while the margin has one (Carlini & Wagner 2017, on distillation)."""
    MISLEADING = "misleading-gradients"
    """A small step along the gradient does not raise the loss as the gradient promises (unstable predictions in Pintor et al.
    2022; shattered gradients in Athalye et al. 2018)."""
    MISMATCH = "gradient-mismatch"
    """The gradient is not that of the answers: finite differences change the margin otherwise than it foretells, everywhere or
    in some block of values (Athalye et al. 2018 on shattered gradients; a gradient check by central differences)."""
    UNCONSTRAINED = "unconstrained-failure"
    """A gradient attack fails although its only budget is the bounds of the data (Pintor et al. 2022; Carlini et al. 2019)."""
    BLACK_BOX = "black-box-better"
    """An attack without gradients breaks samples that are robust to the gradient attacks (Croce & Hein 2020; Carlini et al.
    2019)."""
    AHEAD = "probe-ahead"
    """An attack that does not climb the loss (FAB, Square) comes nearer to the boundary than those before it that do."""
    INCOMPLETE = "incomplete-optimisation"
    """The last gradient attack still came notably nearer to the boundary than the ones before it (Pintor et al. 2022)."""
    WEIGHTS = "changed-weights"
    """The weights or buffers at the end of the audit are not those at its beginning: the model changed while it was asked."""
    DEVICE = "answers-by-device"
    """The model answers otherwise on the processor than on the accelerator that the audit runs on. Not made on the processor."""
    REJECTION = "rejection-jumps"
    """The reject class is decided by a rule without a slope, of which attacks learn that it rejects and not which way leads out.
    Made only where a reject class is declared (`--reject-class`)."""
    SILENT = "silent-success"
    """An attack passes an adversarial input and ends elsewhere (Pintor et al. 2022). It cannot happen here."""
    TRANSFER = "transfer-failure"
    """An attack on a surrogate does not carry over (Pintor et al. 2022). Not checked: every attack here asks the model
    itself, also where it follows the gradient of a surrogate."""


GOOD = 0.2
"""A mended gradient that finite differences disagree with by no more leads an attack."""
EXTRA = "extra-class"
"""The code of the warning that attacks end in a class that no sample has."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check and what came of it."""

    code: str
    """One of `Code`."""
    passed: bool | None
    """None where the check could not be made."""
    text: str
    """What was seen, and what to do about it, in one line."""
    figure: float | None = None
    """What was measured."""
    limit: float | None = None
    """What the figure was held against."""
    cause: str | None = None
    """What is the matter, in a clause, where a failed check can tell more than its name does."""
    reason: str | None = None
    """Why the check was not made, in a clause; None where it was made, or where its samples are too few to tell."""

    @classmethod
    def unmade(cls, code: str, reason: str, limit: float | None = None) -> "Finding":
        """A check that was not made, and why."""
        return cls(code=code, passed=None, text=f"not made: {reason}", limit=limit, reason=reason)
