"""Pages in a real browser: nothing is cut off, values by pointer, keys and touch, tables that sort
and save.

Each rule of `_pages` has a page that breaks it, and audits of random size keep them all.
"""

import random
import re
import shutil

import numpy as np
import pytest

import brinell
from _browser import ALL_VIEWS, check_everywhere, chromium, open_page
from _pages import faults_in
from brinell.reports import html
from brinell.studies.dossier import write_dossier
from brinell.studies.register import open_folder

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EPS = [i / 40 for i in range(9)]
CLASSES = ["=1+1", "+dog", "great white shark, Carcharodon carcharias", "hen", *"efghij"]


def write(run):
    return open_folder(run).write()


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
    return write(make({"net": distances(120, 0, 0.1)}, np.arange(120) % 10, EPS, CLASSES))


@pytest.fixture
def three(make):
    """Of three models two break at the same distances, so that their curves coincide."""
    equal_distances = distances(120, 1, 0.12)
    return write(
        make(
            {"weak": distances(120, 0, 0.05), "firm": equal_distances, "twin": equal_distances},
            np.arange(120) % 10,
            EPS,
            CLASSES,
        )
    )


def test_one_model_everywhere(browser, single_page):
    check_everywhere(browser, single_page, ALL_VIEWS)
    with open_page(browser, single_page) as tab:
        assert tab.evaluate("document.documentElement.scrollHeight") <= 3300


def test_seven_models_with_long_names_everywhere(browser, make):
    breaks = {
        f"a-model-with-a-rather-long-name-{i}": distances(60, i, 0.05 + 0.03 * i) for i in range(7)
    }
    check_everywhere(
        browser, write(make(breaks, np.arange(60) % 4, [i / 510 for i in range(9)], CLASSES[:4]))
    )


def test_signals_everywhere(browser, make):
    run = make(
        {"net": distances(40, 0, 0.1)},
        np.arange(40) % 2,
        [0.1, 0.2],
        ["a", "b"],
        kind="signal",
        shape=(2, 300),
    )
    check_everywhere(browser, write(run))


def test_the_page_of_a_model_everywhere(browser, audit_run, corrupt_run, certify_run, epsilon_run):
    page = write_dossier([audit_run, epsilon_run, corrupt_run, certify_run])
    try:
        check_everywhere(browser, page, ALL_VIEWS)
        assert faults_in(browser, page) == []
    finally:
        page.unlink()  # the folders of runs are shared


def test_values_by_pointer_keys_and_touch(browser, single_page):
    with open_page(browser, single_page, has_touch=True) as tab:
        figure = tab.locator("#verdict svg.large")
        marks = figure.locator(".dot")
        assert marks.count() == 9 and figure.locator("title").count() == 0, (
            "the box takes the place of the browser's own"
        )
        marks.nth(4).hover()
        assert tab.locator(".tip").inner_text().startswith("net, 26/255: ")
        tab.mouse.move(5, 5)
        assert tab.locator(".tip").is_hidden()
        figure.focus()
        tab.keyboard.press("Home")
        first = tab.locator(".tip").inner_text()
        tab.keyboard.press("ArrowRight")
        assert first.startswith("net, 0: ") and tab.locator(".tip").inner_text().startswith(
            "net, 6/255: "
        )
        tab.keyboard.press("Escape")
        assert tab.locator(".tip").is_hidden()
        marks.nth(8).tap()
        assert tab.locator(".tip").inner_text().startswith("net, 51/255: ")
        tab.locator(".heat td").first.tap()
        assert re.search(r"\d+.of.\d+\)$", tab.locator(".tip").inner_text())


def test_at_one_budget_all_models_are_told(browser, three):
    with open_page(browser, three) as tab:
        tab.locator("#verdict svg.large").focus()
        tab.keyboard.press("End")
        assert [
            line.partition(",")[0] for line in tab.locator(".tip").inner_text().splitlines()
        ] == ["weak", "firm", "twin"]


