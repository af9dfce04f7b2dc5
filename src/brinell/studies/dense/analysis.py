"""The result of a study of dense outputs, from its rows alone."""

from brinell.store.table import Folder
from brinell.studies.dense import segmentation_analysis
from brinell.studies.dense.records import Answers
from brinell.studies.dense.results import DenseResult


def summarise(folder: Folder[Answers]) -> DenseResult:
    """Summarise a folder."""
    return segmentation_analysis.summarise(folder)
