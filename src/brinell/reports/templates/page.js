"use strict";
// Sorts tables, writes them as CSV, copies commands, shows the values of figures, and opens samples. Without it
// everything on the page but single samples still reads.
(() => {
  const make = (tag, kind, text) => Object.assign(document.createElement(tag), { className: kind, textContent: text });
  const push = (kind, text) => Object.assign(make("button", kind, text), { type: "button" });
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
      const button = push("sort", "");
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
    const save = push("csv", "CSV");
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

  // A button at every command copies it.
  for (const command of document.querySelectorAll("pre, td > code")) {
    if (!/^brinell /.test(command.textContent) && command.nodeName === "CODE") continue;
    const copy = push("copy", "Copy");
    copy.setAttribute("aria-label", "Copy: " + command.textContent);
    if (/\bFOLDER\b/.test(command.textContent)) {
      copy.title = "FOLDER is the folder that holds this page";
      command.title = copy.title;
    }
    copy.addEventListener("click", () => {
      getSelection().selectAllChildren(command);
      const done = document.execCommand("copy");  // the newer way is refused on pages of a disk
      copy.textContent = done ? "Copied" : "Press Ctrl+C";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    });
    command.after(copy);
  }

  // The samples behind the figures: filtered, opened one by one, and kept in the address of the page.
  const store = document.querySelector("script[data-samples]");
  if (!store) return;
  const data = JSON.parse(store.textContent);
  const root = store.closest("section");
  const samples = data.rows.map(row => Object.fromEntries(data.columns.map((name, at) => [name, row[at]])));
  for (const one of samples) one.first = Math.min(data.eps.length, ...one.broken.map(([, eps]) => eps));
  const DEFAULTS = { model: "", class: "", attack: "", outcome: data.outcome ?? "broken", eps: data.eps[data.eps.length - 1], sample: "" };
  const BATCH = 60;
  let [state, list, shown] = [DEFAULTS, [], BATCH];
  const className = at => (at === null ? "\u2013" : [at].flat().map(one => data.classes[one] ?? String(one)).join(", "));
  const sure = share => (share === undefined ? "" : share === null ? ", probability not stored" : ", " + Math.round(100 * share) + "\u00a0% sure");
  const key = one => one.model + "/" + one.sample;
  const viewOf = one => data.views[one.view ?? key(one)];
  const attacked = one => one.levels?.[data.eps.indexOf(state.eps)] ?? (one.broken.length ? className(one.attacked) + sure(one.attackedSure) : "");
  const outcome = (one, eps) => {
    if (one.state === "wrong") return "wrong";
    if (one.broken.some(([, at]) => at <= eps)) return "broken";
    return one.state === "unjudged" ? "unjudged" : "robust";
  };
  const OUTCOMES = { "": "any outcome", broken: "broken", robust: "robust", wrong: "wrong untouched", unjudged: "not judged", ...data.outcomes };

  const form = make("div", "choose", "");
  const labelled = (text, ...controls) => {
    const label = make("label", "", text + " ");
    label.append(...controls);
    form.append(label);
    return controls[0];
  };
  const menu = (name, options, title = name) => {
    const select = Object.assign(make("select", "", ""), { name });
    select.append(...options.map(([value, text]) => new Option(text, value)));
    select.addEventListener("change", () => change({ [name]: select.value }));
    return labelled(title, select);
  };
  const classes = [...new Set(samples.flatMap(one => one.class))].sort((a, b) => a - b);
  const attacks = data.attacks.filter((_, at) => samples.some(one => one.by === at || one.broken.some(([attack]) => attack === at)));
  const menus = { class: menu("class", [["", "all classes"], ...classes.map(at => [String(at), className(at)])]) };
  if (data.models.length > 1) menus.model = menu("model", [["", "all models"], ...data.models.map(name => [name, name])]);
  menus.attack = menu("attack", [["", "any " + (data.source ?? "attack")], ...attacks], data.source);
  menus.outcome = menu("outcome", Object.entries(OUTCOMES));
  const slider = Object.assign(make("input", "", ""), { type: "range", name: "eps", min: 0, max: data.eps.length - 1, step: 1 });
  const budget = make("output", "", "");
  slider.addEventListener("input", () => change({ eps: data.eps[slider.value] }));
  if (data.eps.length > 1) labelled("budget", slider, budget);

  const count = Object.assign(make("p", "count", ""), { role: "status" });
  const panel = Object.assign(make("div", "opened", ""), { tabIndex: 0, role: "group", ariaLabel: "The opened sample; arrow keys open the next" });
  const cards = make("div", "cards", "");
  const more = push("further", "");
  more.addEventListener("click", () => drawCards((shown += BATCH)));
  const lost = "Pictures are missing: keep the folder \u201csamples\u201d of the run beside this page.";
  const missing = Object.assign(make("p", "warn missing", lost), { hidden: true });
  root.addEventListener("error", event => event.target.nodeName === "IMG" && (missing.hidden = false), true);
  const beside = make("div", "explorer", "");
  const right = make("div", "", "");
  right.append(cards, more);
  beside.append(panel, right);
  root.append(form, count, missing, beside);
  root.classList.add("live");

  const fragment = one => {
    const holder = document.createElement("template");
    holder.innerHTML = viewOf(one) || "";  // HTML of our own, in which every name is escaped
    for (const node of holder.content.querySelectorAll("[id]")) node.removeAttribute("id");
    return holder.content;
  };
  const describe = one => {
    const facts = [["clean", className(one.clean) + sure(one.sure)]];
    const plain = !viewOf(one) || one.view;  // the caption of pictures says more
    if (plain) facts.unshift(["true class", className(one.class)]);
    if (data.models.length > 1) facts.unshift(["model", data.models[one.model]]);
    if (attacked(one)) facts.push([one.levels ? "at " + state.eps : "attacked", attacked(one)]);
    if (one.broken.length) {
      if (plain && one.size != null) facts.push([data.distance, String(one.size)]);
      if (one.queries !== undefined) facts.push(["queries", one.queries === null ? "not counted" : one.queries.toLocaleString("en")]);
      facts.push([OUTCOMES.broken + " within", one.broken.map(([attack, eps]) => data.eps[eps] + " by " + data.attacks[attack][1]).join("; ")]);
    } else facts.push(["outcome", OUTCOMES[outcome(one, Infinity)]]);
    const listing = make("dl", "facts", "");
    listing.append(...facts.flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
    return listing;
  };
  const move = step => {
    const next = list[Math.max(list.findIndex(one => key(one) === state.sample), 0) + step];
    if (next) change({ sample: key(next) });
  };
  const turn = (text, label, step, at) => {
    const button = Object.assign(push("", text), { disabled: !list[at + step], ariaLabel: label });
    button.addEventListener("click", () => move(step) || panel.focus());
    return button;
  };
  const drawPanel = () => {
    const at = Math.max(list.findIndex(one => key(one) === state.sample), 0);
    const one = list[at];
    const head = make("div", "turn", "");
    if (!one) return panel.replaceChildren(make("p", "lead", "No such sample: widen the choice above."));
    head.append(turn("\u2190", "previous sample", -1, at), make("span", "", `Sample ${one.sample}, ${at + 1} of ${list.length}`), turn("\u2192", "next sample", 1, at));
    const view = fragment(one);
    const none = data.none ?? "The run keeps no " + (one.broken.length ? "clean input of it." : "input of it, since it was not broken.");
    panel.replaceChildren(head, view.childElementCount ? view : make("p", "lead", none), describe(one));
    for (const card of cards.children) card.setAttribute("aria-pressed", card.dataset.key === key(one));
  };
  const drawCards = () => {
    cards.replaceChildren(...list.slice(0, shown).map(one => {
      const card = push("card", "");
      card.dataset.key = key(one);
      const pictures = fragment(one).querySelectorAll("img, svg");
      const text = one.levels ? attacked(one) : className(one.clean) + (one.broken.length ? " \u2192 " + className(one.attacked) : "");
      const below = one.first < data.eps.length ? data.eps[one.first] : outcome(one, Infinity);
      if (pictures.length) card.append(pictures[data.card] ?? pictures[0]);
      card.append(make("span", "", text), make("small", "", "#" + one.sample + (one.levels ? "" : " \u00b7 " + below)));
      card.addEventListener("click", () => change({ sample: key(one) }));
      return card;
    }));
    Object.assign(more, { hidden: shown >= list.length, textContent: "Show more of " + list.length.toLocaleString("en") });
    drawPanel();
  };

  // Curve, tables and samples follow the budget together.
  const figure = document.querySelector("#verdict svg[data-ticks]");
  const ticks = figure ? JSON.parse(figure.dataset.ticks) : {};
  const line = figure && figure.querySelector(".axis").cloneNode();
  if (line) figure.append(line);
  const read = text => ({ ...DEFAULTS, ...Object.fromEntries([...new URLSearchParams(text)].filter(([name]) => Object.hasOwn(DEFAULTS, name))) });
  const cells = [...document.querySelectorAll("[data-open]")].map(cell => ({ cell, choice: read(cell.dataset.open) }));
  const follow = () => {
    const x = ticks[state.eps];
    const places = { class: x === undefined ? "axis off" : "axis now", x1: x ?? 0, x2: x ?? 0, y2: 10 };
    if (line) for (const [name, value] of Object.entries(places)) line.setAttribute(name, value);
    const equal = choice => ["eps", "outcome"].every(name => choice[name] === state[name]) && ["class", "model", "attack"].every(name => choice[name] === state[name] || !state[name]);
    const chosen = Object.entries(DEFAULTS).some(([name, value]) => state[name] !== value);
    for (const { cell, choice } of cells) cell.classList.toggle("now", chosen && /eps=|attack=/.test(cell.dataset.open) && equal(choice));
  };
  const keep = (how, choice) => {
    const parts = Object.entries(choice).filter(([name, value]) => value !== DEFAULTS[name]);
    const text = parts.map(([name, value]) => name + "=" + encodeURIComponent(value).replace(/%2F/g, "/")).join("&");
    try { history[how](null, "", "#" + text); } catch { /* a notebook's frame has no address */ }
  };

  const draw = () => {
    const eps = data.eps.indexOf(state.eps);
    const attack = data.attacks.findIndex(([name]) => name === state.attack);
    const model = data.models.indexOf(state.model);
    const pool = samples.filter(one => (model < 0 || one.model === model) && (state.class === "" || [one.class].flat().includes(Number(state.class))));
    list = pool.filter(one => (state.outcome === "" || outcome(one, eps) === state.outcome)
      && (attack < 0 || one.by === attack || one.broken.some(([by, at]) => by === attack && at <= eps)));
    for (const [name, select] of Object.entries(menus)) select.value = state[name];
    Object.assign(slider, { value: eps, ariaValueText: state.eps });
    budget.textContent = " " + state.eps;
    const at = ["broken", "robust"].includes(state.outcome) ? " at " + state.eps : "";
    count.textContent = `${list.length.toLocaleString("en")} of ${pool.length.toLocaleString("en")} ${state.outcome ? OUTCOMES[state.outcome] : "samples"}${at}`;
    follow();
    drawCards();
  };
  const change = part => {
    const turned = "sample" in part;
    state = { ...state, sample: "", ...part };
    keep("replaceState", state);
    if (!turned) shown = BATCH;
    if (!turned || !list.length) draw();
    else if (list.findIndex(one => key(one) === state.sample) < cards.childElementCount) drawPanel();
    else more.click();
  };
  const open = choice => {
    keep("pushState", choice);
    arrive(choice);
    root.scrollIntoView({ block: "start" });
  };
  for (const { cell, choice } of cells) cell.addEventListener("click", event => event.target.closest("a, button") || open(choice));
  const openTick = at => {
    const [eps] = Object.entries(ticks).reduce((a, b) => (Math.abs(b[1] - at) < Math.abs(a[1] - at) ? b : a));
    open({ ...state, sample: "", ...(data.eps.includes(eps) ? { outcome: DEFAULTS.outcome, eps } : { outcome: DEFAULTS.outcome && "wrong" }) });
  };
  if (figure) {
    figure.addEventListener("click", event => openTick(new DOMPoint(event.clientX, event.clientY).matrixTransform(figure.getScreenCTM().inverse()).x));
    figure.addEventListener("keydown", event => {
      const mark = figure.querySelector(".lit");
      if (event.key === "Enter" && mark) openTick(mark.getBBox().x + mark.getBBox().width / 2);
    });
  }
  root.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.target.closest(".choose")) return;
    event.preventDefault();
    move(step);
    if (event.target.closest(".card")) cards.querySelector("[aria-pressed=true]")?.focus();
  });
  const arrive = found => {
    state = { ...found, eps: data.eps.includes(found.eps) ? found.eps : DEFAULTS.eps };
    shown = BATCH;
    draw();
  };
  addEventListener("popstate", () => arrive(read(location.hash.slice(1))));
  arrive(read(location.hash.slice(1)));
  if (location.hash.includes("=")) root.scrollIntoView({ block: "start" });
})();