def column(tab, table: str, column_index: int) -> list[str]:
    return tab.locator(f"{table} tbody tr > :nth-child({column_index})").evaluate_all(
        'all => all.map(one => one.firstChild?.textContent ?? "")'
    )


def test_tables_sort_and_totals_stay(browser, single_page):
    with open_page(browser, single_page) as tab:
        head = tab.locator("#class-by-class .heat thead th").nth(3)
        for _ in range(2):
            head.locator("button").click()
            texts = [text.replace("−", "-") for text in column(tab, "#class-by-class .heat", 4)]
            values = [float(text) for text in texts[1:]]
            down = head.get_attribute("aria-sort") == "descending"
            assert values == sorted(values, reverse=down) and min(values) < max(values)
            assert column(tab, "#class-by-class .heat", 1)[0] == "all"


def test_tables_are_saved_as_csv_without_formulas(browser, single_page):
    with open_page(browser, single_page) as tab:
        with tab.expect_download() as waited:
            tab.locator("#class-by-class .csv").first.click()
        text = waited.value.path().read_text(encoding="utf-8-sig")
        assert waited.value.suggested_filename == "class-by-class.csv"
    head, *rows = text.splitlines()
    assert head.startswith('class,"class, in detail",clean,"clean, in detail",') and len(rows) == 11
    names = {row.split(",")[0] for row in rows}
    assert {"'=1+1", "'+dog", "hen"} <= names and not names & {"=1+1", "+dog"}


def test_without_scripts_everything_reads_and_on_paper_what_is_folded(browser, single_page):
    with open_page(browser, single_page, java_script_enabled=False) as tab:
        assert tab.locator(".csv").count() == 0 and tab.locator("#verdict .dot title").count() == 9
        tab.get_by_text("Settings and provenance").click()
        assert "brinell audit FOLDER/run.toml" in tab.inner_text("main")
    with open_page(browser, single_page, color_scheme="dark") as tab:
        tab.emulate_media(media="print")
        assert (
            tab.locator("#the-attacks-stage-by-stage table").is_visible()
            and tab.locator(".tools").first.is_hidden()
        )
        assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(26, 28, 31)"


def counted(tab) -> tuple[int, int]:
    """How many samples are listed, and of how many."""
    number, of = re.findall(r"[\d,]+", tab.locator(".count").inner_text())[:2]
    return int(number.replace(",", "")), int(of.replace(",", ""))


def test_a_cell_opens_its_samples_and_back_returns(browser, single_page):
    """The samples that a cell opens are those that its rate counts as lost."""
    with open_page(browser, single_page) as tab:
        for row, column in ((3, 4), (6, 8), (8, 2)):
            cell = tab.locator("#class-by-class .heat tbody tr").nth(row).locator("td").nth(column)
            k, n = map(int, re.findall(r"(\d+).of.(\d+)\)", cell.get_attribute("title"))[0])
            cell.click()
            number, of = counted(tab)
            wrong = tab.locator(".choose select[name=outcome]")
            wrong.select_option("wrong")
            assert of == n and number + counted(tab)[0] == n - k
        assert "outcome=wrong" in tab.url and "class=" in tab.url
        tab.go_back()
        assert tab.locator(".choose select[name=outcome]").input_value() == "wrong"


