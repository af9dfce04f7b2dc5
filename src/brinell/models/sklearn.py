"""`sklearn:FILE.skops`: a classifier of scikit-learn, or a pipeline that ends in one, saved by skops.

A skops file is no pickle, but it may name types whose making runs code. Those that skops trusts by default are made; any other
must be named by the option `trusted`, and is listed where it is not (a tree of scikit-learn is one: skops does not check the
numbers of its nodes). Probabilities become their logarithms, which are logits; without them the decision function serves, and
without that the predicted class alone, which only attacks that ask for labels can use.
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
from brinell.core.model import ModelInfo
from brinell.core.settings import Plain
from brinell.models import _answers as answers

__all__ = ["Sklearn"]

Answers = Literal["probabilities", "decision", "labels"]
MOST_BYTES = 1 << 33
"""Bytes of a file at most."""
METHODS: dict[Answers, str] = {"probabilities": "predict_proba", "decision": "decision_function", "labels": "predict"}


@dataclass(frozen=True, kw_only=True)
class Sklearn:
    """A classifier of scikit-learn, saved by skops."""

    path: str = ""
    """The file that `skops.io.dump` wrote."""
    trusted: tuple[str, ...] = ()
    """Types in the file that you trust, joined by +, beside those that skops trusts by default."""
    answers: Answers | None = None
    """What the model is asked for: probabilities, decision or labels; by default the first of them that it has."""
    name: Plain = ""
    """How reports call it; by default the stem of the file."""

    def __call__(self, domain: Domain) -> "SklearnModel":
        """Load the estimator and ask it once.

        Raises:
            RequestError: no skops, no such file, a damaged one, types that are not trusted, no fitted classifier, other features
                than the data has.
        """
        file = Path(self.path).expanduser()
        if not self.path or not file.is_file():
            raise RequestError(f"there is no file {str(file)!r}: write sklearn:FILE.skops")
        content = bounded.read(file, MOST_BYTES)
        with bounded.decoding(file, len(content)):
            estimator = _load(file, content, self.trusted)
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        name = self.name or file.stem
        return of_estimator(estimator, domain, self.answers, name=name, digest=digest, where=str(file))


def of_estimator(
    estimator: Any, domain: Domain, asked: Answers | None, *, name: str, digest: str, where: str = "the model"
) -> "SklearnModel":
    """A model around an estimator, asked once; its settings of how many processes it starts become 1.

    Raises:
        RequestError: no fitted classifier of one label each, or other features than the data has.
    """
    own = _own(estimator, asked, where)
    if settings := many_processes(estimator):
        estimator.set_params(**dict.fromkeys(settings, 1))
    model = SklearnModel(estimator, domain, own, name=name, digest=digest)
    model.probe()
    return model


def many_processes(estimator: Any) -> list[str]:
    """The settings by which an estimator starts several processes: they would start anew for every query."""
    return [
        key for key, value in estimator.get_params().items() if key.rpartition("__")[2] == "n_jobs" and value not in (None, 1)
    ]


class SklearnModel:
    """A model around a fitted classifier; inputs of any shape are flattened to vectors, in the units of their table.

    Args:
        estimator: has `classes_` and the method that `asked` names.
        domain: where the inputs live.
        asked: what is asked for.
        name: how reports call it.
        digest: of the file that it comes from.
    """

    def __init__(self, estimator: Any, domain: Domain, asked: Answers, *, name: str, digest: str) -> None:
        self.domain, self.name, self._asked, self._digest = domain, name, asked, digest
        self._estimator = estimator
        self._method: Callable[[Any], Any] = getattr(estimator, METHODS[asked])
        self.access = Access.LABELS if asked == "labels" else Access.SCORES
        names = tuple(_text(name) for name in estimator.classes_)
        self.classes = len(names)
        told = {"probabilities": "probabilities", "decision": "logits", "labels": "one-hot"}[asked]
        self.info = ModelInfo(class_names=names, architecture=type(estimator).__name__, answers=told)
        self._frame = _frame(estimator, domain, name)

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits."""
        rows = self.domain.in_units(x.detach().cpu().double()).flatten(1).numpy()
        with warnings.catch_warnings():
            # scikit-learn warns of rows without names where it was fitted with some; they are matched when the model is opened.
            warnings.simplefilter("ignore", UserWarning)
            answer = self._method(self._frame(rows))
        return self._logits(np.asarray(answer)).to(x.device)

    def _logits(self, answer: np.ndarray[Any, Any]) -> Tensor:
        if self._asked == "labels":
            codes = np.searchsorted(self._estimator.classes_, answer)
            return answers.of_labels(torch.from_numpy(codes), self.classes)
        scores = torch.from_numpy(np.ascontiguousarray(answer, dtype=np.float64))
        if self._asked == "probabilities":
            return answers.of_probabilities(scores)
        # Of two classes one score is given, that of the second over the first.
        return (torch.stack([-scores / 2, scores / 2], 1) if scores.ndim == 1 else scores).float()

    def probe(self) -> None:
        """Ask once, and refuse an estimator that cannot take the data."""
        low, _ = self.domain.bounds()
        x = low.expand(1, *self.domain.shape).contiguous()
        try:
            shape = self.predict(x).shape
        except Exception as error:
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
        """Hash of the file, of what is asked for, and of how inputs are given."""
        return hashlib.blake2b(f"{self._digest} {self._asked} {self.domain.text()}".encode(), digest_size=16).hexdigest()


