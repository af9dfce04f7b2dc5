"""The folder of `brinell smooth`.

manifest.json   request, model, data
rows.parquet    a row for each sample
report.html     the page; made from the rows
"""

from dataclasses import dataclass

from brinell.core.record import Array, column
from brinell.manifest import FolderManifest
from brinell.store.folder import Layout
from brinell.store.table import Table


@dataclass(frozen=True, kw_only=True)
class Radii:
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "class that was most frequent among the first draws")
    count: Array = column("int64", "later draws that the model gave this class")
    draws: Array = column("int64", "number of these draws")
    low: Array = column("float64", "lower bound of the probability of the class under noise (Clopper-Pearson)")
    radius: Array = column("float64", "L2 distance within which the class cannot change; 0 where it is not told (abstained)")

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(Layout(verb="smooth", noun="smoothed model", version=1, manifest=FolderManifest), Radii)
