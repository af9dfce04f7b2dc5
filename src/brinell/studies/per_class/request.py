"""What `brinell study` is asked for."""

from pydantic import Field

from brinell.core.errors import RequestError, option
from brinell.engine.request import Budgets, Folder, ModelSpec, Request

DIGITS = ("digits-cnn?width=4", "digits-cnn?width=8", "digits-cnn", "digits-cnn?width=32")
"""The models of a study of digits where nobody names one: one network in four widths."""


class StudyRequest(Request):
    """What `brinell study` is asked for: runs that are there, or models to audit, with the options of `brinell audit`."""

    run: tuple[Folder, ...] = ()
    """Run folders, made by brinell audit on the same data; every model in them takes part. Default: none, the models are
    audited."""
    model: tuple[ModelSpec, ...] = ()
    """A model that is audited for the study, as for brinell audit. Default: with no run either, the built-in network for digits
    in four widths."""
    at: Budgets | None = None
    """The budget at which models and classes are compared, one that all runs have. Default: the largest."""
    published: Folder | None = None
    """A folder of RobustBench's model_info files, such as model_info/cifar10/Linf: entries with the study's budget are drawn as
    reference marks."""
    draws: int = Field(default=2000, ge=100, le=100_000)
    """The resamplings behind the intervals of ranks and of their agreement."""

    def audited(self) -> Request | None:
        """The audit that the study begins with; None where it rests on runs that are there alone.

        Raises:
            RequestError: no models for data that are not digits.
        """
        models = self.model or (() if self.run else DIGITS)
        if not models:
            return None
        if not self.model and self.data != "digits":
            raise RequestError(
                f"a study of {self.data} needs models: name two or more by {option('model')}, or the folders of their runs"
            )
        values = {name: getattr(self, name) for name in Request.model_fields}
        return Request(**values | {"model": models})
