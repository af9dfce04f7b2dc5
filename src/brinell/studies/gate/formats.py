"""A gate's verdict as JUnit XML, which CI systems show as tests, and as SARIF 2.1.0, which code hosts show as findings."""

import hashlib
import json
import re
from urllib.parse import quote
from xml.etree import ElementTree

from brinell.analysis.gate import Check, GateResult
from brinell.core.version import VERSION

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: GateResult) -> str:
    """JUnit XML with one test case per check; one that could not be made is a skipped test."""
    failed = [check for check in result.checks if check.passed is False]
    not_made = [check for check in result.checks if check.passed is None]
    counts: dict[str, str] = {
        "tests": str(len(result.checks)),
        "failures": str(len(failed)),
        "errors": "0",
        "skipped": str(len(not_made)),
        "time": "0",
    }
    root = ElementTree.Element("testsuites", name="brinell gate", tests=counts["tests"], failures=counts["failures"])
    suite = ElementTree.SubElement(root, "testsuite", {"name": _legal(result.run), **counts})
    for check in result.checks:
        case = ElementTree.SubElement(suite, "testcase", classname="brinell.gate", name=_legal(check.name), time="0")
        text = _legal(check.text)
        if check.passed:
            ElementTree.SubElement(case, "system-out").text = text
        elif check.passed is None:
            ElementTree.SubElement(case, "skipped", message=text)
        else:
            ElementTree.SubElement(case, "failure", message=text, type="gate").text = text
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _legal(text: str) -> str:
    """`text` without the characters that XML 1.0 has no way to write."""
    return _FORBIDDEN.sub("\ufffd", text)


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
        "message": {"text": f"{check.name}: {check.text}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"brinellCheck/v1": fingerprint},
        "properties": {"observed": check.observed, "low": check.low, "required": check.required},
    }
