"""The figures of a run as the tools know them: names, values and steps, and texts beside them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from brinell.analysis.results import ModelResult, Rate


@dataclass(frozen=True)
class Metric:
    """One value of one model."""

    name: str
    step: int
    """Position of the eps among those of the run, counted from 0; 0 for what belongs to no eps."""
    value: float


def metrics(result: ModelResult) -> list[Metric]:
    """Every figure of a model that is a number. What is unknown is left out and no zero.

    Series over eps have the same name at each step: `eps` tells which one a step is.
    """
    found = [*_rate("clean_accuracy", 0, result.clean_accuracy)]
    for step, rate in enumerate(result.robust_accuracy):
        found.append(Metric("eps", step, rate.eps))
        found += _rate("robust_accuracy", step, rate)
        classes = [one.robust[step].value for one in result.per_class]
        known = [value for value in classes if value is not None]
        if known:
            found.append(Metric("worst_class_accuracy", step, min(known)))
        for one in result.per_class:
            if (value := one.robust[step].value) is not None:
                found.append(Metric(f"robust_accuracy_of_class/{one.name}", step, value))
    for step, rate in enumerate(result.quantised_robust_accuracy or []):
        found += _rate("quantised_robust_accuracy", step, rate)
    states = [check.passed for check in result.checks]
    counts = {"passed": states.count(True), "failed": states.count(False), "not_made": states.count(None)}
    found += [Metric(f"checks/{name}", 0, float(count)) for name, count in counts.items()]
    found += [
        Metric(f"cost/{kind}", 0, float(sum(getattr(one, kind) for one in result.stages))) for kind in ("forwards", "backwards")
    ]
    if result.seconds is not None:
        found.append(Metric("cost/seconds", 0, result.seconds))
    return found


def _rate(name: str, step: int, rate: Rate) -> Iterator[Metric]:
    if rate.value is None or rate.low is None or rate.high is None:
        return
    yield Metric(name, step, rate.value)
    yield Metric(f"{name}_low", step, rate.low)
    yield Metric(f"{name}_high", step, rate.high)


def settings(manifest: Mapping[str, Any], result: ModelResult) -> dict[str, str]:
    """What was asked for, in short texts by name."""
    request = {key: value for key, value in manifest["request"].items() if value not in (None, ())}
    asked = {key: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value) for key, value in request.items()}
    return asked | {
        "model": result.model,
        "data": str(manifest["data"]["name"]),
        "data_digest": str(manifest["data"]["digest"]),
        "eps": ", ".join(result.eps_text),
        "n": str(result.n),
        "criterion": result.criterion,
        "brinell": str(manifest["brinell"]),
    }
