// Adds what CSS cannot do: theme and language buttons, class filter, method toggles, tooltips, enlarging, copying.
// The page is complete without it. No library, no network.
"use strict";
(() => {
  const root = document.documentElement;
  const store = {
    get: (key) => { try { return localStorage.getItem("splitveil-" + key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem("splitveil-" + key, value); } catch { /* private mode */ } },
  };
  const saved = store.get("theme");
  if (saved === "dark" || saved === "light") root.dataset.theme = saved; // before the first paint

  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  function language() {
    const apply = (lang) => {
      root.lang = lang;
      for (const name of ["aria-label", "alt", "title", "data-tip", "data-name"]) {
        for (const element of all(`[data-zh-${name}]`)) element.setAttribute(name, element.getAttribute(`data-${lang}-${name}`));
      }
      for (const element of all("[data-zh-data-text]")) element.textContent = element.getAttribute(`data-${lang}-data-text`);
      count();
    };
    byId("language").hidden = false;
    byId("language").addEventListener("click", () => {
      apply(root.lang === "en" ? "zh" : "en");
      store.set("lang", root.lang);
    });
    const wanted = store.get("lang");
    apply(wanted === "en" || wanted === "zh" ? wanted : root.lang);
  }

  function theme() {
    const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    byId("theme").hidden = false;
    byId("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      store.set("theme", root.dataset.theme);
    });
  }

  // Gallery: class filter, and only the first cards until asked for all.
  let everything = false;
  function filter() {
    const chosen = byId("class-filter").value;
    const first = Number(document.querySelector(".cards").dataset.first);
    let matching = 0;
    for (const card of all(".card")) {
      const matches = !chosen || card.dataset.class === chosen;
      card.hidden = !matches || (!everything && !chosen && matching >= first);
      matching += matches ? 1 : 0;
    }
    byId("all-cards").hidden = everything || Boolean(chosen) || matching <= first;
    count();
  }
  function count() {
    const output = byId("card-count");
    if (!output) return;
    const shown = all(".card").filter((card) => !card.hidden).length;
    output.textContent = `${shown} / ${all(".card").length}`;
  }
  function gallery() {
    if (!byId("class-filter")) return;
    document.querySelector(".controls").hidden = false;
    byId("class-filter").addEventListener("change", filter);
    byId("all-cards").addEventListener("click", () => { everything = true; filter(); });
    for (const button of all(".enlarge")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const card = button.closest(".card");
        const heading = card.querySelector("h3").cloneNode(true);
        heading.querySelector("button").remove();
        document.querySelector(".zoom-body").replaceChildren(heading, card.querySelector(".shots").cloneNode(true));
        byId("zoom").showModal();
      });
    }
    byId("zoom").addEventListener("click", (event) => { if (event.target === byId("zoom")) byId("zoom").close(); });
    filter();
  }

  // A method hidden in the legend disappears from every picture row and every chart.
  function toggles() {
    for (const chip of all("[data-toggle]")) {
      chip.addEventListener("click", () => {
        const on = chip.getAttribute("aria-pressed") !== "true";
        chip.setAttribute("aria-pressed", String(on));
        for (const element of all(`[data-m="${chip.dataset.toggle}"]`)) element.classList.toggle("off", !on);
      });
    }
  }

  function panes() {
    for (const group of all(".switch")) {
      const show = (name) => {
        for (const button of all("button", group)) button.setAttribute("aria-pressed", String(button.dataset.pane === name));
        for (const pane of all(".pane", group.parentElement)) pane.hidden = pane.dataset.paneOf !== name;
      };
      group.hidden = false;
      for (const button of all("button", group)) button.addEventListener("click", () => show(button.dataset.pane));
      show(group.querySelector("button").dataset.pane);
      // Paper has no buttons: print every pane.
      addEventListener("beforeprint", () => all(".pane", group.parentElement).forEach((pane) => { pane.hidden = false; }));
      addEventListener("afterprint", () => show(group.querySelector('[aria-pressed="true"]').dataset.pane));
    }
  }

  function origins() {
    let opened = [];
    addEventListener("beforeprint", () => {
      // Paper cannot be unfolded: where a run comes from is printed, unless many pages of it would follow.
      opened = all("details.run").length > 4 ? [] : all("details.run:not([open])");
      for (const run of opened) run.open = true;
    });
    addEventListener("afterprint", () => { for (const run of opened) run.open = false; });
  }

  function tooltips() {
    const tip = byId("tip");
    const hide = () => { tip.hidden = true; };
    const place = (x, y) => {
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
      tip.style.left = `${Math.max(6, left)}px`;
      tip.style.top = `${Math.max(6, Math.min(innerHeight - box.height - 6, y - box.height / 2))}px`;
    };
    for (const spot of all("[data-tip]")) {
      const show = (x, y) => { tip.textContent = spot.getAttribute("data-tip"); place(x, y); };
      spot.addEventListener("pointermove", (event) => show(event.clientX, event.clientY));
      spot.addEventListener("pointerleave", hide);
      spot.addEventListener("focus", () => { const b = spot.getBoundingClientRect(); show(b.right, b.top + b.height / 2); });
      spot.addEventListener("blur", hide);
    }
    for (const chart of all("svg.lines")) lines(chart, tip, place, hide);
    for (const grid of all("[data-grid]")) heat(grid, tip, place, hide);
    addEventListener("scroll", hide, { passive: true });
  }

  // On a heat map the pointer picks a cell.
  function heat(grid, tip, place, hide) {
    const columns = Number(grid.dataset.grid);
    const rows = grid.dataset.rows.split("|");
    const values = grid.dataset.v.split(" ");
    const cell = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    grid.addEventListener("pointermove", (event) => {
      const box = grid.getBoundingClientRect();
      const row = cell((event.clientY - box.top) / box.height, rows.length);
      const column = cell((event.clientX - box.left) / box.width, columns);
      tip.textContent = `${rows[row]}\n${grid.getAttribute("data-name")} ${column + 1}: ${values[row * columns + column]}`;
      place(event.clientX, event.clientY);
    });
    grid.addEventListener("pointerleave", hide);
  }

  // On a line chart the pointer picks the nearest x; the tooltip lists every visible curve there.
  function lines(chart, tip, place, hide) {
    const [low, high, start, end, width] = chart.dataset.x.split(" ").map(Number);
    const percent = chart.hasAttribute("data-percent");
    const along = chart.hasAttribute("data-log") ? (x) => Math.log(x / low) / Math.log(high / low) : (x) => (x - low) / (high - low);
    const cross = chart.querySelector(".cross");
    const curves = all(".curve[data-v]", chart).map((group) => ({
      group, points: group.dataset.v.split(" ").map((pair) => pair.split(",").map(Number)),
    }));
    const write = (value) => percent ? `${(100 * value).toFixed(1)} %` : String(Number(value.toPrecision(4)));
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const at = ((event.clientX - box.left) * width / box.width - start) / (end - start); // 0 to 1 along the axis
      const near = (p, q) => Math.abs(along(p) - at) < Math.abs(along(q) - at);
      const nearest = curves.filter(({ group }) => !group.classList.contains("off")).map(({ group, points }) => ({
        group, point: points.reduce((best, p) => near(p[0], best[0]) ? p : best),
      }));
      if (!nearest.length || at < 0 || at > 1) { cross.style.visibility = "hidden"; hide(); return; }
      const x = nearest.reduce((best, { point }) => near(point[0], best) ? point[0] : best, nearest[0].point[0]);
      const pixel = start + along(x) * (end - start);
      cross.setAttribute("x1", pixel); cross.setAttribute("x2", pixel); cross.style.visibility = "visible";
      const rows = nearest.slice(0, 12).map(({ group, point }) => `${group.getAttribute("data-name")}: ${write(point[1])}`);
      tip.textContent = [String(x), ...rows].join("\n");
      place(event.clientX, event.clientY);
    });
    chart.addEventListener("pointerleave", () => { cross.style.visibility = "hidden"; hide(); });
  }

  function copying() {
    for (const button of all(".copy")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const code = button.parentElement.querySelector("code");
        const select = () => getSelection().selectAllChildren(code);
        if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).catch(select); else select();
      });
    }
  }

  addEventListener("DOMContentLoaded", () => {
    for (const start of [theme, gallery, language, toggles, panes, origins, tooltips, copying]) start();
  });
})();
