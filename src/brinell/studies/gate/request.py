"""What `brinell gate` is asked for."""

from brinell.engine.request import BaseRequest, Budgets, File, Folder


class GateRequest(BaseRequest):
    """What `brinell gate` is asked for."""

    run: Folder
    """The folder, made by brinell audit or certify."""
    robust: float | None = None
    """Least robust accuracy, 0 to 1, for the lower end of its interval."""
    worst_class: float | None = None
    """The same for the weakest class."""
    clean: float | None = None
    """The same for clean accuracy."""
    certified: float | None = None
    """The same for the share of samples that is proven robust, in a folder of brinell certify."""
    unmet: float | None = None
    """The same for the share of inputs that do not meet a criterion of probability, in a run with --criterion."""
    eps: Budgets | None = None
    """The one budget that is judged, one of the run's. Default: its largest for thresholds, and each for a baseline."""
    baseline: Folder | None = None
    """A run that this one must not be worse than."""
    max_drop: float | None = None
    """The most that a rate may fall below the baseline's, chance or not."""
    model: str | None = None
    """The name of the model, where the run has several."""
    allow: tuple[str, ...] = ()
    """The code of a check or a warning that does not fail the gate."""
    without_checks: bool = False
    """Pass too where checks that count were not made."""


class GateOptions(BaseRequest):
    """Files that a gate writes beside its answer."""

    junit: File | None = None
    """Write the checks to this file as JUnit XML."""
    sarif: File | None = None
    """Write the failed checks to this file as SARIF 2.1.0."""
