"""A gate's verdict as JUnit XML, which CI systems show as tests."""

import re
from xml.etree import ElementTree

from brinell.analysis.gate import GateResult

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
