from xml.etree import ElementTree

from brinell.analysis.gate import Check, GateResult
from brinell.studies.gate.formats import junit

ROBUST = {"code": "robust", "passed": False, "required": 0.6}
RESULT = GateResult(
    run="runs/a b",
    passed=False,
    checks=[
        Check(code="clean-accuracy", name="clean accuracy", passed=True, observed=0.9, low=0.8, required=0.7, text="fine"),
        Check(**ROBUST, name="robust accuracy at eps 8/255", observed=0.5, low=0.4, text='40 < 60 & "\x07"'),
        Check(**ROBUST, name="robust accuracy at eps 1/255", observed=None, low=None, text="missing"),
        Check(code="checks", name="checks", passed=None, observed=None, low=None, required=None, text="not asked"),
        Check(code="drop", name="drop of a class", passed=False, observed=0.2, low=0.1, required=0.3, text="dropped"),
    ],
)


def test_junit_has_one_case_per_check():
    text = junit(RESULT)
    root = ElementTree.fromstring(text.encode())
    (suite,) = root.findall("testsuite")
    counts = {"tests": "5", "failures": "3", "errors": "0", "skipped": "1", "time": "0"}
    assert (
        text.startswith('<?xml version="1.0" encoding="utf-8"?>\n<testsuites') and suite.attrib == {"name": "runs/a b"} | counts
    )
    assert root.attrib == {"name": "brinell gate", "tests": "5", "failures": "3"}
    cases = suite.findall("testcase")
    assert [(case.get("name"), case.get("classname")) for case in cases] == [(c.name, "brinell.gate") for c in RESULT.checks]
    assert [(part.tag, part.get("message"), part.text) for case in cases for part in case] == [
        ("system-out", None, "fine"),
        ("failure", '40 < 60 & "\ufffd"', '40 < 60 & "\ufffd"'),
        ("failure", "missing", "missing"),
        ("skipped", "not asked", None),
        ("failure", "dropped", "dropped"),
    ]
