"use strict";
// Sorts tables, writes them as CSV, and shows the values of figures. Without it everything on the page still reads.
(() => {
  const make = (tag, kind, text) => Object.assign(document.createElement(tag), { className: kind, textContent: text });
  const plain = text => text.replace(/[\u2060\s]+/g, " ").trim().replace(/\u2212/g, "-");

  // What a cell says first, and what stands small below it.
  const said = cell => plain([...cell.childNodes].filter(n => n.nodeName !== "SMALL").map(n => n.textContent).join(""));
  const below = cell => plain([...cell.querySelectorAll("small")].map(n => n.textContent).join("; "));

  // "71.3 %" is 0.713, "8/255" and "1 234" and "1.5 min" are numbers too; anything else is null.
  const UNITS = { "": 1, "%": 0.01, "\u00d7": 1, s: 1, min: 60, h: 3600, dB: 1 };
  const number = text => {
    const bare = text.replace(/(\d) (?=\d{3}(\D|$))/g, "$1");
    const found = /^[<>]?\s*([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?:\/(\d+))?\s?(%|\u00d7|s|min|h|dB)?$/.exec(bare);
    if (found) return (Number(found[1]) / Number(found[2] || 1)) * UNITS[found[3] || ""];
    return /^(infinite|no limit)$|^beyond /.test(text) ? Infinity : null;
  };

  const sort = (table, column, down) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].filter(row => !row.classList.contains("total"));
    const key = row => {
      const text = row.cells[column] ? said(row.cells[column]) : "";
      const value = number(text);
      return { row, text, value, none: text === "" || text === "\u2013" };
    };
    const order = (a, b) => {
      if (a.none || b.none) return a.none - b.none;
      const both = a.value !== null && b.value !== null;
      const way = both ? (a.value === b.value ? 0 : a.value < b.value ? -1 : 1) : a.text.localeCompare(b.text, "en", { numeric: true });
      return down ? -way : way;
    };
    const first = body.rows[0] && body.rows[0].classList.contains("total");
    const sorted = rows.map(key).sort(order).map(one => one.row);
    const total = [...body.rows].filter(row => row.classList.contains("total"));
    body.append(...(first ? [...total, ...sorted] : [...sorted, ...total]));
  };

  // Text that a spreadsheet would take for a formula begins with an apostrophe.
  const field = text => {
    const safe = /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
    return /[",\n\r]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
  };
  const value = text => {
    const known = number(text);
    return known !== null && Number.isFinite(known) && !/^[<>]/.test(text) ? String(Number(known.toPrecision(12))) : field(text);
  };
  const csv = table => {
    const rows = [...table.tBodies[0].rows];
    const heads = [...table.tHead.rows[0].cells].map(said);
    const notes = heads.map((_, at) => rows.some(row => row.cells[at] && below(row.cells[at])));
    const line = (cells, note) => heads.flatMap((_, at) => (notes[at] ? [cells(at), note(at)] : [cells(at)])).join(",");
    const head = line(at => field(heads[at]), at => field(heads[at] + ", in detail"));
    const each = row => line(at => (row.cells[at] ? value(said(row.cells[at])) : ""), at => (row.cells[at] ? field(below(row.cells[at])) : ""));
    return [head, ...rows.map(each)].join("\n") + "\n";
  };

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead || !table.tBodies.length) continue;
    const region = table.closest(".scroll") || table;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!said(head)) return;
      const button = make("button", "sort", "");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
    });
    if ("filter" in table.dataset && table.tBodies[0].rows.length > 5) {
      const label = make("label", "filter", "Filter ");
      const box = make("input", "", "");
      const count = make("span", "", "");
      box.type = "search";
      box.addEventListener("input", () => {
        const words = box.value.toLowerCase().split(/\s+/);
        const rows = [...table.tBodies[0].rows];
        for (const row of rows) row.hidden = !words.every(word => plain(row.textContent).toLowerCase().includes(word));
        count.textContent = " " + rows.filter(row => !row.hidden).length + " of " + rows.length.toLocaleString("en");
      });
      label.append(box, count);
      region.before(label);
    }
    const name = region.getAttribute("aria-label") || "table";
    const save = make("button", "csv", "CSV");
    save.type = "button";
    save.setAttribute("aria-label", "Download as CSV: " + name);
    save.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff", csv(table)], { type: "text/csv" }));
      link.download = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") + ".csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    const tools = make("div", "tools", "");
    tools.append(save);
    region.after(tools);
  }

  // One box for the values of all figures: shown by pointing, by touch, and by the arrow keys.
  const box = make("div", "tip", "");
  box.setAttribute("role", "status");
  box.hidden = true;
  document.body.append(box);
  let lit = [];
  const hide = () => {
    lit.forEach(mark => mark.classList.remove("lit"));
    lit = [];
    box.hidden = true;
  };
  const show = (marks, text, at) => {
    hide();
    lit = marks;
    lit.forEach(mark => mark.classList.add("lit"));
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(Math.max(at.x - box.offsetWidth / 2, 6), document.documentElement.clientWidth - box.offsetWidth - 6);
    const above = at.y - box.offsetHeight - 12;
    box.style.left = left + scrollX + "px";
    box.style.top = (above < 4 ? at.y + 16 : above) + scrollY + "px";
  };
  const middle = mark => {
    const place = mark.getBoundingClientRect();
    return { x: place.left + place.width / 2, y: place.top + place.height / 2 };
  };

  for (const figure of document.querySelectorAll("svg.figure")) {
    const marks = [...figure.querySelectorAll("title")].map(title => {
      const mark = title.parentNode;
      mark.dataset.tip = title.textContent;
      title.remove();
      return mark;
    });
    if (!marks.length) continue;
    let now = -1;
    // Marks above each other belong together: all curves at one budget.
    const groups = () => {
      const found = [];
      for (const mark of [...marks].sort((a, b) => middle(a).x - middle(b).x)) {
        const last = found[found.length - 1];
        if (last && middle(mark).x - last.x < 1) last.marks.push(mark);
        else found.push({ x: middle(mark).x, marks: [mark] });
      }
      found.forEach(group => group.marks.sort((a, b) => marks.indexOf(a) - marks.indexOf(b)));
      return found;
    };
    const tell = (all, at) => {
      now = at;
      const { marks: here } = all[at];
      const top = here.map(middle).reduce((a, b) => (a.y < b.y ? a : b));
      show(here, [...new Set(here.map(mark => mark.dataset.tip))].join("\n"), top);
    };
    const point = event => {
      const all = groups();
      const gaps = all.map(group => Math.abs(group.x - event.clientX));
      tell(all, gaps.indexOf(Math.min(...gaps)));
    };
    figure.setAttribute("tabindex", "0");
    figure.addEventListener("pointermove", point);
    figure.addEventListener("pointerdown", point);
    figure.addEventListener("pointerleave", event => event.pointerType === "mouse" && hide());
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", event => {
      const all = groups();
      const to = { ArrowRight: now + 1, ArrowLeft: now < 0 ? all.length - 1 : now - 1, Home: 0, End: all.length - 1 }[event.key];
      if (event.key.startsWith("Esc")) hide();
      if (to === undefined) return;
      event.preventDefault();
      tell(all, Math.min(Math.max(to, 0), all.length - 1));
    });
  }
  document.addEventListener("pointerdown", event => {
    if (!event.target.closest("svg.figure")) hide();
    const cell = event.target.closest("td[title]");
    if (cell && event.pointerType !== "mouse") show([], cell.title, middle(cell));
  });
  document.addEventListener("keydown", event => event.key.startsWith("Esc") && hide());

  // A table that goes on to the right says so.
  for (const region of document.querySelectorAll(".scroll")) {
    const more = () => region.classList.toggle("more", region.scrollLeft + region.clientWidth < region.scrollWidth - 2);
    region.addEventListener("scroll", more, { passive: true });
    new ResizeObserver(more).observe(region);
  }
})();