def _load(file: Path, content: bytes, trusted: tuple[str, ...]) -> Any:
    try:
        import skops.io as skops
    except ImportError:
        raise RequestError("skops is not installed, which reads .skops files: pip install 'brinell[sklearn]'") from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            bounded.unpacked(sum(one.file_size for one in archive.infolist()), len(content), file)
        wanted = sorted(skops.get_untrusted_types(data=content))
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"{file} is damaged or no skops file ({one_line(error)}): save it by skops.io.dump") from None
    if others := [one for one in wanted if one not in trusted]:
        raise RequestError(
            f"{file} holds types that skops does not trust by default ({', '.join(others)}): where you know where the file comes "
            f"from, add trusted={'+'.join([*trusted, *others])}"
        )
    try:
        return skops.loads(content, trusted=wanted)
    except Exception as error:
        raise RequestError(f"{file} cannot be loaded ({one_line(error)}): save it by the skops and scikit-learn in use") from None


def _own(estimator: Any, asked: Answers | None, file: str) -> Answers:
    if not hasattr(estimator, "predict") or not hasattr(estimator, "classes_"):
        raise RequestError(f"{file} holds a {type(estimator).__name__}, which is no fitted classifier: it has no classes_")
    if np.asarray(estimator.classes_, dtype=object).ndim != 1 or isinstance(estimator.classes_, list):
        raise RequestError(f"{file} holds a {type(estimator).__name__} of several labels each: Brinell audits one label each")
    for one in (asked,) if asked else METHODS:
        if hasattr(estimator, METHODS[one]):
            return one
    raise RequestError(f"{file}: its {type(estimator).__name__} has no {METHODS[asked or 'labels']}: leave answers= out")


def _frame(estimator: Any, domain: Domain, name: str) -> Callable[[np.ndarray[Any, Any]], Any]:
    """How rows are given: in the order of the columns that the estimator was fitted with, categories as their texts."""
    fitted = [str(one) for one in getattr(estimator, "feature_names_in_", ())]
    if not fitted or not domain.columns or domain.kind != "vector":
        return lambda rows: rows
    own = [column.name for column in domain.columns]
    if missing := [one for one in fitted if one not in own]:
        raise RequestError(f"{name} was fitted with a column {missing[0]!r}, which the data has not: it has {', '.join(own[:8])}")
    order = [own.index(one) for one in fitted]
    texts = {own[at]: np.array(values, dtype=object) for at in order if (values := domain.columns[at].values)}
    try:
        import pandas
    except ImportError:
        if texts:
            remedy = f"in which {name} takes the texts of categories: pip install pandas"
            raise RequestError(f"pandas is not installed, {remedy}") from None
        return lambda rows: rows[:, order]

    def frame(rows: np.ndarray[Any, Any]) -> Any:
        made = pandas.DataFrame(rows[:, order], columns=fitted)
        for column, values in texts.items():
            made[column] = values[made[column].round().astype(int).clip(0, len(values) - 1)]
        return made

    return frame


def _text(name: Any) -> str:
    """A class as text, whole numbers without a point."""
    return f"{name:.12g}" if isinstance(name, float | np.floating) else str(name)
