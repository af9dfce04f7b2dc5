"""The result of a study of dense outputs, from its rows alone."""

from brinell.store.table import Folder
from brinell.studies.dense import detection_analysis, segmentation_analysis
from brinell.studies.dense.detection_results import DetectionResult
from brinell.studies.dense.records import Answers
from brinell.studies.dense.results import DenseResult


def summarise(folder: Folder[Answers]) -> DenseResult | DetectionResult:
    """Summarise a folder."""
    task = detection_analysis if folder.manifest["task"] == "detection" else segmentation_analysis
    result: DenseResult | DetectionResult = task.summarise(folder)
    return result
