() => {
  const found = [];
  const name = node => {
    const text = (node.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${node.tagName.toLowerCase()} class="${node.getAttribute("class") || ""}"> "${text}"`;
  };
  const shown = node => node.checkVisibility({ contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true });
  const wide = document.documentElement.clientWidth;

  // Nothing is wider than the window, nothing has to be scrolled to but tables of very many columns.
  if (document.documentElement.scrollWidth > wide) found.push(`the page is ${document.documentElement.scrollWidth} px wide, the window ${wide}`);
  for (const node of document.querySelectorAll("main *")) {
    if (!shown(node) || node.closest(".scroll, svg") || node.classList.contains("scroll")) continue;
    if (node.getBoundingClientRect().right > wide + 1) found.push(`sticks out: ${name(node)}`);
    if (getComputedStyle(node).overflowX === "hidden" && node.scrollWidth > node.clientWidth + 1 && !node.title) found.push(`cut off: ${name(node)}`);
  }
  for (const region of document.querySelectorAll(".scroll")) {
    if (shown(region) && region.scrollWidth > region.clientWidth + 1 && !region.querySelector(".many"))
      found.push(`does not fit: ${region.getAttribute("aria-label")}, ${region.scrollWidth} in ${region.clientWidth} px`);
  }
  for (const caption of document.querySelectorAll("caption")) {
    if (!shown(caption)) continue;
    const range = document.createRange();
    range.selectNodeContents(caption);
    const [text, around] = [range.getBoundingClientRect(), caption.closest(".scroll, section").getBoundingClientRect()];
    if (text.right > around.right + 1) found.push(`cut off: ${name(caption)}`);
    if (text.height > 70 && text.width < around.width / 2) found.push(`a word a line: ${name(caption)}`);
  }

  // Everything has a name.
  if (!document.documentElement.lang) found.push("no language");
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  let level = 1;
  for (const head of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(head.tagName[1]);
    if (next > level + 1) found.push(`a heading skips a level: ${name(head)}`);
    level = next;
  }
  for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) found.push(`no alt: ${image.outerHTML.slice(0, 60)}`);
  for (const figure of document.querySelectorAll("svg:not([aria-hidden])")) if (!figure.getAttribute("aria-label")) found.push("a figure without a label");
  for (const region of document.querySelectorAll("[role=region], nav")) if (!region.getAttribute("aria-label")) found.push(`no label: ${name(region)}`);
  for (const button of document.querySelectorAll("button, a, summary")) if (!button.textContent.trim() && !button.getAttribute("aria-label")) found.push("a control without a name");
  for (const head of document.querySelectorAll("th")) if (!head.scope) found.push(`no scope: ${name(head)}`);
  for (const head of document.querySelectorAll("th")) if (!head.textContent.trim()) found.push("a table header without text");
  for (const field of document.querySelectorAll("input, select, textarea")) if (!field.labels?.length && !field.getAttribute("aria-label")) found.push(`no label: ${field.outerHTML.slice(0, 60)}`);

  // Whoever has keys alone gets everywhere, in the order of the page.
  const focusable = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  for (const node of document.querySelectorAll("[tabindex]")) if (node.tabIndex > 0) found.push(`an order of focus of its own: ${name(node)}`);
  for (const node of document.querySelectorAll("button, a[href], summary, label")) if (node.parentElement.closest("button, a[href], summary")) found.push(`a control in a control: ${name(node)}`);
  for (const node of document.querySelectorAll("main *")) {
    const scrolls = /auto|scroll/.test(getComputedStyle(node).overflow) && (node.scrollHeight > node.clientHeight + 1 || node.scrollWidth > node.clientWidth + 1);
    if (shown(node) && scrolls && !node.matches(focusable) && !node.querySelector(focusable)) found.push(`scrolls by pointer alone: ${name(node)}`);
  }

  // Lists and roles are what they say.
  for (const item of document.querySelectorAll("li")) if (!item.parentElement.matches("ul, ol")) found.push(`no list around it: ${name(item)}`);
  for (const item of document.querySelectorAll("dt, dd")) if (!item.closest("dl")) found.push(`no list around it: ${name(item)}`);
  for (const list of document.querySelectorAll("dl, ul, ol")) for (const child of list.children) if (!child.matches(list.nodeName === "DL" ? "dt, dd, div" : "li")) found.push(`no item of a list: ${name(child)}`);
  for (const node of document.querySelectorAll("div[aria-label], span[aria-label], p[aria-label]")) if (!node.getAttribute("role")) found.push(`a label without a role: ${name(node)}`);
  if (document.querySelectorAll("main").length !== 1) found.push("not one main");
  if (!document.title.trim()) found.push("no title");
  const ids = [...document.querySelectorAll("[id]")].map(node => node.id);
  ids.filter((id, i) => ids.indexOf(id) < i).forEach(id => found.push(`two elements with the id ${id}`));
  for (const link of document.querySelectorAll("a[href^='#']")) if (!document.getElementById(link.hash.slice(1))) found.push(`leads nowhere: ${link.hash}`);

  // Text stands out from what is behind it: 4.5 to 1, and large text 3 to 1 (WCAG 2.2, 1.4.3).
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const back = rgba(getComputedStyle(at).backgroundColor);
      if (back[3] > 250) return back;
    }
    return rgba("white");
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || seen.has(node) || !shown(node) || node.closest("script, style, title")) continue;
    seen.add(node);
    const style = getComputedStyle(node);
    const [a, b] = [light(rgba(node instanceof SVGElement ? style.fill : style.color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${name(node)}`);
  }
  return found;
}
