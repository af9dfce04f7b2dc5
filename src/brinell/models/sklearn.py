"""`sklearn:FILE.skops`: a classifier of scikit-learn, or a pipeline that ends in one, saved by
skops.

A skops file is not a pickle, but it may name types whose construction runs code. Types that skops
trusts by default are constructed; any other must be named by the option `trusted`, and the message
lists those that are missing. A tree of scikit-learn is such a type, because skops does not check
the numbers of its nodes. Probabilities are converted by their logarithm. Without probabilities the
decision function is used, and without that the predicted class, which only label-only attacks can
use.
"""

import hashlib
import io
import re
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sklearn
import torch
from sklearn.exceptions import InconsistentVersionWarning

from brinell.core import bounded
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.model import Model
from brinell.core.user_files import existing_path
from brinell.models._answers import LogitModel
from brinell.models._function import ARRAYS, FunctionModel

Answers = Literal["probabilities", "decision", "labels"]
MOST_BYTES = 1 << 33
"""Maximum size of a file in bytes."""
SAVED_BY = re.compile(r'"_sklearn_version": \{[^{}]*?"content": "\\"([^"\\]+)')
"""Where a schema of skops names the version of scikit-learn."""
FORESTS = (
    "sklearn.ensemble._forest.RandomForestClassifier",
    "sklearn.ensemble._forest.ExtraTreesClassifier",
)
"""Types whose trees are asked directly; they are named, since their import takes time."""
Array = np.ndarray[Any, Any]
METHODS: dict[Answers, str] = {
    "probabilities": "predict_proba",
    "decision": "decision_function",
    "labels": "predict",
}


@dataclass(frozen=True, kw_only=True)
class Sklearn:
    """A classifier of scikit-learn, saved by skops."""

    path: str = ""
    """The file that `skops.io.dump` wrote."""
    trusted: tuple[str, ...] = ()
    """Types in the file that you trust, joined by +, in addition to those that skops trusts by
    default."""
    answers: Answers | None = None
    """Answers to request: probabilities, decision or labels; by default the first of these that
    the model offers."""
    name: str = ""
    """Name in reports; by default the stem of the file."""

    def __call__(self, domain: Domain) -> Model:
        """Load the estimator and call it once."""
        file = existing_path(self.path, "file", "sklearn:FILE.skops")
        content = bounded.read(file, MOST_BYTES)
        with bounded.decoding(file, len(content)):
            estimator = _load(file, content, self.trusted)
        # Read before the estimator is called: a version that differs explains most failures.
        versions = _versions(content)
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()

        name = self.name or file.stem
        try:
            notes = (f"{name}{versions}",) if versions else ()
            return of_estimator(
                estimator,
                domain,
                self.answers,
                name=name,
                digest=digest,
                source=str(file),
                notes=notes,
            )
        except RequestError as error:
            raise RequestError(f"{error}; it{versions}" if versions else str(error)) from None


def of_estimator(
    estimator: Any,
    domain: Domain,
    answers: Answers | None,
    *,
    name: str,
    digest: str,
    source: str = "the model",
    notes: tuple[str, ...] = (),
) -> Model:
    """A model around an estimator, which is called once.

    Settings of its number of processes become 1. Inputs of any shape are flattened to vectors, in
    the units of their table.
    """
    answers = _choose_answers(estimator, answers, source)
    # Processes would be started for each query, and figures must not depend on their number.
    if settings := process_settings(estimator):
        estimator.set_params(**dict.fromkeys(settings, 1))
    names = tuple(
        f"{entry:.12g}" if isinstance(entry, float | np.floating) else str(entry)
        for entry in estimator.classes_
    )

    model = FunctionModel(
        Answering(estimator, METHODS[answers], _frame(estimator, domain, name)),
        domain,
        classes=len(names),
        name=name,
        user_layout=lambda x: x.flatten(1),
        labels=answers == "labels",
        forms=ARRAYS,
        dtype=torch.float64,
        code=f"{digest} {answers}",
        class_names=names,
        architecture=type(estimator).__name__,
        notes=notes,
    )
    if model.classes != (1 if answers == "decision" and len(names) == 2 else len(names)):
        raise RequestError(
            f"{name} answers one input with {model.classes} scores for "
            f"{len(names)} classes: it must be a classifier of one label"
        )

    kind = {
        "probabilities": "probabilities",
        "decision": "logits" if len(names) > 2 else "logit",
    }.get(answers)
    return LogitModel(model, kind) if kind else model


class Answering:
    """An estimator as a function of arrays (n, features)."""

    def __init__(self, estimator: Any, method: str, frame: Callable[[Array], Any]) -> None:
        self.estimator, self.method, self.frame = estimator, method, frame

    def __call__(self, rows: Array) -> Array:
        """Scores, or the place of the predicted class among the classes."""
        kind = type(self.estimator)
        is_forest = f"{kind.__module__}.{kind.__name__}" in FORESTS
        if is_forest and np.isfinite(rows).all():
            scores = forest_probabilities(self.estimator, rows)
            return scores.argmax(1) if self.method == "predict" else scores
        with warnings.catch_warnings():
            # scikit-learn warns of rows without names where it was fitted with some; they are
            # matched when the model is opened.
            warnings.simplefilter("ignore", UserWarning)
            answer = np.asarray(getattr(self.estimator, self.method)(self.frame(rows)))
        return (
            np.searchsorted(self.estimator.classes_, answer) if self.method == "predict" else answer
        )


