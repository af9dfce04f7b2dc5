"""Saliency maps of the samples of a run, from studies that lie in its folder.

Folders next to it are left alone: the page of a run follows from the run alone, so that anybody
can make it again.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from brinell.core.errors import BrinellError
from brinell.reports.values import Picture
from brinell.store.folder import MANIFEST, fitting, verb_of
from brinell.store.run import Run
from brinell.studies.register import open_folder


def inner_maps(run: Run, digest: str, samples: Collection[int]) -> Mapping[int, Picture]:
    """The maps of some samples by studies of the same model and data in the folder of the run."""
    maps: dict[int, Picture] = {}
    for folder in sorted(path.parent for path in run.path.glob(f"*/{MANIFEST}")):
        if verb_of(folder) == "explain":
            with suppress(BrinellError), fitting(folder):  # its damage is no fault of the run
                result = open_folder(folder)
                data, models = result.manifest["data"], result.manifest["models"]
                if (data["digest"], models[0]["digest"]) == (
                    run.manifest["data"]["digest"],
                    digest,
                ):
                    maps |= result.pictures_of_samples(samples)
    return maps
