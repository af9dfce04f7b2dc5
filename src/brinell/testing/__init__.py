"""Checkers that every plugin must pass, shipped or not, and targets whose answers are known. For tests, also outside ones."""

from brinell.testing.attacks import check_attack
from brinell.testing.filters import check_filter
from brinell.testing.linear import LinearTarget, linear_problem
from brinell.testing.others import check_dataset, check_distance, check_target

__all__ = ["LinearTarget", "check_attack", "check_dataset", "check_distance", "check_filter", "check_target", "linear_problem"]
