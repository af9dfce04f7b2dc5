"""Premises of a verdict: whose data and whose models were verified.

A run on the easiest samples, on labels that are the model's own answers, or on another model is a
correct run. So a verdict is worth what is known of its data and models. They are known where the
person who verifies names them, gives their digests, or where they come with Brinell or are a
published set. Otherwise they are the claim of whoever made the folder.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from brinell.core.errors import RequestError

PUBLISHED: Mapping[str, str] = {
    "a369c892c090e4c19fe29048ada80590": "the 539 handwritten digits for tests that come with Brinell",
    "fe95f1c9404e6e1f0e77b167bedbe117": "the 10,000 test images of MNIST",
    "2d6bfcbc8b8bf3b79ea18def0dec5432": "the 60,000 training images of MNIST",
    "52de79a18ea05c77ed50982e5022f071": "the 10,000 test images of CIFAR-10",
}
"""Published data sets by the digest of their content, whatever files they are read from."""
ROLES = ("model", "surrogate", "generator")
"""Roles of facts by the first letters of their keys in manifests; others are data."""
DRAWN = ("random", "stratified")
"""Selections that a seed decides."""
BUILT_IN = "digits-cnn"
"""The model that comes with Brinell."""
WARNING = (
    "a run on the easiest samples, on labels made from answers or on another model would verify too"
)


class Fact(NamedTuple):
    """Data or a model that figures come from."""

    role: str
    """data, model, surrogate, generator, or empty for a further model, whose name begins with
    its setting."""
    text: str
    """The role, and the name where it is another word."""
    digest: str
    source: str
    """What Brinell knows of it by itself; empty if nothing."""


def list_premises(
    manifests: Sequence[Mapping[str, Any]],
    roles: Collection[str],
    digests: Collection[str],
    *,
    is_open: bool = True,
) -> list[str]:
    """Sentences about the data and the models of a folder: those that are on trust first, then
    those that are known.

    Args:
        manifests: its manifest, then those of the folders in it.
        roles: `data` and `model`, as far as the person named them for this verification.
        digests: digests that the person knows.
        is_open: False where neither data nor models were opened, so that all are on trust.
    """
    # A whole manifest has no key of its own.
    facts = dict.fromkeys(fact for manifest in manifests for fact in _facts(manifest, key=""))
    digests_there = {fact.digest for fact in facts}
    if unknown := sorted(set(digests) - digests_there):
        raise RequestError(
            f"digest {unknown[0]} is that of no data and of no model of the "
            f"folder: those are {', '.join(sorted(digests_there))}"
        )

    named = "is the one that you named"
    reasons = {
        fact: "has the digest that you gave"
        if fact.digest in digests
        else named
        if fact.role in roles
        else fact.source
        for fact in facts
    }
    known = {fact: reason for fact, reason in reasons.items() if is_open and reason}
    trusted = [f"the {fact.text} (digest {fact.digest})" for fact in facts if fact not in known]
    verified = [f"the {fact.text}: {reason}" for fact, reason in known.items()]
    draws = dict.fromkeys(filter(None, map(selection_of, manifests)))
    seeds = [f"on trust: {draw}: another seed may give another figure" for draw in draws]
    advice = f"; {WARNING}: name yours, or give digests that you know" if is_open else ""
    return [
        *([f"on trust: {' and '.join(trusted)}{advice}"] if trusted else []),
        *seeds,
        *verified,
    ]


def selection_of(manifest: Mapping[str, Any]) -> str:
    """The samples of a folder where a seed drew them, which whoever made it chose; else empty."""
    data, request = manifest.get("data"), manifest.get("request") or {}
    if not isinstance(data, Mapping) or data.get("select") not in DRAWN:
        return ""
    method = {"random": "at random", "stratified": "by class"}[data["select"]]
    return (
        f"{data['n']:,} of {data['total']:,} samples, drawn {method} by seed {request.get('seed')}"
    )


def _facts(value: Any, key: str) -> Iterator[Fact]:
    """Data and models with digests in a JSON value."""
    if isinstance(value, Mapping) and isinstance(digest := value.get("digest"), str):
        # The name of a further model begins with its setting, which says its role.
        role = next(
            (role for role in ROLES if key.startswith(role)), "" if key == "more_models" else "data"
        )
        name = str(value.get("name", value.get("spec", key)))
        share = f", {value['n']:,} of them" if isinstance(value.get("n"), int) else ""
        published = f"{PUBLISHED[digest]}{share}" if role == "data" and digest in PUBLISHED else ""
        source = "comes with Brinell" if value.get("spec") == BUILT_IN else published
        yield Fact(role, " ".join(dict.fromkeys((role, name))).strip(), digest, source)

    # What stands in a list has the key of the list.
    listed = [(key, part) for part in value] if isinstance(value, list) else []
    for name, part in value.items() if isinstance(value, Mapping) else listed:
        yield from _facts(part, name)
