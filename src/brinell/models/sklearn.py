"""`sklearn:FILE.skops`: a classifier of scikit-learn, or a pipeline that ends in one, saved by skops.

A skops file is not a pickle, but it may name types whose construction runs code. Types that skops trusts by default are
constructed; any other must be named by the option `trusted`, and the message lists those that are missing. A tree of
scikit-learn is such a type, because skops does not check the numbers of its nodes. Probabilities are converted by their
logarithm. Without probabilities the decision function is used, and without that the predicted class, which only label-only
attacks can use.
"""

import hashlib
import io
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core import bounded
from brinell.core.contracts import Access, Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.model import ModelInfo, check_exit
from brinell.core.user_files import path_hint
from brinell.models import _answers as answers

__all__ = ["Sklearn"]

Answers = Literal["probabilities", "decision", "labels"]
MOST_BYTES = 1 << 33
"""Maximum size of a file in bytes."""
METHODS: dict[Answers, str] = {"probabilities": "predict_proba", "decision": "decision_function", "labels": "predict"}


@dataclass(frozen=True, kw_only=True)
class Sklearn:
    """A classifier of scikit-learn, saved by skops."""

    path: str = ""
    """The file that `skops.io.dump` wrote."""
    trusted: tuple[str, ...] = ()
    """Types in the file that you trust, joined by +, in addition to those that skops trusts by default."""
    answers: Answers | None = None
    """Answers to request: probabilities, decision or labels; by default the first of these that the model offers."""
    name: str = ""
    """Name in reports; by default the stem of the file."""

    def __call__(self, domain: Domain) -> "SklearnModel":
        """Load the estimator and call it once.

        Raises:
            RequestError: skops is not installed, the file is missing, damaged or holds types that are not trusted, or the
                estimator is not a fitted classifier of the data's features.
        """
        file = Path(self.path).expanduser()
        if not self.path:
            raise RequestError("'sklearn' names no file: write sklearn:FILE.skops")
        if not file.is_file():
            raise RequestError(f"there is no file {str(file)!r}: check the path{path_hint(file)}")
        content = bounded.read(file, MOST_BYTES)
        with bounded.decoding(file, len(content)):
            estimator = _load(file, content, self.trusted)
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        name = self.name or file.stem
        return of_estimator(estimator, domain, self.answers, name=name, digest=digest, source=str(file))


def of_estimator(
    estimator: Any, domain: Domain, answer_kind: Answers | None, *, name: str, digest: str, source: str = "the model"
) -> "SklearnModel":
    """A model around an estimator, which is called once; settings of its number of processes become 1.

    Raises:
        RequestError: the estimator is not a fitted classifier with one label per sample, or was fitted to other features.
    """
    kind = _choose_answers(estimator, answer_kind, source)
    if settings := process_settings(estimator):
        estimator.set_params(**dict.fromkeys(settings, 1))
    model = SklearnModel(estimator, domain, kind, name=name, digest=digest)
    model.probe()
    return model


def process_settings(estimator: Any) -> list[str]:
    """Names of the settings by which an estimator starts several processes, which would start anew for every query."""
    return [
        key for key, value in estimator.get_params().items() if key.rpartition("__")[2] == "n_jobs" and value not in (None, 1)
    ]