def forest_probabilities(forest: Any, rows: Array) -> Array:
    """(n, classes) what `predict_proba` of a forest answers to rows (n, features), in a quarter of
    its time: it prepares a parallel call for each tree.
    """
    x = np.ascontiguousarray(rows, dtype=np.float32)
    total = np.zeros((len(x), len(forest.classes_)))
    for tree in forest.estimators_:
        total += tree.predict_proba(x, check_input=False)
    return total / len(forest.estimators_)


def process_settings(estimator: Any) -> list[str]:
    """Names of the settings by which an estimator starts several processes.

    They would start anew for every query.
    """
    return [
        key
        for key, value in estimator.get_params().items()
        if key.rpartition("__")[2] == "n_jobs" and value not in (None, 1)
    ]


def _load(file: Path, content: bytes, trusted: tuple[str, ...]) -> Any:
    """The estimator in a file of skops, with the types that the user trusts."""
    try:
        import skops.io as skops
    except ImportError:
        raise RequestError(
            "skops is not installed, which reads .skops files: pip install 'brinell[sklearn]'"
        ) from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            bounded.check_unpacked_size(
                sum(member.file_size for member in archive.infolist()), len(content), file
            )
        untrusted = sorted(skops.get_untrusted_types(data=content))
    except RequestError:
        raise
    except Exception as error:
        reason = _versions(content) or " is damaged or no skops file: save it by skops.io.dump"
        raise RequestError(f"{file} cannot be read ({one_line(error)}): it{reason}") from None

    if unlisted := [type_name for type_name in untrusted if type_name not in trusted]:
        types = "+".join([*trusted, *unlisted])
        # Those that were trusted already stay in the line to type.
        raise RequestError(
            f"{file} holds types that skops does not trust by default "
            f"({', '.join(unlisted)}): if you know the origin of the "
            f"file, write {file}?trusted={types}",
            instead=(str(file), f"{file}?trusted={types}"),
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # which a note says
            return skops.loads(content, trusted=untrusted)
    except Exception as error:
        reason = (
            _versions(content)
            or " was saved by another version of skops: save it by the one in use"
        )
        raise RequestError(f"{file} cannot be loaded ({one_line(error)}): it{reason}") from None


def _versions(content: bytes) -> str:
    """A clause about an estimator of another version of scikit-learn; empty for the same, and where
    nothing says it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            saved = SAVED_BY.search(archive.read("schema.json").decode("utf-8", "replace"))
    except (zipfile.BadZipFile, KeyError):
        return ""

    # Nothing is said where the file names no version: older ones of skops did not write it.
    if saved is None or saved[1] == sklearn.__version__:
        return ""
    return (
        f" was saved by scikit-learn {saved[1]}, and {sklearn.__version__} is "
        f"installed: install scikit-learn=={saved[1]}, or "
        "save it anew"
    )


def _choose_answers(estimator: Any, answer_kind: Answers | None, file: str) -> Answers:
    """The answers to ask for: those requested, or the first that the estimator offers."""
    if not hasattr(estimator, "predict") or not hasattr(estimator, "classes_"):
        raise RequestError(
            f"{file} holds a {type(estimator).__name__}, which is no fitted "
            "classifier: it has no classes_"
        )
    # Estimators of several labels have a list of classes for each.
    if np.asarray(estimator.classes_, dtype=object).ndim != 1 or isinstance(
        estimator.classes_, list
    ):
        raise RequestError(
            f"{file} holds a {type(estimator).__name__} of several labels each: "
            "Brinell audits one label each"
        )

    for kind in (answer_kind,) if answer_kind else METHODS:
        if hasattr(estimator, METHODS[kind]):
            return kind
    raise RequestError(
        f"{file}: its {type(estimator).__name__} has no "
        f"{METHODS[answer_kind or 'labels']}: leave answers= out"
    )


def _frame(estimator: Any, domain: Domain, name: str) -> Callable[[Array], Any]:
    """The function that converts rows to the estimator's input.

    Its columns are in the order of the fit, and categories are texts.
    """
    fitted = [str(fitted_name) for fitted_name in getattr(estimator, "feature_names_in_", ())]
    if not fitted or not domain.columns or domain.kind != "vector":
        return lambda rows: rows
    # A mark of missing values is a column of ours, which the estimator never saw.
    columns = [column for column in domain.columns if not column.marks]
    names = [column.name for column in columns]
    if missing := [fitted_name for fitted_name in fitted if fitted_name not in names]:
        raise RequestError(
            f"{name} was fitted with a column {missing[0]!r}, which the data has "
            f"not: it has {', '.join(names[:8])}"
        )

    order = [names.index(fitted_name) for fitted_name in fitted]
    texts = {
        names[index]: np.array(values, dtype=object)
        for index in order
        if (values := columns[index].values)
    }
    try:
        import pandas
    except ImportError:
        if texts:
            remedy = f"in which {name} takes the texts of categories: pip install pandas"
            raise RequestError(f"pandas is not installed, {remedy}") from None
        return lambda rows: rows[:, order]

    def frame(rows: Array) -> Any:
        frame_of_rows = pandas.DataFrame(rows[:, order], columns=fitted)
        # An attack works on codes; the estimator was fitted on the texts behind them.
        for column, values in texts.items():
            codes = frame_of_rows[column].round().clip(0, len(values) - 1)
            frame_of_rows[column] = np.where(
                codes.isna(), np.nan, values[codes.fillna(0).astype(int)]
            )
        return frame_of_rows

    return frame
