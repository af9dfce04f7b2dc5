"""A gate's verdict as SARIF 2.1.0, which code hosts show as findings."""

import hashlib
import json
from urllib.parse import quote

from brinell.analysis.results import Check, GateResult
from brinell.core.version import VERSION

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(result: GateResult) -> str:
    """SARIF JSON with one result per failed check, located at the run's `run.toml`."""
    failed = [check for check in result.checks if check.passed is False]
    rules: dict[str, str] = {}
    for check in failed:
        rules.setdefault(f"brinell/{check.code}", check.name)
    driver = {
        "name": "Brinell",
        "version": VERSION,
        "rules": [{"id": rule, "name": rule, "shortDescription": {"text": name}} for rule, name in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(check, list(rules).index(f"brinell/{check.code}"), result.run) for check in failed],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _result(check: Check, index: int, run: str) -> dict[str, object]:
    uri = quote(f"{run.rstrip('/')}/run.toml")
    # A fingerprint lets a code host see that the finding of the next run is the same one.
    fingerprint = hashlib.sha256(check.name.encode()).hexdigest()[:32]
    return {
        "ruleId": f"brinell/{check.code}",
        "ruleIndex": index,
        "level": "error",
        "message": {"text": f"{check.name}: {check.why}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"brinellCheck/v1": fingerprint},
        "properties": {"observed": check.observed, "low": check.low, "required": check.required},
    }
