"""What an audit knows of each sample between two stages."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class State:
    """What is known of each sample of a model; arrays of length n, in the order of the plan's ids."""

    target: Array | None
    """(n,) target classes; None where any wrong class counts."""
    clean_pred: Array
    clean_confidence: Array
    correct: Array
    failed: Array
    """Which samples could not be judged in the first check."""
    broken: Array
    """Index of the smallest level that any attack so far broke the sample at; the number of levels for none."""
    clean_margin: Array
    """Lead of the true class on the clean input, in logits."""
    nearest: Array
    """Largest lead of a wrong class that the attacks came to which failed at the budget now open; minus the clean margin before
    the first."""
    last: Array
    """The same of the stage just before; minus infinity where it did not attack, or did not fail."""
