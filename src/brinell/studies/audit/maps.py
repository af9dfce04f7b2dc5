"""Saliency maps of the samples of a run, from studies that lie in its folder or next to it."""

from collections.abc import Collection, Mapping
from contextlib import suppress

from brinell.core.errors import BrinellError
from brinell.reports.values import Picture
from brinell.store.folder import MANIFEST, fitting, verb_of
from brinell.store.run import Run
from brinell.studies.register import open_folder


def maps_beside(run: Run, digest: str, samples: Collection[int]) -> Mapping[int, Picture]:
    """The maps of some samples by a study of the same model and data in the folder of the run, or
    next to it.
    """
    maps: dict[int, Picture] = {}
    manifests = {*run.path.glob(f"*/{MANIFEST}"), *run.path.resolve().parent.glob(f"*/{MANIFEST}")}
    for folder in sorted(path.parent for path in manifests):
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