def test_five_questions_are_answered_by_mouse(
    browser, audit_run, corrupt_run, certify_run, tmp_path
):
    """Which inputs of class 3 break first and by which attack, what they look like, whether
    corruptions break the same class, what is proven, and what to type next.
    """
    folders = [tmp_path / name for name in ("audit", "corrupt", "certify")]
    for folder, run in zip(folders, (audit_run, corrupt_run, certify_run), strict=True):
        shutil.copytree(run, folder)
    figures, corrupted, proofs = map(brinell.open, folders)
    with open_page(browser, write_dossier(folders)) as tab:
        row = tab.locator("#class-by-class-over-all-studies tbody tr").nth(3)
        heads = tab.locator("#class-by-class-over-all-studies thead th").all_inner_texts()
        cells = dict(zip(heads, row.locator("th, td").all_inner_texts(), strict=True))
        (loss,) = [c for c in corrupted.models[0].per_class if c.class_ == 3]
        assert f"{100 * loss.accuracy:.1f}" in cells["corrupted"]
        proven = proofs.per_class[3].certified[-1].value
        assert f"{100 * proven:.1f}" in cells["proven at 6/255"]
        command = tab.locator(".steps pre").first.inner_text()
        tab.locator(".steps .copy").first.click()
        assert (
            command.startswith("brinell ") and tab.evaluate("getSelection().toString()") == command
        )

        tab.locator("nav a", has_text="audit").click()
        name = figures.per_class[3].name
        tab.locator("#class-by-class th", has_text=name).click()
        rows = figures.to_pandas()
        broken = rows[(rows.label == 3) & (rows.outcome == "broken")]
        first = broken.sort_values(["broken", "linf", "sample_id"]).iloc[0]
        opened = tab.locator(".opened").inner_text()
        assert f"Sample {first.sample_id}, 1 of {broken.sample_id.nunique()}" in opened
        assert "2/255 by FGSM" in opened or "6/255 by FGSM" in opened
        sizes = "all => all.map(one => one.naturalWidth)"
        assert tab.locator(".opened img").evaluate_all(sizes) == [8, 8, 8]


def test_a_cell_of_a_transfer_opens_its_examples(browser, transfer_run):
    page = transfer_run / "report.html"
    check_everywhere(browser, page)
    with open_page(browser, page) as tab:
        cell = tab.locator("#accuracy-source-by-victim tbody tr").nth(1).locator("td").nth(1)
        k, n = map(int, re.findall(r"(\d+).of.(\d+)\)", cell.get_attribute("title"))[0])
        cell.click()
        number, _ = counted(tab)
        tab.locator(".choose select[name=outcome]").select_option("wrong")
        assert number <= n - k <= number + counted(tab)[0]
        assert tab.locator(".choose input[type=range]").count() == 0, "there is one budget"
        sizes = "all => all.map(one => one.naturalWidth)"
        tab.locator(".choose select[name=outcome]").select_option("broken")
        assert tab.locator(".opened img").evaluate_all(sizes) == [8, 8, 8]


def test_pictures_with_masks_and_boxes_follow_the_budget(browser, masks_run, boxes_run):
    for run in (masks_run, boxes_run):
        page = run / "report.html"
        check_everywhere(browser, page)
        figures = {entry.sample: entry for entry in brinell.open(run).pictures}
        with open_page(browser, page) as tab:
            assert counted(tab) == (len(figures), len(figures))
            slider = tab.locator(".choose input[type=range]")
            slider.focus()
            for key, level in (("Home", 0), ("End", -1)):
                tab.keyboard.press(key)
                text = tab.locator(".opened").inner_text()
                sample = int(re.findall(r"Sample (\d+),", text)[0])
                assert f"{figures[sample].robust[level]} of {figures[sample].n} " in text
            tab.locator("#class-by-class tbody th").first.click()
            assert tab.locator(".choose select[name=class]").input_value() != ""


def test_the_address_keeps_what_is_shown(browser, single_page):
    with open_page(browser, single_page) as tab:
        tab.goto(f"{single_page.as_uri()}#class=3&eps=26/255&outcome=broken")
        tab.reload()
        assert tab.locator(".choose output").inner_text().strip() == "26/255"
        assert tab.locator(".choose select[name=class]").input_value() == "3"
        before = tab.locator("svg .axis.now").get_attribute("x1")
        tab.locator(".choose input[type=range]").focus()
        tab.keyboard.press("ArrowRight")
        assert tab.url.endswith("#class=3&eps=32/255")
        assert float(tab.locator("svg .axis.now").get_attribute("x1")) > float(before)
        marked = tab.locator("td.now").evaluate_all("all => all.map(one => one.dataset.open)")
        assert marked and all("eps=32/255" in text for text in marked)


