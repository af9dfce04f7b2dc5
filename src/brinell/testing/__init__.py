"""Checkers that every plugin and study must pass, and models with known answers.

For tests, also outside ones.
"""

from brinell.testing.attacks import check_attack
from brinell.testing.bounds import check_bound
from brinell.testing.defences import check_defence
from brinell.testing.detectors import check_detector
from brinell.testing.distortions import check_distortion
from brinell.testing.explainers import check_explainer
from brinell.testing.linear import LinearModel, linear_problem
from brinell.testing.others import check_dataset, check_distance, check_model
from brinell.testing.studies import check_study
from brinell.testing.tasks import check_task

__all__ = [
    "LinearModel",
    "check_attack",
    "check_bound",
    "check_dataset",
    "check_defence",
    "check_detector",
    "check_distance",
    "check_distortion",
    "check_explainer",
    "check_model",
    "check_study",
    "check_task",
    "linear_problem",
]
