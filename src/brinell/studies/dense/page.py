"""The page of a study of dense outputs."""

from pathlib import Path

from brinell.store.files import write_text
from brinell.store.folder import PAGE
from brinell.studies.dense import detection_page, segmentation_page
from brinell.studies.dense.records import TABLE


def write(path: Path | str) -> Path:
    """Write the page of a folder from its rows and arrays."""
    folder = TABLE.read(path)
    page = folder.path / PAGE
    task = detection_page if folder.manifest["task"] == "detection" else segmentation_page
    write_text(page, task.render(folder))
    return page
