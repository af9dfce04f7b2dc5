"""The settings of `brinell dense-transfer`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import BaseRequest, Budgets, DataSpec, Device, ModelSpec, SampleCount, Seed


class DenseTransferRequest(BaseRequest):
    """The settings of `brinell dense-transfer`."""

    source: tuple[str, ...] = ()
    """The name of a model that is attacked, among those of model. Default: each model."""
    model: tuple[ModelSpec, ...]
    """A model, as for brinell dense: name two or more. Each one is shown the inputs that were found on each source."""
    data: DataSpec
    """The data, as for brinell dense: masks:FOLDER or boxes:FOLDER."""
    norm: Literal["linf", "l2"] = "linf"
    """The distance in which eps is measured: linf or l2."""
    eps: Budgets | None = None
    """The budget of the inputs. Default: 8/255 in linf; 1 in l2."""
    attack: tuple[Annotated[str, Names("attack")], ...] = ()
    """An attack, as for brinell dense. Default: that of brinell dense for such a model."""
    criterion: str | None = None
    """The criterion of success, as for brinell dense: it ends the attack on a picture, and names the kinds of errors of boxes.
    Default: pixels, or missed for boxes."""
    least_score: float = Field(default=0.4, ge=0, lt=1)
    """For boxes: the score above which they are shown. Recall and errors count shown boxes alone; AP takes scores over 0.001."""
    enlarge: Literal["bilinear", "bilinear-aligned", "nearest"] = "bilinear"
    """How maps that are smaller than the picture are enlarged; bilinear-aligned lays the outer pixels of both upon each other."""
    queries: int | None = Field(default=None, ge=1)
    """The forward evaluations that each attack may spend on a picture. Default: no limit."""
    samples: SampleCount = None
    """The number of pictures, or all. Default: 50, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """The selection of pictures: the first, or drawn with the seed. Default: drawn."""
    seed: Seed = 0
    batch_size: Annotated[int, Field(ge=1, description="The most pictures shown to the model at once.")] = 4
    device: Device = "auto"

    def dense_settings(self) -> dict[str, Any]:
        """The settings of an attack on one of the models, without the model."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in ("source", "model")}