def test_arrow_keys_alone_reach_every_sample(browser, single_page):
    with open_page(browser, single_page) as tab:
        number, _ = counted(tab)
        panel = tab.locator(".opened")
        panel.focus()
        samples = set()
        for _ in range(number):
            samples.add(panel.locator(".turn span").inner_text().partition(",")[0])
            tab.keyboard.press("ArrowRight")
        assert len(samples) == number


def test_a_page_moved_without_its_pictures_says_so(browser, make, monkeypatch, tmp_path):
    monkeypatch.setattr(html, "EMBEDDED", 1)
    run = make({"net": distances(40, 0, 0.05)}, np.arange(40) % 4, EPS, CLASSES[:4])
    page = write(run)
    with open_page(browser, page) as tab:
        tab.wait_for_function("document.querySelector('.opened img').naturalWidth > 0")
        assert tab.locator(".missing").is_hidden()
    copy = tmp_path / "moved.html"
    copy.write_bytes(page.read_bytes())
    tab = browser.new_page()
    tab.goto(copy.as_uri())
    tab.wait_for_selector(".missing:visible")
    tab.close()


def test_commands_are_copied(browser, single_page):
    with open_page(browser, single_page) as tab:
        command = tab.locator(".steps pre").first.inner_text()
        tab.locator(".steps .copy").first.click()
        assert tab.evaluate("getSelection().toString()").strip() == command.strip()
        assert tab.locator(".steps .copy").first.inner_text() in ("Copied", "Press Ctrl+C")


FRAME = (
    '<!doctype html><html lang="en"><body style="margin:0"><main>{before}<p '
    "data-answer>{answer}</p>{after}</main></html>"
)
SCROLL = '<div class="scroll" aria-label="T" style="overflow-x:auto">'
TALL = '<div style="height:{}px"></div>'
LABEL = (
    '<svg class="figure" width="{}" height="20" aria-label="F" style="font:10px '
    'serif"><text x="4" y="15">a label</text>{}</svg>'
)


def test_each_rule_has_a_page_that_breaks_it(browser, tmp_path):
    def faults(before: str, after: str, answer: str = "The result.") -> str:
        page = tmp_path / "page.html"
        page.write_text(FRAME.format(before=before, after=after, answer=answer), encoding="utf-8")
        return "; ".join(faults_in(browser, page))

    folded = f"<details><summary>More</summary>{TALL.format(9000)}</details>"
    wide_table = (
        f'{SCROLL}<table class="many" style="width:3000px"><tr><td>1</td></tr></table></div>'
    )
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
            (
                "",
                '<div style="overflow:hidden"><p style="width:500px">x</p></div>',
                'at 390 pixels <p> "x" is wider',
            ),
            ("", f'{SCROLL}<p style="width:1300px">x</p></div>', "T (1300 in 1280) runs off"),
            ("", LABEL.format(20, ""), '"a label" leaves its figure: F, the font at hand'),
            ("", LABEL.format(60, ""), '"a label" leaves its figure: F, letters 0.85 wide'),
            (
                "",
                LABEL.format(90, '<text x="60" y="15">0</text>'),
                '"a label" lies on top of "0": F, letters 0.85 wide',
            ),
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
        breaks = {
            f"model-{index}-" + "m" * sizes.randint(0, 30): rng.lognormal(size=(2, 80)) * 0.1
            for index in range(models)
        }
        run = make(
            breaks, np.arange(80) % classes, [(index + 1) / 20 for index in range(budgets)], names
        )
        faults = faults_in(browser, write(run))
        assert not faults, (seed, faults)
        run.rename(tmp_path / str(seed))
