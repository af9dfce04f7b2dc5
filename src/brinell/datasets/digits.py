"""`digits`: 1,797 real handwritten digits of 8 x 8 pixels and 17 grey levels, as shipped with
scikit-learn.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository, 1998
(its test set). The split is fixed: `digits-cnn` is trained on `train` (1,258 images) and audited on
`test` (539).
"""

from dataclasses import dataclass
from typing import Literal

from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.splits import digits
from brinell.datasets._arrays import StoredArrays


@dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's handwritten digits."""

    path: str = ""
    """Must stay empty: the data comes with scikit-learn."""
    split: Literal["test", "train"] = "test"
    """Part of the data."""

    def __call__(self) -> Dataset:
        """Read the digits."""
        if self.path:
            raise RequestError(
                f"digits takes no path (it was given {self.path!r}): write digits "
                "or digits?split=train"
            )

        # Values from 0 to 16, hence the 17 levels.
        x, y = digits(self.split)
        return StoredArrays(
            name=f"digits-{self.split}",
            x=x,
            y=y,
            domain=Domain(kind="image", shape=(1, 8, 8), levels=17),
            classes=tuple("0123456789"),
            info=DataInfo(published=True),
        )
