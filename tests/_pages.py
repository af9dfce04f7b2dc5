"""The rules of pages, measured in a browser: the result first, a length that a person reads, and
nothing that sticks out.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
ANSWER_WITHIN = {1280: 900, 390: 1400}
"""By width of the window, of a desk and of a telephone, the pixels from the top within which the
whole result stands."""
LONGEST = {1280: 5000}
"""By width of the window the largest height of a page before anything is unfolded."""
MEASURES = """() => {
  const wide = document.documentElement.clientWidth;
  const shown = node => node.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true });
  const name = node => `<${node.tagName.toLowerCase()}> "${(node.textContent || "").trim().replace(/\\s+/g, " ").slice(0, 40)}"`;
  const wider = [...document.querySelectorAll("main *")].filter(node =>
    shown(node) && !node.parentElement.closest(".scroll, svg") && node.getBoundingClientRect().right > wide + 1);
  const runsOff = [...document.querySelectorAll(".scroll")].filter(region =>
    shown(region) && region.scrollWidth > region.clientWidth + 1 && !region.querySelector(".many"));
  return {
    width: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    answers: [...document.querySelectorAll("[data-answer]")].map(node => [
      shown(node) ? node.innerText.trim().length : 0, Math.ceil(node.getBoundingClientRect().bottom + scrollY)]),
    wider: wider.slice(0, 3).map(name),
    runsOff: runsOff.slice(0, 3).map(node => `${node.getAttribute("aria-label")} (${node.scrollWidth} in ${node.clientWidth})`),
  };
}"""
"""Measures an open page."""
LETTERS = (None, 0.45, 0.85)
"""Widths of letters, as shares of their height, in which labels are measured: of the font at
hand, a narrow and a wide one."""
LABELS = """letter => {
  const faults = [];
  for (const figure of document.querySelectorAll("svg.figure")) {
    if (!figure.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true })) continue;
    const [texts, frame] = [[...figure.querySelectorAll("text")], figure.getBoundingClientRect()];
    const adjusted = letter ? texts.filter(text => !text.hasAttribute("textLength")) : [];
    for (const text of adjusted) {
      text.setAttribute("textLength", letter * parseFloat(getComputedStyle(text).fontSize) * text.textContent.length);
      text.setAttribute("lengthAdjust", "spacingAndGlyphs");
    }
    const places = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
    for (const text of adjusted) text.removeAttribute("textLength");
    const font = letter ? `letters ${letter} wide` : "the font at hand";
    const fault = what => faults.push(`${what} ${figure.getAttribute("aria-label")}, ${font}`);
    for (const [text, { left, right, top, bottom }] of places)
      if (left < frame.left - 1.5 || right > frame.right + 1.5 || bottom > frame.bottom + 1.5 || top < frame.top - 1.5)
        fault(`"${text}" leaves its figure:`);
    places.forEach(([a, p], i) => places.slice(i + 1).forEach(([b, q]) => {
      if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
        fault(`"${a}" lies on top of "${b}":`);
    }));
  }
  return faults;
}"""
"""What is wrong with the labels of figures in a font whose letters are so wide."""


def can_measure() -> bool:
    """True if there is a browser to measure pages in."""
    return CHROMIUM.exists() and find_spec("playwright") is not None


def page_faults(page: Path) -> list[str]:
    """What is wrong with a page on a desk and on a telephone, as it opens; nothing without a
    browser.

    The page opens without a complaint. One element, marked `data-answer`, holds the result and
    stands whole within the first pixels (`ANSWER_WITHIN`). The page is not longer than `LONGEST`
    before anything is unfolded. No element is wider than the window, a table runs off only if its
    columns are very many (`class="many"`). No label leaves its figure or lies on top of another,
    whatever the font (`LETTERS`).
    """
    if not can_measure():
        return []
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-background-networking"]
        )
        faults = faults_in(browser, page)
        browser.close()
    return faults


def faults_in(browser: Any, page: Path) -> list[str]:
    """The same in an open browser of playwright."""
    faults: list[str] = []
    for width in ANSWER_WITHIN:
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.on(
            "console",
            lambda message: (
                faults.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.goto(page.as_uri())
        faults.extend(
            f"at {width} pixels {fault}" for fault in _faults(width, tab.evaluate(MEASURES))
        )
        faults.extend(
            f"at {width} pixels {fault}"
            for letter in LETTERS
            for fault in tab.evaluate(LABELS, letter)[:3]
        )
        tab.close()
    return faults


def _faults(width: int, measures: dict[str, Any]) -> list[str]:
    """What is wrong with a page of these measures."""
    answers, most = measures["answers"], ANSWER_WITHIN[width]
    faults = []
    if len(answers) != 1 or not answers[0][0]:
        faults.append(f"{len(answers)} elements hold the result, with text: one must (data-answer)")
    faults += [
        f"the result ends at {bottom} pixels, beyond {most}"
        for _, bottom in answers
        if bottom > most
    ]
    if measures["height"] > LONGEST.get(width, measures["height"]):
        faults.append(
            f"it is {measures['height']} pixels long, above {LONGEST[width]}: fold a part"
        )
    if measures["width"] > width:
        faults.append(f"it is {measures['width']} pixels wide")
    faults += [f"{text} is wider than the window" for text in measures["wider"]]
    return faults + [f"the table {table} runs off" for table in measures["runsOff"]]
