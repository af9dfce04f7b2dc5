"""Shortcut through a cascade on a model whose checks say that some attacks have no lead to follow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brinell.core.checks import Code
from brinell.core.model import Access
from brinell.engine.adaptive import When
from brinell.engine.cascade import Stage

OF_NOISE: frozenset[str] = frozenset({Code.RANDOM, Code.MISMATCH, Code.MISLEADING})
"""Failed checks that random answers explain: finite differences of noise are noise."""


@dataclass(frozen=True, kw_only=True)
class Shortcut:
    """Waiting stages that cannot help on a model."""

    pointless: frozenset[When] = frozenset()
    """Conditions whose stages are left out."""
    is_flat: bool = False
    """True if no clean input has a gradient: stages for masked gradients that follow the model's own are left out."""

    def leaves_out(self, stage: Stage) -> bool:
        """True if the stage cannot help."""
        follows = stage.gradient == "own" and stage.attack.access == Access.GRADIENTS
        return stage.turn.when in self.pointless or (stage.turn.when == "masked" and self.is_flat and follows)

    @property
    def reason(self) -> str:
        """Why stages are left out, as a clause; empty if none is."""
        if self.pointless:
            return "the same input is answered differently each time, so the attacks go straight to means over several answers"
        return "no input has a gradient, so full budgets go to attacks that need none" if self.is_flat else ""


def find_shortcut(checks: list[Mapping[str, Any]], masking: frozenset[str]) -> Shortcut:
    """The shortcut after the checks before the attacks.

    If answers are random and nothing else is wrong, means over answers lead, and more single answers find luck alone.

    Args:
        checks: the findings as the manifest has them.
        masking: codes of the checks that mean, if they fail, that gradients mislead.
    """
    failed = {str(check["code"]): check for check in checks if check["passed"] is False}
    only_noise = Code.RANDOM in failed and not failed.keys() & (masking - OF_NOISE)
    return Shortcut(
        pointless=frozenset({"masked", "blind"}) if only_noise else frozenset(),
        is_flat=Code.ZERO in failed and failed[Code.ZERO].get("figure") == 1,
    )
