"""Build the explanation methods of a request, and list default methods that do not fit the model or the data."""

import inspect
from dataclasses import dataclass
from typing import Any

from brinell import plugins
from brinell.core.contracts import Access, Dataset, Explainer, Model, OpensModel
from brinell.core.errors import RequestError
from brinell.studies.explain.request import ExplainRequest

BLACK_BOX = ("rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap")
USUAL = (*BLACK_BOX, "grad-cam", "integrated-gradients", "smoothgrad", "gradient", "centre", "random")
"""Default methods; the study leaves out those that do not fit the model or the data."""
CONTROLS = frozenset({"centre", "random", "guided-backprop"})
"""Methods that serve as controls for others."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """An explanation method that is ready to run."""

    name: str
    """The method as the request names it."""
    plain: Explainer
    """The plug-in without a network."""
    explainer: Explainer
    """The plug-in with the network attached, if it needs one."""
    title: str
    settings: dict[str, Any]


def build_methods(request: ExplainRequest, model: Model, dataset: Dataset) -> tuple[list[Method], dict[str, str]]:
    """Build the methods of a request. Also returns the default methods that do not fit, with the reason.

    Raises:
        RequestError: a method that the request names does not fit the model or the data.
    """
    texts = dict.fromkeys(request.method or USUAL)
    methods, unfit = [], {}
    for text in texts:
        spec = plugins.parse(text)
        explainer = plugins.build("explainer", spec.name, spec.options)
        reason = _misfit(explainer, model, dataset)
        try:
            attached = attach_network(explainer, model, dataset) if not reason else explainer
        except RequestError as error:
            if request.method:
                raise
            reason, attached = str(error), explainer
        if reason and request.method:
            raise RequestError(f"method {text} cannot explain {model.name}: {reason}; leave it out or choose another method")
        if reason:
            unfit[text] = reason
        else:
            title = (inspect.getdoc(type(explainer)) or text).splitlines()[0].rstrip(".")
            methods.append(
                Method(name=text, plain=explainer, explainer=attached, title=title, settings=plugins.settings_of(explainer))
            )
    return methods, unfit


def attach_network(explainer: Explainer, model: Model, dataset: Dataset) -> Explainer:
    """Attach the network of a model to an explainer that needs one; otherwise return the explainer unchanged."""
    module = model.info.module
    return explainer.attach(module, dataset.domain) if isinstance(explainer, OpensModel) and module is not None else explainer


def _misfit(explainer: Explainer, model: Model, dataset: Dataset) -> str:
    """The reason why an explainer does not fit the model or the data; empty if it fits."""
    if dataset.domain.kind not in explainer.domains:
        return f"it explains {', '.join(sorted(explainer.domains))} inputs, and the data contain {dataset.domain.kind}s"
    if explainer.access > model.access:
        return f"it needs {explainer.access.name.lower()}, and the model provides only {model.access.name.lower()}"
    if isinstance(explainer, OpensModel) and model.info.module is None:
        return "it needs the layers of a torch module, and the model wraps none"
    if dataset.info.truth is not None and explainer.access > Access.SCORES:
        return "it follows gradients of one class for each input, and a region is explained by scores alone"
    return ""
