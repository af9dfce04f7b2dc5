"""The methods that a request asks for, ready to be asked, and those that do not fit the model or the data."""

import inspect
from dataclasses import dataclass
from typing import Any

from brinell import plugins
from brinell.core.contracts import Dataset, Explainer, Model, OpensModel
from brinell.core.errors import RequestError
from brinell.studies.explain.request import ExplainRequest

BLACK_BOX = ("rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap")
USUAL = (*BLACK_BOX, "grad-cam", "integrated-gradients", "smoothgrad", "gradient", "centre", "random")
"""The methods that are tried where none is named, as far as they fit."""
CONTROLS = frozenset({"centre", "random", "guided-backprop"})
"""Methods against which others are held."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method, ready to be asked."""

    name: str
    """As it was asked for."""
    plain: Explainer
    """The plug-in, before it is handed a network."""
    explainer: Explainer
    """The same with the network in its hands, where it asks for it."""
    title: str
    settings: dict[str, Any]


def methods_of(request: ExplainRequest, model: Model, dataset: Dataset) -> tuple[list[Method], dict[str, str]]:
    """The methods asked for, ready, and of the usual ones those that do not fit, with the reason.

    Raises:
        RequestError: a method that was named does not fit the model or the data.
    """
    named = dict.fromkeys(request.method or USUAL)
    methods, unfit = [], {}
    for text in named:
        spec = plugins.parse(text)
        one = plugins.build("explainer", spec.name, spec.options)
        reason = _misfit(one, model, dataset)
        try:
            ready = opened(one, model, dataset) if not reason else one
        except RequestError as error:
            if request.method:
                raise
            reason, ready = str(error), one
        if reason and request.method:
            raise RequestError(f"method {text} cannot explain {model.name}: {reason}; leave it out, or name another")
        if reason:
            unfit[text] = reason
        else:
            title = (inspect.getdoc(type(one)) or text).splitlines()[0].rstrip(".")
            methods.append(Method(name=text, plain=one, explainer=ready, title=title, settings=plugins.written(one)))
    return methods, unfit


def opened(explainer: Explainer, model: Model, dataset: Dataset) -> Explainer:
    """The explainer with the network in its hands, where it asks for it."""
    module = model.info.module
    return explainer.opened(module, dataset.domain) if isinstance(explainer, OpensModel) and module is not None else explainer


def _misfit(explainer: Explainer, model: Model, dataset: Dataset) -> str:
    if dataset.domain.kind not in explainer.domains:
        return f"it is for {', '.join(sorted(explainer.domains))} inputs, and the data hold {dataset.domain.kind}s"
    if explainer.access > model.access:
        return f"it needs {explainer.access.name.lower()}, and the model gives {model.access.name.lower()} only"
    if isinstance(explainer, OpensModel) and model.info.module is None:
        return "it needs the layers of a torch module, and the model has none inside"
    return ""
