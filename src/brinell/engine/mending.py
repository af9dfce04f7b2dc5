"""All that is wrong with the data and the models of a request, in one message.

An error that knows the right words in place of wrong ones (`instead`) is mended, and what comes
after it is found, too, so that nobody meets one mistake after another.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from brinell.core.errors import BrinellError, RequestError
from brinell.engine.class_counts import check_classes
from brinell.engine.plan import model_opener
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.engine.sources import open_data
from brinell.engine.spelling import expand_spec

MOST_ROUNDS = 6
"""Times that what is mended is looked at again."""


def all_mistakes(
    error: BrinellError, request: BaseRequest
) -> tuple[list[BrinellError], Mapping[str, Any]]:
    """An error and those that would come after it, and the settings in which all of them are mended;
    none where one cannot be.
    """
    errors, settings = [error], request.model_dump()
    specs = [text for value in _specs(settings).values() for text in value]
    if not settings.get("data") or any(text.startswith(f"{IN_MEMORY}:") for text in specs):
        return errors, {}

    for _ in range(MOST_ROUNDS):
        new = list(_errors_of(settings))
        known = {str(known.problem) for known in errors}
        errors += [entry for entry in new if str(entry.problem) not in known]
        remedies = [entry.instead for entry in new if entry.instead is not None]
        changed = _replaced(settings, remedies)
        if changed == settings:
            break
        settings = changed
    is_mended = not new and all(entry.instead is not None for entry in errors)
    return errors, settings if is_mended else {}


def _specs(settings: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The specs of data and models among settings, by name."""
    values = {name: settings.get(name) or () for name in ("data", "model")}
    return {name: (v,) if isinstance(v, str) else tuple(v) for name, v in values.items()}


def _errors_of(settings: Mapping[str, Any]) -> Iterator[BrinellError]:
    """What is wrong with the data, and with each model as far as the data let it be opened."""
    specs, dataset = _specs(settings), None
    for text in specs["data"]:
        try:
            dataset = open_data(text, truth=True)
        except BrinellError as error:
            yield error

    for text in specs["model"]:
        try:
            if dataset is None:
                expand_spec("model", text)
            else:
                labels = np.asarray(dataset.labels(), dtype=np.int64)
                check_classes(model_opener(text, dataset)(), labels, dataset)
        except BrinellError as error:
            yield error


def _replaced(settings: Mapping[str, Any], remedies: list[tuple[str, str]]) -> dict[str, Any]:
    """Settings whose specs have the right words in place of wrong ones."""
    changed = dict(settings)
    for name, texts in _specs(settings).items():
        for wrong, right in remedies:
            texts = tuple(text.replace(wrong, right) for text in texts)
        if texts:
            changed[name] = texts[0] if isinstance(settings[name], str) else texts
    return changed


def joined(errors: list[BrinellError], command: str) -> RequestError:
    """One error that lists several, with the line that mends them all, if there is one."""
    parts = [f"({number}) {error}" for number, error in enumerate(errors, 1)]
    remedy = f"type {command}" if command else ""
    return RequestError(f"{len(errors)} mistakes: {'; '.join(parts)}", remedy=remedy)
