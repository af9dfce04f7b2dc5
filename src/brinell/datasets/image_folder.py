"""`image-folder:DIR`: a folder of pictures, decoded on demand.

The folder holds either one subfolder per class (sorted names are the labels), or a labels.csv with
the column file and one of label, imagenet_index, class_index, index. The listed pictures lie in the
folder or in images/. A file *classes.json, a list of names or of {"index", "name"}, gives the full
list of classes; subfolders are then looked up in it by name or wnid.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from brinell.core.bounded import MOST_SIDE
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.settings import Checked, Range
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import StoredArrays
from brinell.datasets._listing import PictureFiles, digest_of, listing_of, one_size, sizes_of

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
)
Mode = Literal["RGB", "L"]


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Checked):
    """Pictures in folders, or listed in labels.csv."""

    path: str = ""
    """The folder."""
    size: Annotated[int, Range(f"[0, {MOST_SIDE}]")] = 0
    """Resize the shorter side to this many pixels and crop the centre; 0 keeps the pictures
    unchanged, which must have one size.
    """
    mode: Mode = "RGB"
    """RGB, or L for grey."""

    def __call__(self) -> Dataset:
        """List the folder and read the size of each picture."""
        folder = existing_path(self.path, "folder", "image-folder:DIR")
        listing = listing_of(folder, SUFFIXES, "pictures", "images")
        # Pictures that are resized need not be opened for their size.
        remedy = "size=224 (shorter side, then centre crop)"
        sizes, notes = ([(self.size, self.size)], ()) if self.size else sizes_of(listing.files)
        size = one_size(listing.files[: len(sizes)], sizes, remedy)

        domain = Domain(kind="image", shape=(len(self.mode), *size), levels=256)

        settings = f"{domain.text()} {self.mode} {bool(self.size)}"
        return StoredArrays(
            name=folder.resolve().name,
            x=PictureFiles(listing.files, domain.shape, "crop" if self.size else "none"),
            y=listing.labels,
            domain=domain,
            classes=listing.classes,
            divisor=255.0,
            info=DataInfo(
                names=tuple(str(file).removeprefix(f"{folder}/") for file in listing.files),
                notes=listing.notes + notes,
            ),
            digest=lambda: digest_of(settings, [listing.labels], listing.files),
        )
