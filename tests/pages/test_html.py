import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from brinell.analysis.indicators import NEEDED, checks_of, not_made
from brinell.pages import html
from brinell.store.run import LAYOUT, Run

INF = np.inf
VOID = {"meta", "img", "br", "link", "input", "hr", "wbr"}


def random_breaks(n: int, seed: int, scale: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    distance = scale * rng.lognormal(size=n)
    return np.stack([np.where(rng.random(n) < 0.05, 0, distance), distance * 1.1])


class Page(HTMLParser):
    """What a browser would fetch, what a reader would see, and whether the tags are nested properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.seen: list[str] = []
        self.open: list[str] = []
        self.headers: list[dict[str, str | None]] = []
        self.images = self.figures = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.images += tag == "img"
        self.figures += tag == "svg"
        if tag == "th":
            self.headers.append(values)
        self.fetched += [values[key] or "" for key in ("src", "href", "srcset", "data", "action") if key in values]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.seen.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.seen).replace("\u2060", ""))


def check(text: str) -> Page:
    """What holds for every page."""
    page = Page(text)
    assert all(value.startswith(("data:image/png;base64,", "data:image/webp;base64,", "#")) for value in page.fetched)
    assert not re.search(r"url\(|@import|https?://", text)
    only_script_of_the_policy(text)
    assert len(re.sub(r"data:image/png;base64,[^\"]*", "", text)) < 2**20
    assert all(header.get("scope") in {"col", "row", "rowgroup"} for header in page.headers)
    assert not re.search(r"\bnan\b|\bNone\b|Undefined|\binf\b", page.text)
    return page


def only_script_of_the_policy(text: str) -> None:
    """One inline script, and the policy names its digest and nothing else that could run."""
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert text.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"


def test_one_model(make):
    breaks = {"net": random_breaks(200, 0)}
    run = make(breaks, np.arange(200) % 10, [0.0, 0.05, 0.1, 0.2], list("abcdefghij"))
    page = check(html.render(run))
    worst = np.where(breaks["net"][0] == 0, 0, breaks["net"].min(0))
    k = int((worst > 0.2).sum())
    assert f"{k} of 200" in page.text
    assert f"{100 * k / 200:.1f} %" in page.text
    assert "apgd-dlr" in page.text and "Where it breaks" in page.text and "brinell audit --data digits" in page.text
    assert "d" * 32 in page.text and "m" * 32 in page.text
    assert page.images == 36 and page.figures >= 1 + 10 + 1 + 1
    assert "Model against model" not in page.text and "apgd-ce, apgd-dlr · 2026" in page.text


def test_the_bars_of_the_stages_follow_each_other_and_fill_the_whole(make):
    breaks = {"net": random_breaks(50, 0), "other": random_breaks(50, 1)}
    run = make(breaks, np.arange(50) % 2, [0.0, 0.1], ["a", "b"])
    text = html.render(run)
    rows = Run.open(run).records()
    seconds = [float(rows.seconds[rows.attack == stage].sum()) for stage in ("apgd-ce", "apgd-dlr")]
    bars = [
        (float(x), float(width)) for x, width in re.findall(r'<rect class="bar" x="([^"]+)" width="([^"]+)" height="8"', text)
    ]
    assert bars == [
        pytest.approx((100 * sum(seconds[:index]) / sum(seconds), 100 * seconds_of_stage / sum(seconds)), abs=0.01)
        for index, seconds_of_stage in enumerate(seconds)
    ]


def test_several_models_are_compared(make):
    breaks = {
        name: random_breaks(200, seed, scale) for name, seed, scale in (("weak", 0, 0.05), ("firm", 1, 0.3), ("mid", 2, 0.12))
    }
    run = make(breaks, np.arange(200) % 4, [0.0, 0.1, 0.2], ["cat", "dog", "fox", "hen"])
    page = check(html.render(run))
    assert "Model against model" in page.text and "McNemar" in page.text
    assert "firm is the most robust at 26/255" in page.text, "where the models differ most"
    assert "mean over models" in page.text


def test_attacks_that_had_nothing_to_do_are_folded_into_a_line(make):
    path = make({"net": np.full((2, 20), 0.05)}, np.arange(20) % 2, [0.1], ["a", "b"])
    run = Run.open(path)
    run.manifest["stages"][1] |= {"label": "APGD-DLR, 30 steps", "kept_to": "if \u2264 6 % of the margin is left"}
    LAYOUT.save(run.path, run.manifest)
    page = check(html.render(path))
    stages = page.text.partition("The attacks, stage by stage")[2].partition("Do the attacks fail")[0]
    assert "1 apgd-ce" in stages and "2 APGD-DLR" not in stages
    assert "1 more stage had nothing to do" in stages and "APGD-DLR, 30 steps (if \u2264 6 % of the margin is left)" in stages


def test_a_table_carries_the_headings_of_its_columns_for_narrow_screens():
    table = "<table><thead><tr>{}</tr></thead><tbody><tr>{}</tr></tbody></table>"
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("class", "A &amp; B", "0.5 <b>x</b>", "n"))
    labelled_table = html.labelled(table.format(heads, '<th scope="row">k</th><td>1</td><td>2</td><td>3</td>'))
    assert (
        '<table class=" stack">' in labelled_table
        and '<td data-label="A &amp; B">1</td><td data-label="0.5 x">2</td>' in labelled_table
    )
    small_table = table.format(heads.partition("</th>")[0] + "</th>", "<td>1</td>")
    assert html.labelled(small_table) == small_table


def test_a_thousand_classes(make):
    names = [f"class {i} with a long name, such as those of ImageNet" for i in range(1000)]
    run = make({"net": random_breaks(2000, 0)}, np.arange(2000) % 1000, [i / 100 for i in range(4)], names, shape=(3, 16, 16))
    page = check(html.render(run))
    assert "The other 985 classes are in tables/per_class.csv" in page.text
    assert "1000 of 1000 classes have fewer than 10 samples" in page.text
    assert "too few to tell classes apart" in page.text


def test_nothing_found_and_everything_fooled(make):
    run = make({"net": np.full((2, 40), INF)}, np.arange(40) % 2, [0.1], ["a", "b"])
    page = check(html.render(run))
    assert "No adversarial input was found." in page.text
    assert "90.6–100.0 %" not in page.text and "91.2–100.0 %" in page.text
    assert page.images == 0
    run = make({"net": np.full((2, 40), 0.01), "two": np.full((2, 40), 0.01)}, np.arange(40) % 2, [0.1, 0.2], ["a", "b"])
    page = check(html.render(run))
    assert "No model is robust on a single sample" in page.text
    assert "Robust accuracy at 51/255 is 0 %: every sample has an adversarial example." in page.text


def test_every_kind_of_input(make, tmp_path):
    kinds = [("image", (3, 112, 112)), ("image", (4, 9, 9)), ("signal", (2, 300)), ("vector", (12,)), ("video", (3, 5, 20, 30))]
    for kind, shape in kinds:
        run = make({"net": random_breaks(40, 0)}, np.arange(40) % 2, [0.1, 0.2], ["a", "b"], kind=kind, shape=shape)
        page = check(html.render(run))
        pictures = page.text.count("perturbation×") + page.text.count("perturbation ×") + page.text.count("perturbationtouched:")
        assert pictures >= 3 and ("touched: " in page.text) == (kind == "signal")
        assert (page.images > 0) == (kind in {"image", "video"})


def recorded_checks(synthetic, *failed):
    """The checks that a manifest keeps of one model."""
    return [{"code": code, "passed": code not in failed, "text": f"words about {code}"} for code in synthetic.CODES]


def test_a_figure_whose_checks_passed_lists_them_and_nothing_else(make):
    page = check(html.render(make({"net": random_breaks(60, 0)}, np.arange(60) % 3, [0.1, 9.0], ["a", "b", "c"])))
    assert page.text.count("passed") >= 10 and "could not be made" not in page.text and "Warning." not in page.text
    assert "incomplete-optimisation" in page.text


def test_a_figure_whose_checks_failed_is_marked(make, synthetic):
    checks = {"net": recorded_checks(synthetic, "zero-gradients", "misleading-gradients")}
    probes = {"net": {"forwards": 1234, "backwards": 56}}
    page = check(
        html.render(
            make({"net": random_breaks(60, 0)}, np.arange(60) % 3, [0.1, 9], ["a", "b", "c"], checks=checks, probes=probes)
        )
    )
    cards = page.text.partition("Clean accuracy")[2]
    card = cards[cards.rindex("Robust accuracy at", 0, cards.index("2 checks failed")) :][:200]
    assert "zero-gradients" not in card
    assert page.text.count("2 checks failed (zero-gradients, misleading-gradients). The section Checks") == 1
    assert "words about zero-gradients" in page.text and "1 234 forwards and 56 backwards" in page.text


def checks_section(page: Page) -> str:
    return page.text.partition("Gradient-masking checks ")[2].partition("Accuracy and drop per class")[0]


def test_the_page_begins_with_the_verdict(make, synthetic):
    breaks = {"net": random_breaks(60, 0)}
    blind = {"code": "gradient-mismatch", "passed": False, "text": "words", "cause": "there is no gradient in channel 2"}
    checks = {"net": [blind if entry["code"] == blind["code"] else entry for entry in recorded_checks(synthetic)]}
    page = check(html.render(make(breaks, np.arange(60) % 3, [0.1], ["a", "b", "c"], checks=checks)))
    opening = (
        r"Robust accuracy at \S+ may be well below \d+\.\d %: there is no gradient in channel 2\.\s*What to do: Read the failed"
    )
    assert re.search(opening, page.text)


def test_of_several_models_each_is_marked_and_believed_alone(make, synthetic):
    breaks = {"good": random_breaks(60, 0), "bad": random_breaks(60, 1, 0.5)}
    checks = {"good": recorded_checks(synthetic), "bad": recorded_checks(synthetic, "answers-by-batch")}
    page = check(html.render(make(breaks, np.arange(60) % 3, [0.1], ["a", "b", "c"], checks=checks)))
    section = checks_section(page)
    assert re.search(r"passed good: Robust accuracy at \S+ is at most [^.]+\.\d %: .* bad: Do not rely on", section)
    assert "bad: 1 check failed" in page.text and "good: 1 check failed" not in page.text
    assert "bad is the most robust" in page.text and "Not all of its checks passed." in page.text
    assert page.text.count("words about answers-by-batch") == 1


def test_what_went_around_the_gradient_is_listed_with_what_it_gained(make):
    """Of 40 the first attack breaks 10; the second, along the mended gradient, 5 of the 30 that are left."""
    distances = np.full((2, 40), INF)
    distances[0, :10] = distances[1, :15] = 0.05
    repairs = {"net": {"forwards": 1, "backwards": 1, "way": "the identity for module 0", "disagreement": 0.01}}
    run = Run.open(make({"net": distances}, np.arange(40) % 2, [0.1], ["a", "b"], repairs=repairs))
    run.manifest["stages"][1] |= {"gradient": "repaired", "label": "APGD around it"}
    LAYOUT.save(run.path, run.manifest)
    page = check(html.render(run.path))
    assert re.search(
        r"the identity for module 0 ?APGD around it\. Finite differences disagree by 0\.01, [^.]+\. ?30.samples ?5 ",
        checks_section(page),
    )


def test_a_run_without_checks_opens(make):
    run = make({"net": random_breaks(60, 0)}, np.arange(60) % 3, [0.1], ["a", "b", "c"])
    stored_run = Run.open(run)
    del stored_run.manifest["checks"]
    LAYOUT.save(stored_run.path, stored_run.manifest)
    page = check(html.render(run))
    missing = not_made(checks_of(stored_run.records(), stored_run.manifest, "net"))
    assert {check.code for check in missing} == NEEDED
    assert "No checks were made." in page.text and "the run has not come to it yet" in page.text


def test_names_are_escaped(make):
    names = ["<script>alert(1)</script>", "a&b"]
    warning = {"code": "odd", "model": None, "text": "beware of <b>markup</b>"}
    run = make({'"><img src=x>': random_breaks(40, 0)}, np.arange(40) % 2, [0.1], names, warnings=[warning])
    page = check(html.render(run))
    assert "beware of <b>markup</b>" in page.text


def test_write_puts_page_and_tables_into_the_run(make):
    breaks = {name: random_breaks(60, seed) for seed, name in enumerate(("one", "two"))}
    run = make(breaks, np.arange(60) % 3, [0.0, 0.1], ["a", "b", "c"])
    assert html.write(run) == run / "report.html"
    assert (run / "report.html").read_text(encoding="utf-8") == html.render(run)
    table_lines = {path.name: path.read_text().splitlines() for path in (run / "tables").iterdir()}
    assert set(table_lines) == {
        "robust_accuracy.csv",
        "per_class.csv",
        "total_drop.csv",
        "stages.csv",
        "checks.csv",
        "distributions.csv",
        "comparison.csv",
    }
    assert len(table_lines["per_class.csv"]) == 1 + 2 * 3 * 2
    assert table_lines["robust_accuracy.csv"][0] == "model,what,eps,eps_text,value,low,high,k,n,missing"
