"""Pages in a real browser: nothing is cut off, values by pointer, keys and touch, tables that sort and save.

Each rule of `brinell.testing.pages` has a page that breaks it, and audits of random size keep them all.
"""

import random
import re

import numpy as np
import pytest

import brinell
from _browser import ALL_VIEWS, check_everywhere, chromium, open_page
from brinell.pages import html
from brinell.testing.pages import faults_in

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EPS = [i / 40 for i in range(9)]
CLASSES = ["=1+1", "+dog", "great white shark, Carcharodon carcharias", "hen", *"efghij"]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def distances(n: int, seed: int, scale: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    distance = scale * rng.lognormal(size=n)
    return np.stack([np.where(rng.random(n) < 0.05, 0, distance * 1.2), distance])


@pytest.fixture
def single_page(make):
    return html.write(make({"net": distances(120, 0, 0.1)}, np.arange(120) % 10, EPS, CLASSES))


@pytest.fixture
def three(make):
    """Of three models two break at the same distances, so that their curves coincide."""
    equal_distances = distances(120, 1, 0.12)
    return html.write(
        make(
            {"weak": distances(120, 0, 0.05), "firm": equal_distances, "twin": equal_distances}, np.arange(120) % 10, EPS, CLASSES
        )
    )


def test_one_model_everywhere(browser, single_page):
    check_everywhere(browser, single_page, ALL_VIEWS)


def test_seven_models_with_long_names_everywhere(browser, make):
    breaks = {f"a-model-with-a-rather-long-name-{i}": distances(60, i, 0.05 + 0.03 * i) for i in range(7)}
    check_everywhere(browser, html.write(make(breaks, np.arange(60) % 4, [i / 510 for i in range(9)], CLASSES[:4])))


def test_signals_everywhere(browser, make):
    run = make({"net": distances(40, 0, 0.1)}, np.arange(40) % 2, [0.1, 0.2], ["a", "b"], kind="signal", shape=(2, 300))
    check_everywhere(browser, html.write(run))


def test_curves_that_coincide_can_both_be_seen(browser, three):
    with open_page(browser, three) as tab:
        drawn_marks = tab.evaluate(
            """[...document.querySelectorAll("#verdict svg.large .line")].map(line => {
                const style = getComputedStyle(line);
                return [line.getAttribute("points"), style.stroke, style.strokeDasharray];
            })"""
        )
    assert len(drawn_marks) == 3 and drawn_marks[1][0] == drawn_marks[2][0], "the twins have one curve"
    assert drawn_marks[1][1] != drawn_marks[2][1] and drawn_marks[1][2] != drawn_marks[2][2]
    assert drawn_marks[2][2] != "none", "what lies on top has gaps through which the other shows"


def test_values_by_pointer_keys_and_touch(browser, single_page):
    with open_page(browser, single_page, has_touch=True) as tab:
        figure = tab.locator("#verdict svg.large")
        marks = figure.locator(".dot")
        assert marks.count() == 9 and figure.locator("title").count() == 0, "the box takes the place of the browser's own"
        marks.nth(4).hover()
        assert tab.locator(".tip").inner_text().startswith("net, eps 0.1: ")
        tab.mouse.move(5, 5)
        assert tab.locator(".tip").is_hidden()
        figure.focus()
        tab.keyboard.press("Home")
        first = tab.locator(".tip").inner_text()
        tab.keyboard.press("ArrowRight")
        assert first.startswith("net, eps 0: ") and tab.locator(".tip").inner_text().startswith("net, eps 0.025: ")
        tab.keyboard.press("Escape")
        assert tab.locator(".tip").is_hidden()
        marks.nth(8).tap()
        assert tab.locator(".tip").inner_text().startswith("net, eps 0.2: ")
        tab.locator(".heat td").first.tap()
        assert re.search(r"\d+.of.\d+$", tab.locator(".tip").inner_text())


def test_at_one_budget_all_models_are_told(browser, three):
    with open_page(browser, three) as tab:
        tab.locator("#verdict svg.large").focus()
        tab.keyboard.press("End")
        assert [line.partition(",")[0] for line in tab.locator(".tip").inner_text().splitlines()] == ["weak", "firm", "twin"]


def column(tab, table: str, column_index: int) -> list[str]:
    return tab.locator(f"{table} tbody tr > :nth-child({column_index})").evaluate_all(
        'all => all.map(one => one.firstChild?.textContent ?? "")'
    )


def test_tables_sort(browser, single_page):
    with open_page(browser, single_page) as tab:
        heat = ".heat:not(.plain)"
        head = tab.locator(f"{heat} thead th").nth(3)
        head.locator("button").click()
        values = [float(text) for text in column(tab, heat, 4)]
        assert head.get_attribute("aria-sort") == "ascending" and values == sorted(values) and values[0] < values[-1]
        head.locator("button").click()
        assert [float(text) for text in column(tab, heat, 4)] == values[::-1]
        tab.locator("#stages thead th button").nth(3).click()
        forwards = [int(re.sub(r"\D", "", text)) for text in column(tab, "#stages .stages", 4) if text.strip()]
        assert forwards == sorted(forwards) and len(forwards) == 2
        tab.locator("#study").evaluate("one => one.open = true")
        tab.locator("#study thead th button").nth(1).click()
        assert column(tab, "#study table", 1)[-1] == "overall", "totals stay where they are"


def test_tables_are_saved_as_csv_without_formulas(browser, single_page):
    with open_page(browser, single_page) as tab:
        with tab.expect_download() as waited:
            tab.locator("#classes .csv").first.click()
        text = waited.value.path().read_text(encoding="utf-8-sig")
        name = waited.value.suggested_filename
    head, *rows = text.splitlines()
    assert name == "net-robust-accuracy-class-by-budget.csv"
    assert head.startswith('class,"class, in detail",clean,"clean, in detail",') and len(rows) == 10
    names = {row.split(",")[0] for row in rows}
    assert {"'=1+1", "'+dog", "hen"} <= names and not names & {"=1+1", "+dog"}
    assert all(re.fullmatch(r"\d+", row.rsplit(",", 2)[1]) for row in rows)
    assert any(row.startswith('"great white shark, Carcharo') for row in rows)


def test_without_scripts_everything_reads(browser, single_page):
    with open_page(browser, single_page, java_script_enabled=False) as tab:
        assert tab.locator(".csv").count() == 0 and tab.locator("#verdict .dot title").count() == 9
        tab.locator("summary").first.click()
        assert tab.locator(".grid-figures svg").first.is_visible()
        tab.get_by_text("Provenance", exact=True).last.click()
        text = tab.inner_text("main")
    assert "Clean accuracy" in text and "brinell audit --data digits" in text


def test_on_paper_what_is_folded_is_there_and_colours_are_light(browser, single_page):
    with open_page(browser, single_page, color_scheme="dark") as tab:
        tab.emulate_media(media="print")
        assert tab.locator("#study table").is_visible() and tab.locator(".tools").first.is_hidden()
        assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(26, 28, 31)"


FRAME = '<!doctype html><html lang="en"><body style="margin:0"><main>{before}<p data-answer>{answer}</p>{after}</main></html>'
SCROLL = '<div class="scroll" aria-label="T" style="overflow-x:auto">'
TALL = '<div style="height:{}px"></div>'
LABEL = (
    '<svg class="figure" width="{}" height="20" aria-label="F" style="font:10px serif"><text x="4" y="15">a label</text>{}</svg>'
)


def test_each_rule_has_a_page_that_breaks_it(browser, tmp_path):
    def faults(before: str, after: str, answer: str = "The result.") -> str:
        page = tmp_path / "page.html"
        page.write_text(FRAME.format(before=before, after=after, answer=answer), encoding="utf-8")
        return "; ".join(faults_in(browser, page))

    folded = f"<details><summary>More</summary>{TALL.format(9000)}</details>"
    wide_table = f'{SCROLL}<table class="many" style="width:3000px"><tr><td>1</td></tr></table></div>'
    assert faults("", folded + wide_table + LABEL.format(90, '<text x="64" y="15">0</text>')) == ""
    assert "must" in faults("", "", answer="")
    missed = {
        fault: faults(before, after)
        for before, after, fault in (
            (TALL.format(870), "", "beyond 900"),
            (TALL.format(1390), "", "beyond 1400"),
            ("", TALL.format(5000), "above 5000"),
            ("", "<p data-answer>Another result.</p>", "2 elements hold the result"),
            ("", '<div style="width:1400px">x</div>', 'at 1280 pixels <div> "x" is wider'),
            ("", '<div style="overflow:hidden"><p style="width:500px">x</p></div>', 'at 390 pixels <p> "x" is wider'),
            ("", f'{SCROLL}<p style="width:1300px">x</p></div>', "T (1300 in 1280) runs off"),
            ("", LABEL.format(20, ""), '"a label" leaves its figure: F, the font at hand'),
            ("", LABEL.format(60, ""), '"a label" leaves its figure: F, letters 0.85 wide'),
            ("", LABEL.format(90, '<text x="60" y="15">0</text>'), '"a label" lies on top of "0": F, letters 0.85 wide'),
            ("", "<script>throw new Error('planted')</script>", "planted"),
        )
    }
    assert {fault: text for fault, text in missed.items() if fault not in text} == {}


def test_audits_of_random_size_answer_first(browser, make, tmp_path):
    """Models, classes, budgets and the lengths of names vary."""
    for seed in range(3):
        rng, sizes = np.random.default_rng(seed), random.Random(seed)
        models, classes, budgets = sizes.randint(1, 12), sizes.randint(2, 60), sizes.randint(1, 12)
        names = [f"class-{index}-" + "x" * sizes.randint(0, 30) for index in range(classes)]
        breaks = {f"model-{index}-" + "m" * sizes.randint(0, 30): rng.lognormal(size=(2, 80)) * 0.1 for index in range(models)}
        run = make(breaks, np.arange(80) % classes, [(index + 1) / 20 for index in range(budgets)], names)
        assert faults_in(browser, html.write(run)) == [], seed
        run.rename(tmp_path / str(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_studies_of_random_size_answer_first(browser, tmp_path, seed):
    """The number of models, samples and budgets varies."""
    sizes = random.Random(seed)
    models = [f"digits-cnn?width=4&seed={index}" for index in range(sizes.randint(2, 9))]
    calls = {
        "compare": lambda out: brinell.compare(
            models, samples=sizes.randint(10, 30), eps=f"0:0.3:{sizes.randint(2, 9)}", attack="fgsm", out=out
        ),
        "transfer": lambda out: brinell.transfer(model=models, samples=10, eps="0.1", out=out),
        "corrupt": lambda out: brinell.corrupt(
            model=models[:4], samples=5, severity=sorted(sizes.sample(range(1, 6), 2)), reference="digits-cnn-w4", out=out
        ),
    }
    for name, call in calls.items():
        call(tmp_path / name)
        assert faults_in(browser, tmp_path / name / "report.html") == [], name
