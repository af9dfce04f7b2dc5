import numpy as np

from brinell.pages.gallery import changes

DOMAIN = {"columns": [["age", 0.0, 100.0, False, []], ["<b>", -1.0, 1.0, False, []], ["job", 0.0, 1.0, True, ["cook"]]]}


def test_columns_that_moved_in_their_own_units_the_farthest_first():
    listing = changes(DOMAIN, np.array([0.2, 0.5, 3.0]), np.array([0.25, 0.25, 3.0]))
    assert listing["clean"] == '<dl class="changes"><dt>&lt;b&gt;</dt><dd>0</dd><dt>age</dt><dd>20</dd></dl>'
    assert "<dd>-0.5</dd>" in listing["perturbation"] and "<dd>+5</dd>" in listing["perturbation"]
    assert "<dd>-0.5</dd>" in listing["adversarial"] and "<dd>25</dd>" in listing["adversarial"]


def test_only_a_few_are_listed():
    domain = {"columns": [[str(at), 0.0, 1.0, False, []] for at in range(9)]}
    listing = changes(domain, np.zeros(9), np.arange(9) / 9)
    assert listing["clean"].count("<dd>") == 5 and listing["clean"].endswith("<dt>and 3 more</dt></dl>")
    assert "<dt>8</dt>" in listing["clean"]
