// Ties everything together: which placements are shown, what is selected, colours, keys.
(() => {
  const data = JSON.parse(PW.byId("data").textContent);
  PW.data = data;
  PW.unit = data.model.unit;
  PW.model = PW.unpackModel(data.model);
  PW.deviceNumber = new Map();
  for (const { name } of data.placements.flatMap((p) => p.devices)) {
    if (!PW.deviceNumber.has(name)) PW.deviceNumber.set(name, PW.deviceNumber.size);
  }
  PW.placements = data.placements.map((p, i) => PW.unpackPlacement(p, i, data.costs, PW.model));

  let shown = PW.placements.length > 1 ? [0, 1] : [0], graphs = [], timelines = [], current = null;
  const views = () => shown.map((i) => PW.placements[i]);

  // Light and dark ------------------------------------------------------------------------------------------------

  const system = matchMedia("(prefers-color-scheme: dark)");
  // A page from disk may have no storage.
  const stored = (name) => {
    try {
      if (name) localStorage.setItem("placewright-theme", name);
      return localStorage.getItem("placewright-theme");
    } catch {
      return null;
    }
  };
  const wear = (name) => { document.documentElement.dataset.theme = name; };
  const bySystem = () => (system.matches ? "dark" : "light");
  wear(stored() || bySystem());
  system.addEventListener("change", () => {
    if (stored()) return;
    wear(bySystem());
    recolour();
  });
  PW.byId("theme").addEventListener("click", () => {
    wear(PW.theme() === "dark" ? "light" : "dark");
    stored(PW.theme());
    recolour();
  });

  // What is shown -------------------------------------------------------------------------------------------------

  const render = () => {
    graphs.forEach((g) => g.close());
    timelines.forEach((t) => t.close());
    current = null;
    graphs = views().map(graph);
    const span = Math.max(...views().map((p) => p.timeline.end || 0));
    timelines = views().map((p) => PW.timelineView(PW.byId("timelines"), p, {
      span, title: shown.length > 1 ? p.label : "", onSelect: (v) => goTo(v, p),
    }));
    recolour();
  };
  const graph = (p) => {
    const isCompared = shown.length > 1, moved = isCompared ? new Set(data.changes[shown[1] - 1].ops) : null;
    const caption = isCompared && PW.el("div", { class: "caption" }, `${p.label} · ${PW.time(p.value, 3)}`);
    const holder = PW.el("div", { class: "graph" }, caption);
    PW.byId("graphs").append(holder);
    const view = PW.graphView(holder, p, {
      mostAtFirst: innerWidth < 720 ? 24 : isCompared ? 40 : 64,
      isChanged: moved && ((v) => moved.has(v)),
      onSelect: (node) => {
        current = view;
        graphs.forEach((g) => { if (g !== view) g.deselect(); });
        timelines.forEach((t) => t.mark(node >= p.nBoxes ? node - p.nBoxes : -1));
        PW.showDetails(p, node, goTo, view);
      },
    });
    return view;
  };
  const recolour = () => {
    PW.showSummary(views());
    PW.showMemory(views());
    PW.showCurves(views());
    PW.showTables(views(), goTo, goToSegment);
    PW.showChanges(views());
    legend();
    graphs.forEach((g) => g.redraw());
    timelines.forEach((t) => t.redraw());
    PW.showDetails(current ? current.placement : views()[0], current ? current.selected() : -1, goTo, current);
  };
  const legend = () => {
    const used = new Set(views().flatMap((p) => p.devices.filter((d) => d.ops > 0).map((d) => d.name)));
    const line = (name, text) => PW.el("li", null, PW.el("span", { class: name, "aria-hidden": "true" }), text);
    const entries = [...used].map((name) => PW.el("li", null, PW.deviceTag(name)));
    if (views().some((p) => p.bytes_moved > 0)) entries.push(line("line", "copy between devices"));
    if (shown.length > 1) entries.push(line("line moved", "share that moved"));
    PW.byId("legend").replaceChildren(...entries);
  };

  // Going somewhere -----------------------------------------------------------------------------------------------

  const graphOf = (p) => graphs.find((g) => g.placement === p) || current || graphs[0];
  function goTo(v, p) {
    graphOf(p).reveal(v);
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
  const letGo = () => {
    PW.tip();
    graphs.forEach((g) => g.deselect());
    timelines.forEach((t) => t.mark(-1));
    if (current) PW.showDetails(current.placement, -1, goTo, current);
    current = null;
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !(event.target instanceof HTMLInputElement)) letGo();
  });

  // Head and tools ------------------------------------------------------------------------------------------------

  const head = () => {
    const p = PW.placements[0];
    const search = (q) => [
      `${q.label}: placer ${q.placer}`, `seed ${q.seed}`, q.evaluations && PW.many(q.evaluations, "evaluation"),
      q.seconds && `${PW.digits(q.seconds, 3)} s`,
    ].filter(Boolean).join(", ");
    PW.byId("title").textContent = PW.model.name;
    const size = `${PW.many(PW.model.n, "operator")} on ${PW.many(p.devices.length, "device")}`;
    PW.byId("subtitle").textContent = `${size} · ${p.objective}, execution model ${p.execution}`;
    PW.byId("timeline-note").textContent = p.execution === "pipeline"
      ? "How one sample fills each device's load; the fullest device sets the pace. Pale bars are copies."
      : "Compute per device, copies per link (pale). Ctrl and wheel zoom, drag moves, double-click shows all.";
    PW.byId("provenance").textContent = [...PW.placements.map(search), "written by placewright"].join(" · ");
  };
  const chooser = () => {
    const group = PW.byId("views"), isPair = PW.placements.length === 2;
    const choices = PW.placements.map((p, i) => ({ name: p.label, shown: [i] }));
    PW.placements.slice(1).forEach((_, i) => {
      choices.push({ name: isPair ? "Side by side" : `1 ↔ ${i + 2}`, shown: [0, i + 1] });
    });
    group.hidden = PW.placements.length < 2;
    const mark = () => [...group.children].forEach((button, i) =>
      button.setAttribute("aria-pressed", String(String(choices[i].shown) === String(shown))));
    group.replaceChildren(...choices.map((choice) => {
      const onclick = () => {
        shown = choice.shown;
        mark();
        render();
      };
      return PW.el("button", { type: "button", onclick }, choice.name);
    }));
    mark();
  };
  const press = (id, action) => PW.byId(id).addEventListener("click", () => graphs.forEach(action));
  press("zoom-in", (g) => g.zoom(1.3));
  press("zoom-out", (g) => g.zoom(1 / 1.3));
  press("fit", (g) => g.fit());
  press("open-more", (g) => g.openMore());
  press("close-all", (g) => g.closeAll());
  const inFront = () => current || graphs[0];
  PW.searchBox(() => inFront().placement, goTo, () => inFront().canvas.focus({ preventScroll: true }));

  head();
  chooser();
  render();
  PW.state = () => ({ shown, graphs, timelines, current });
})();
