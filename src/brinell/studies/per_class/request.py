"""The settings of `brinell study`."""

from pydantic import Field

from brinell.core.errors import RequestError, option
from brinell.engine.request import Budgets, Folder, ModelSpec, Request

DIGITS = ("digits-cnn?width=4", "digits-cnn?width=8", "digits-cnn", "digits-cnn?width=32")
"""Default models: the network for digits in four widths."""


class StudyRequest(Request):
    """The settings of `brinell study`: existing runs, or models to audit with the options of `brinell audit`."""

    run: tuple[Folder, ...] = ()
    """Run folders of brinell audit on the same data; the study compares every model in them. Default: none, the study audits
    the models first."""
    model: tuple[ModelSpec, ...] = ()
    """A model that the study audits, as for brinell audit. Default without runs: the built-in network for digits in four
    widths."""
    at: Budgets | None = None
    """The budget at which models and classes are compared; all runs must have it. Default: the largest shared
    budget at which they keep a tenth of their clean accuracy on average."""
    published: Folder | None = None
    """A folder of RobustBench's model_info files, such as model_info/cifar10/Linf. Its entries with the study's budget appear
    as reference marks."""
    draws: int = Field(default=2000, ge=100, le=100_000)
    """Number of shuffles behind the p-values of the spread of the classes and of their agreement."""

    def audit_request(self) -> Request | None:
        """The audit that the study starts with; None if it only compares existing runs.

        Raises:
            RequestError: there are no models for data other than digits.
        """
        models = self.model or (() if self.run else DIGITS)
        if not models:
            return None
        if not self.model and self.data != "digits":
            raise RequestError(
                f"a study of {self.data} needs models: give two or more with {option('model')}, or the folders of their runs"
            )
        values = {name: getattr(self, name) for name in Request.model_fields}
        return Request(**values | {"model": models})
