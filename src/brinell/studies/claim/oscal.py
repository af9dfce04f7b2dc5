"""A claim as OSCAL assessment results (NIST), version 1.1.2: each clause is an observation, each verdict a finding.

A claim has no threshold, so the only findings are whether the run was verified and whether the checks of its attacks passed.
Identifiers follow from the content, so that the same claim gives the same file.
"""

import json
import uuid
from collections.abc import Mapping

from brinell.core.version import VERSION
from brinell.studies.claim.analysis import ClaimResult

OSCAL_VERSION = "1.1.2"
NAMESPACE = "urn:brinell:claim"
SPACE = uuid.uuid5(uuid.NAMESPACE_URL, NAMESPACE)


def assessment_results(result: ClaimResult, finished: str, sources: Mapping[str, Mapping[str, str]]) -> str:
    """The claim as JSON.

    Args:
        result: the claim.
        finished: when the run was finished, with its time zone.
        sources: title and address of each source of clauses.
    """
    seed = f"{result.run_digest} {result.model_digest} {result.eps!r}"

    def identifier(name: str) -> str:
        """An identifier that follows from the claim and a name."""
        return str(uuid.uuid5(SPACE, f"{seed} {name}"))

    observations = [
        {
            "uuid": identifier(f"observation {number}"),
            "title": f"{sources[clause.source]['title']}: {clause.clause}",
            "description": clause.answer,
            "props": [
                {"name": "asks", "ns": NAMESPACE, "value": clause.asks},
                {"name": "line", "ns": NAMESPACE, "value": clause.line},
            ],
            "methods": ["TEST"],
            "types": ["finding"],
            "relevant-evidence": [{"href": sources[clause.source]["address"], "description": "the source of the clause"}],
            "collected": finished,
        }
        for number, clause in enumerate(result.clauses)
    ]
    verdicts = {
        "verified": ("The run is verified with its model and data", result.verified == "proved", result.sentences[-1]),
        "checked": ("The checks of the attacks passed", result.checks.failed == 0, f"Checks: {result.checks.verdict}."),
    }
    findings = [
        {
            "uuid": identifier(f"finding {name}"),
            "title": title,
            "description": description,
            "target": {
                "type": "objective-id",
                "target-id": f"brinell-{name}",
                "status": {"state": "satisfied" if holds else "not-satisfied"},
            },
            "related-observations": [{"observation-uuid": observation["uuid"]} for observation in observations],
        }
        for name, (title, holds, description) in verdicts.items()
    ]
    content = {
        "assessment-results": {
            "uuid": identifier("results"),
            "metadata": {
                "title": " ".join(f"Robustness of {result.model} on {result.data}".split()),
                "last-modified": finished,
                "version": result.run_digest,
                "oscal-version": OSCAL_VERSION,
            },
            "import-ap": {"href": "#", "remarks": f"the request of the run: {result.repeat[0]}"},
            "results": [
                {
                    "uuid": identifier("result"),
                    "title": f"{result.distance} distance at most {result.eps_text}",
                    "description": " ".join(result.sentences),
                    "start": finished,
                    "props": _figures(result),
                    "reviewed-controls": {"control-selections": [{"include-all": {}}]},
                    "observations": observations,
                    "findings": findings,
                    "remarks": " ".join(result.not_tested),
                }
            ],
        }
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _figures(result: ClaimResult) -> list[dict[str, str]]:
    rates = {"clean": result.clean, "robust": result.robust, "certified": result.certified}
    pairs = {
        f"{name}-{end}": getattr(rate, end)
        for name, rate in rates.items()
        if rate is not None
        for end in ("value", "low", "high")
    }
    pairs |= {"eps": result.eps, "n": result.n, "brinell": VERSION}
    return [{"name": name, "ns": NAMESPACE, "value": f"{value}"} for name, value in pairs.items() if value is not None]
