"""Standing of everything that a folder says: recomputed by a verifier, bounded by something that is recomputed, or claimed.

`brinell verify`, the pages, the JSON of `audit` and docs/reference/trust.md read these tables. A column or a key that is in none
of them fails a test, so nothing can be shown whose standing nobody has decided.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How far a value of a folder can be trusted after a verification."""

    RECOMPUTED = "recomputed"
    """Found anew, for all rows or, where `how` says so, for the drawn samples."""
    BOUNDED = "bounded"
    """Held between limits that are found anew."""
    CLAIMED = "claimed"
    """Taken from whoever made the folder."""


class Standing(NamedTuple):
    """The standing of a value."""

    kind: Kind
    how: str
    """How it is recomputed, what bounds it, or why it is a claim."""


def _recomputed(how: str) -> Standing:
    return Standing(Kind.RECOMPUTED, how)


def _bounded(by: str) -> Standing:
    return Standing(Kind.BOUNDED, by)


def _claimed(reason: str) -> Standing:
    return Standing(Kind.CLAIMED, reason)


REPLAY = "replay of the drawn samples"
STORED = "the model's answer to the stored input"
RUN_COLUMNS: Mapping[str, Standing] = {
    "model": _recomputed("request"),
    "sample_id": _recomputed("request and data"),
    "label": _recomputed("data"),
    "target": _recomputed("request, data and the model's answer"),
    "clean_pred": _recomputed("the model's answer to every clean input"),
    "clean_confidence": _recomputed("the model's answer to every clean input"),
    "attack": _recomputed("request"),
    "distance": _recomputed("request"),
    "unit": _recomputed("request, and the recommendation that it names"),
    "attacked": _recomputed("request and the rows of the stages before"),
    "broken": _recomputed(STORED),
    "outcome": _recomputed(
        "the first check and the stored inputs, which make every success certain; of robust samples, replay of the drawn ones"
    ),
    "adv_pred": _recomputed(STORED),
    "adv_confidence": _recomputed(STORED),
    "adv_margin": _recomputed(STORED),
    "margin": _recomputed(REPLAY + "; of clean rows, the model's answer to every clean input"),
    "linf": _recomputed("the stored input"),
    "l2": _recomputed("the stored input"),
    "l1": _recomputed("the stored input"),
    "l0": _recomputed("the stored input"),
    "quantised_pred": _recomputed(STORED),
    "quantised_within": _recomputed(STORED),
    "forwards": _recomputed(REPLAY + "; the plan bounds the others"),
    "backwards": _recomputed(REPLAY + "; the plan bounds the others"),
    "judge_forwards": _recomputed(REPLAY),
    "surrogate_passes": _recomputed(REPLAY),
    "queries_to_success": _recomputed(REPLAY + "; the row's forwards bound the others"),
    "seconds": _claimed("time on another machine"),
}
"""The columns of the rows of a run."""

SHARED_KEYS: Mapping[str, Standing] = {
    "verb": _recomputed("the command that reads the folder"),
    "schema": _recomputed("the command that reads the folder"),
    "files": _recomputed("the files"),
    "brinell": _claimed("the version that wrote the folder; tables and page are compared only where it is this one"),
    "revision": _claimed("the commit of the source"),
    "state": _recomputed("the rows, of which none is missing"),
    "created": _claimed("time on another machine"),
    "finished": _claimed("time on another machine"),
    "command": _claimed("the command line; the request is what counts"),
    "request": _recomputed("the file of the request"),
    "made_here": _claimed("a mark for its maker alone"),
    "versions": _claimed("the maker's libraries"),
    "hardware": _claimed("the maker's machine"),
    "seconds": _claimed("time on another machine"),
}
"""Keys of the manifests of all folders."""
RUN_KEYS: Mapping[str, Standing] = {
    **SHARED_KEYS,
    "seed": _recomputed("request"),
    "data": _recomputed("the data that the verifier opens"),
    "models": _recomputed("the models that the verifier opens"),
    "surrogates": _recomputed("the surrogates that the verifier opens"),
    "criterion": _recomputed("request"),
    "distance": _recomputed("request"),
    "eps": _recomputed("request"),
    "eps_text": _recomputed("request"),
    "recommended": _recomputed("the recommendation that the request names"),
    "stages": _recomputed("request and models"),
    "skipped": _recomputed("request and models"),
    "warnings": _recomputed("checks and alarms, found anew from the model and the rows of all samples"),
    "checks": _recomputed("every check, made anew"),
    "probes": _bounded("at least what the checks cost when they are made anew; a run that was resumed may have paid more"),
    "answers": _recomputed("the model's answers to clean inputs"),
    "repairs": _recomputed("the repair, found anew"),
    "remarks": _claimed("remarks of attacks, which may be about samples that were not drawn"),
    "extras": _recomputed("the attack on the drawn samples"),
    "failed": _bounded("every failure on a clean input is tried again; of stages, those of the drawn samples"),
    "traffic": _claimed("requests to a server"),
}
"""Keys of the manifest of a run."""
RUN_FILES: Mapping[str, Standing] = {
    "run.toml": _recomputed("compared with the request in the manifest; every other figure follows from it"),
    "records/part-*.parquet": _recomputed("see the columns"),
    "arrays/part-*.safetensors": _recomputed("every input is judged again; extras of attacks for the drawn samples"),
    "arrays/clean-*.safetensors": _recomputed("compared with the data"),
    "tables/*.csv": _recomputed("written again from the records"),
    "report.html": _recomputed("written again from the records"),
    "manifest.json.sig": _recomputed("ssh-keygen, with --signed-by"),
}
"""Files of a run."""


def claimed_names(*tables: Mapping[str, Standing]) -> list[str]:
    """The names in tables that are claimed, sorted."""
    return sorted({name for table in tables for name, standing in table.items() if standing.kind == Kind.CLAIMED})