class SklearnModel:
    """A model around a fitted classifier; inputs of any shape are flattened to vectors, in the units of their table.

    Args:
        estimator: has `classes_` and the method for `answer_kind`.
        domain: domain of the inputs.
        answer_kind: answers to request.
        name: name in reports.
        digest: hash of the estimator's file.
    """

    def __init__(self, estimator: Any, domain: Domain, answer_kind: Answers, *, name: str, digest: str) -> None:
        self.domain, self.name, self._answer_kind, self._digest = domain, name, answer_kind, digest
        self._estimator = estimator
        self._method: Callable[[Any], Any] = getattr(estimator, METHODS[answer_kind])
        self.access = Access.LABELS if answer_kind == "labels" else Access.SCORES
        names = tuple(_text(name) for name in estimator.classes_)
        self.classes = len(names)
        logit_kind = {"probabilities": "probabilities", "decision": "logits", "labels": "one-hot"}[answer_kind]
        self.info = ModelInfo(class_names=names, architecture=type(estimator).__name__, answers=logit_kind)
        self._frame = _frame(estimator, domain, name)

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape)."""
        rows = self.domain.in_units(x.detach().cpu().double()).flatten(1).numpy()
        with warnings.catch_warnings():
            # scikit-learn warns of rows without names where it was fitted with some; they are matched when the model is opened.
            warnings.simplefilter("ignore", UserWarning)
            answer = self._method(self._frame(rows))
        return self._logits(np.asarray(answer)).to(x.device)

    def _logits(self, answer: np.ndarray[Any, Any]) -> Tensor:
        if self._answer_kind == "labels":
            codes = np.searchsorted(self._estimator.classes_, answer)
            return answers.logits_of_labels(torch.from_numpy(codes), self.classes)
        scores = torch.from_numpy(np.ascontiguousarray(answer, dtype=np.float64))
        if self._answer_kind == "probabilities":
            return answers.logits_of_probabilities(scores)
        # Of two classes one score is given, that of the second over the first.
        return (torch.stack([-scores / 2, scores / 2], 1) if scores.ndim == 1 else scores).float()

    def probe(self) -> None:
        """Call the estimator once, and refuse one that cannot take the data."""
        low, _ = self.domain.bounds()
        x = low.expand(1, *self.domain.shape).contiguous()
        try:
            shape = self.predict(x).shape
        except BaseException as error:
            check_exit(self.name, error)
            raise RequestError(
                f"{self.name} cannot take the data, {self.domain.kind}s of shape {self.domain.shape} as rows of {x[0].numel()} "
                f"numbers ({type(error).__name__}: {one_line(error)}): give it the data that it was fitted for"
            ) from error
        if shape != (1, self.classes):
            raise RequestError(
                f"{self.name} answers one input with shape {tuple(shape)} for {self.classes} classes: it must be a classifier of "
                "one label each; a pairwise decision function needs decision_function_shape='ovr'"
            )

    def digest(self) -> str:
        """Hash of the file, the kind of answers and the domain."""
        return hashlib.blake2b(f"{self._digest} {self._answer_kind} {self.domain.text()}".encode(), digest_size=16).hexdigest()


def _load(file: Path, content: bytes, trusted: tuple[str, ...]) -> Any:
    """The estimator of a skops file."""
    try:
        import skops.io as skops
    except ImportError:
        raise RequestError("skops is not installed, which reads .skops files: pip install 'brinell[sklearn]'") from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            bounded.check_unpacked_size(sum(member.file_size for member in archive.infolist()), len(content), file)
        untrusted = sorted(skops.get_untrusted_types(data=content))
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"{file} is damaged or no skops file ({one_line(error)}): save it by skops.io.dump") from None
    if unlisted := [type_name for type_name in untrusted if type_name not in trusted]:
        raise RequestError(
            f"{file} holds types that skops does not trust by default ({', '.join(unlisted)}): if you know the origin of the "
            f"file, add trusted={'+'.join([*trusted, *unlisted])}"
        )
    try:
        return skops.loads(content, trusted=untrusted)
    except Exception as error:
        raise RequestError(f"{file} cannot be loaded ({one_line(error)}): save it by the skops and scikit-learn in use") from None


def _choose_answers(estimator: Any, answer_kind: Answers | None, file: str) -> Answers:
    if not hasattr(estimator, "predict") or not hasattr(estimator, "classes_"):
        raise RequestError(f"{file} holds a {type(estimator).__name__}, which is no fitted classifier: it has no classes_")
    if np.asarray(estimator.classes_, dtype=object).ndim != 1 or isinstance(estimator.classes_, list):
        raise RequestError(f"{file} holds a {type(estimator).__name__} of several labels each: Brinell audits one label each")
    for kind in (answer_kind,) if answer_kind else METHODS:
        if hasattr(estimator, METHODS[kind]):
            return kind
    raise RequestError(f"{file}: its {type(estimator).__name__} has no {METHODS[answer_kind or 'labels']}: leave answers= out")


def _frame(estimator: Any, domain: Domain, name: str) -> Callable[[np.ndarray[Any, Any]], Any]:
    """The function that converts rows to the estimator's input: columns in the order of the fit, categories as texts."""
    fitted = [str(fitted_name) for fitted_name in getattr(estimator, "feature_names_in_", ())]
    if not fitted or not domain.columns or domain.kind != "vector":
        return lambda rows: rows
    names = [column.name for column in domain.columns]
    if missing := [fitted_name for fitted_name in fitted if fitted_name not in names]:
        raise RequestError(
            f"{name} was fitted with a column {missing[0]!r}, which the data has not: it has {', '.join(names[:8])}"
        )
    order = [names.index(fitted_name) for fitted_name in fitted]
    texts = {names[index]: np.array(values, dtype=object) for index in order if (values := domain.columns[index].values)}
    try:
        import pandas
    except ImportError:
        if texts:
            remedy = f"in which {name} takes the texts of categories: pip install pandas"
            raise RequestError(f"pandas is not installed, {remedy}") from None
        return lambda rows: rows[:, order]

    def frame(rows: np.ndarray[Any, Any]) -> Any:
        """Rows as the data frame that the estimator was fitted on."""
        frame_of_rows = pandas.DataFrame(rows[:, order], columns=fitted)
        for column, values in texts.items():
            frame_of_rows[column] = values[frame_of_rows[column].round().astype(int).clip(0, len(values) - 1)]
        return frame_of_rows

    return frame


def _text(name: Any) -> str:
    """A class as text, whole numbers without a point."""
    return f"{name:.12g}" if isinstance(name, float | np.floating) else str(name)
