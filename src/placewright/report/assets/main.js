// Ties everything together: which placements are shown, what is selected, search, theme, keys.
(() => {
  const data = JSON.parse(PW.byId("data").textContent);
  PW.data = data;
  PW.unit = data.model.unit;
  PW.model = PW.unpackModel(data.model);
  PW.deviceNumber = new Map();
  for (const p of data.placements) for (const d of p.devices) if (!PW.deviceNumber.has(d.name)) PW.deviceNumber.set(d.name, PW.deviceNumber.size);
  PW.placements = data.placements.map((p, i) => PW.unpackPlacement(p, i, data.costs, PW.model));

  let shown = PW.placements.length > 1 ? [0, 1] : [0], graphs = [], timelines = [], current = null;

  // Theme ---------------------------------------------------------------------------------------------------------

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("placewright-theme"); } catch { return null; } };
  const applyTheme = (name) => { document.documentElement.dataset.theme = name; };
  applyTheme(stored() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!stored()) { applyTheme(dark.matches ? "dark" : "light"); render(); } });
  PW.byId("theme").addEventListener("click", () => {
    const next = PW.theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("placewright-theme", next); } catch { /* a page from disk may have no storage */ }
    applyTheme(next);
    colours();
  });

  // What is shown -------------------------------------------------------------------------------------------------

  const views = () => shown.map((i) => PW.placements[i]);
  const changed = () => (shown.length > 1 ? new Set(data.changes[shown[1] - 1].ops) : null);

  const colours = () => {
    PW.showSummary(views());
    legend();
    PW.showMemory(views());
    PW.showCurves(views());
    PW.showTables(views(), goTo, goToSegment);
    PW.showChanges(views());
    graphs.forEach((g) => g.redraw());
    timelines.forEach((t) => t.redraw());
    if (current) PW.showDetails(current.placement, current.selected(), goTo, current); else PW.showDetails(views()[0], -1, goTo, null);
  };

  const render = () => {
    graphs.forEach((g) => g.close());
    timelines.forEach((t) => t.close());
    const set = changed(), compared = shown.length > 1;
    graphs = views().map((p) => {
      const holder = PW.el("div", { class: "graph" }, compared && PW.el("div", { class: "caption" }, `${p.label} · ${PW.time(p.value, 3)}`));
      PW.byId("graphs").append(holder);
      const view = PW.graphView(holder, p, {
        mostAtFirst: innerWidth < 720 ? 24 : compared ? 40 : 64,
        isChanged: set && ((v) => set.has(v)),
        onSelect: (node) => {
          current = view;
          const op = node >= p.nBoxes ? node - p.nBoxes : -1;
          graphs.forEach((g) => { if (g !== view && g.selected() >= 0) g.deselect(); });
          timelines.forEach((t) => t.mark(op));
          PW.showDetails(p, node, goTo, view);
        },
      });
      return view;
    });
    const span = Math.max(...views().map((p) => p.timeline.end || 0));
    timelines = views().map((p) => PW.timelineView(PW.byId("timelines"), p, { span, title: compared ? p.label : "", onSelect: (v) => goTo(v, p) }));
    current = null;
    colours();
  };

  const graphOf = (p) => graphs.find((g) => g.placement === p) || current || graphs[0];
  function goTo(v, p) {
    const view = p ? graphOf(p) : current || graphs[0];
    view.reveal(v);
    view.select(view.placement.nBoxes + v);
    bringUp();
  }
  function goToSegment(p, segment) {
    graphOf(p).revealSegment(segment);
    bringUp();
  }
  const bringUp = () => {
    const box = PW.byId("graphs").getBoundingClientRect();
    if (box.bottom < 120 || box.top > innerHeight - 200) PW.byId("graph-heading").scrollIntoView({ block: "start" });
  };

  // Head and tools ------------------------------------------------------------------------------------------------

  const legend = () => {
    const used = new Set(views().flatMap((p) => p.devices.filter((d) => d.ops > 0).map((d) => d.name)));
    const entries = [...used].map((name) => PW.el("li", null, PW.deviceTag(name)));
    if (views().some((p) => p.bytes_moved > 0)) entries.push(PW.el("li", null, PW.el("span", { class: "line", "aria-hidden": "true" }), "copy between devices"));
    if (shown.length > 1) entries.push(PW.el("li", null, PW.el("span", { class: "line moved", "aria-hidden": "true" }), "share that moved"));
    PW.byId("legend").replaceChildren(...entries);
  };
  const head = () => {
    const p = PW.placements[0];
    PW.byId("title").textContent = PW.model.name;
    PW.byId("subtitle").textContent = `${PW.many(PW.model.n, "operator")} on ${PW.many(p.devices.length, "device")} · ${p.objective}, execution model ${p.execution}`;
    PW.byId("timeline-note").textContent = p.execution === "pipeline" ? "How one sample fills each device's load; the fullest device sets the pace. Pale bars are copies." : "Compute per device, copies per link (pale). Ctrl and wheel zoom, drag moves, double-click shows all.";
    PW.byId("provenance").textContent = PW.placements.map((q) => `${q.label}: placer ${q.placer}, seed ${q.seed}${q.evaluations ? `, ${PW.count(q.evaluations)} evaluations` : ""}${q.seconds ? `, ${PW.digits(q.seconds, 3)} s` : ""}`).join(" · ") + " · written by placewright";
    const buttons = PW.byId("views");
    buttons.hidden = PW.placements.length < 2;
    const choices = PW.placements.map((q, i) => ({ name: q.label, shown: [i] }));
    PW.placements.slice(1).forEach((q, i) => choices.push({ name: PW.placements.length > 2 ? `1 ↔ ${i + 2}` : "Side by side", shown: [0, i + 1] }));
    buttons.replaceChildren(...choices.map((choice) => PW.el("button", {
      type: "button", "aria-pressed": String(String(choice.shown) === String(shown)),
      onclick: (event) => {
        shown = choice.shown;
        buttons.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b === event.target)));
        render();
      },
    }, choice.name)));
  };
  PW.byId("zoom-in").addEventListener("click", () => graphs.forEach((g) => g.zoom(1.3)));
  PW.byId("zoom-out").addEventListener("click", () => graphs.forEach((g) => g.zoom(1 / 1.3)));
  PW.byId("fit").addEventListener("click", () => graphs.forEach((g) => g.fit()));
  PW.byId("open-more").addEventListener("click", () => graphs.forEach((g) => g.openMore()));
  PW.byId("close-all").addEventListener("click", () => graphs.forEach((g) => g.closeAll()));

  // Search --------------------------------------------------------------------------------------------------------

  const input = PW.byId("search"), hits = PW.byId("hits");
  let found = [], at = 0, lower = null;
  const look = () => {
    const wanted = input.value.trim().toLowerCase();
    lower = lower || PW.model.names.map((n, v) => `${n} ${PW.model.type(v)} ${PW.model.path(v)}`.toLowerCase());
    found = [];
    let total = 0;
    if (wanted) for (let v = 0; v < lower.length; v += 1) if (lower[v].includes(wanted)) { total += 1; if (found.length < 40) found.push(v); }
    at = 0;
    const p = (current || graphs[0]).placement;
    const rows = found.map((v, i) => PW.el("li", { role: "option", id: `hit-${i}`, onpointerdown: (e) => { e.preventDefault(); choose(i); } },
      PW.chip(p.devices[p.device[v]].name), PW.el("span", { class: "name" }, PW.short(PW.model.names[v], 200)), PW.el("small", null, PW.model.type(v))));
    if (wanted) rows.push(PW.el("li", { class: "soft", role: "presentation" }, total > found.length ? `${PW.count(total)} found, the first ${found.length} shown` : `${PW.count(total)} found`));
    hits.replaceChildren(...rows);
    hits.hidden = !wanted;
    input.setAttribute("aria-expanded", String(!hits.hidden));
    point();
  };
  const point = () => {
    [...hits.children].forEach((li, i) => { if (i < found.length) li.setAttribute("aria-selected", String(i === at)); });
    if (found.length && !hits.hidden) { input.setAttribute("aria-activedescendant", `hit-${at}`); hits.children[at].scrollIntoView({ block: "nearest" }); } else input.removeAttribute("aria-activedescendant");
  };
  const choose = (i) => {
    if (found[i] === undefined) return;
    goTo(found[i]);
    closeHits();
    (current || graphs[0]).canvas.focus({ preventScroll: true });
  };
  const closeHits = () => { hits.hidden = true; input.setAttribute("aria-expanded", "false"); };
  input.addEventListener("input", look);
  input.addEventListener("focus", () => { if (input.value) look(); });
  input.addEventListener("blur", closeHits);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") at = Math.min(found.length - 1, at + 1);
    else if (event.key === "ArrowUp") at = Math.max(0, at - 1);
    else if (event.key === "Enter") { choose(at); return; }
    else if (event.key === "Escape") { input.value = ""; closeHits(); input.blur(); event.stopPropagation(); return; }
    else return;
    event.preventDefault();
    point();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); input.focus(); input.select(); }
    if (event.key === "Escape" && !typing) { PW.tip(); if (current) { const was = current; was.deselect(); timelines.forEach((t) => t.mark(-1)); current = null; PW.showDetails(was.placement, -1, goTo, was); } }
  });

  head();
  render();
  PW.state = () => ({ shown, graphs, timelines, current });
})();
