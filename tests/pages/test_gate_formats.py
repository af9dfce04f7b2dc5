import json
from xml.etree import ElementTree

from brinell.analysis.gate import Check, GateResult
from brinell.pages.gate import junit, sarif

ROBUST = {"code": "robust-accuracy", "passed": False, "required": 0.6}
RESULT = GateResult(
    run="runs/a b",
    passed=False,
    checks=[
        Check(code="clean-accuracy", name="clean accuracy", passed=True, observed=0.9, low=0.8, required=0.7, text="fine"),
        Check(**ROBUST, name="robust accuracy at eps 8/255", observed=0.5, low=0.4, text='40 < 60 & "\x07"'),
        Check(**ROBUST, name="robust accuracy at eps 1/255", observed=None, low=None, text="missing"),
    ],
)


def test_junit_has_one_case_per_check():
    root = ElementTree.fromstring(junit(RESULT).encode())
    suite = root.find("testsuite")
    assert suite is not None and (suite.get("tests"), suite.get("failures")) == ("3", "2")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [check.name for check in RESULT.checks]
    assert [case.find("failure") is not None for case in cases] == [False, True, True]
    assert cases[1].find("failure").get("message") == '40 < 60 & "\ufffd"'


def test_sarif_has_one_result_per_failure():
    log = json.loads(sarif(RESULT))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["brinell/robust-accuracy"]
    assert len(run["results"]) == 2
    for finding in run["results"]:
        assert rules[finding["ruleIndex"]]["id"] == finding["ruleId"]
        assert finding["level"] == "error" and finding["message"]["text"]
        assert finding["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "runs/a%20b/run.toml"
    fingerprints = {json.dumps(finding["partialFingerprints"]) for finding in run["results"]}
    assert len(fingerprints) == 2


def test_a_passed_gate_has_no_findings():
    passed = RESULT.model_copy(update={"passed": True, "checks": RESULT.checks[:1]})
    assert json.loads(sarif(passed))["runs"][0]["results"] == []
