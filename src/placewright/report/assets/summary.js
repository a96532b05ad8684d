// The answer in five seconds: the value, what was gained, what is proven, who does how much; memory and learning below.
PW.bestAlone = (p) => {
  let best = null;
  for (const d of p.devices) if (d.alone !== null && (best === null || d.alone < best.alone)) best = d;
  return best;
};

PW.showSummary = (shown) => {
  const main = shown[shown.length - 1];
  PW.byId("summary").replaceChildren(headline(main, shown.length > 1 ? shown[0] : null), comparison(shown), loads(shown));
  PW.byId("faults").replaceChildren(...shown.filter((p) => p.faults.length).map((p) =>
    PW.el("div", { class: "banner", role: "alert" }, PW.el("b", null, `${p.label} is not valid: `), p.faults.slice(0, 5).join("; "),
      p.faults.length + p.more_faults > 5 ? ` and ${PW.count(p.faults.length + p.more_faults - 5)} more` : "")));

  function headline(p, before) {
    const throughput = p.objective === "throughput", alone = PW.bestAlone(p);
    const measured = p.run || p.measured;
    const parts = [
      PW.el("h2", null, throughput ? "Time per sample of a full pipeline" : "Time for one sample"),
      PW.el("p", { class: "big" }, PW.time(p.value, 3), throughput && PW.unit === "s" && p.value > 0 ? PW.el("small", null, ` ${PW.count(Math.round(1 / p.value))} per second`) : ""),
    ];
    if (before) parts.push(gain(p.value, before.value, `than ${before.label} (${PW.time(before.value, 3)})`));
    else if (alone) parts.push(gain(p.value, alone.alone, `than ${alone.name} alone`));
    else parts.push(PW.el("p", { class: "gain" }, "No single device may hold everything."));
    if (before && alone) parts.push(PW.el("p", { class: "proof" }, `${PW.percent(1 - p.value / alone.alone)} ${p.value < alone.alone ? "less" : "more"} than ${alone.name} alone (${PW.time(alone.alone, 3)}).`));
    parts.push(proof(p));
    if (measured) parts.push(measuredText(measured));
    return PW.el("div", { class: "card" }, ...parts);
  }
  function gain(ours, theirs, rest) {
    if (ours === null || !(theirs > 0)) return "";
    const change = 1 - ours / theirs;
    if (Math.abs(change) < 5e-5) return PW.el("p", { class: "gain" }, `No different ${rest}`);
    return PW.el("p", { class: "gain " + (change > 0 ? "good" : "bad") }, `${PW.percent(change)} ${change > 0 ? "less time" : "more time"} ${rest}`);
  }
  function proof(p) {
    if (p.faults.length) return PW.el("p", { class: "proof" }, "This placement breaks rules or limits; see above.");
    if (p.status === "optimal") return PW.el("p", { class: "proof" }, PW.el("b", null, "Proven optimal: "), "no placement is better under this model of execution.");
    if (!p.bound) return PW.el("p", { class: "proof" }, "Nothing is proven about the best possible value.");
    return PW.el("p", { class: "proof" }, "Proven: no placement is below ", PW.el("b", null, PW.time(p.bound, 3)), ", so this one is ", PW.el("b", null, p.gap < 1 ? `within ${PW.percent(p.gap)}` : `at most ${PW.digits(p.gap + 1, 3)} times`), p.gap < 1 ? " of the best possible." : " the best possible.");
  }
  function measuredText(m) {
    const off = m.predicted ? m.value / m.predicted - 1 : null;
    return PW.el("p", { class: "proof" }, "Measured with ", m.runtime || "a runtime", ": ", PW.el("b", null, PW.time(m.value, 3)), m.interval ? ` (95%: ${PW.time(m.interval[0], 3)} to ${PW.time(m.interval[1], 3)})` : "", off !== null ? `, ${PW.signed(off)} of the prediction.` : ".");
  }

  function comparison(all) {
    const rows = [];
    all.forEach((p, i) => {
      rows.push({ name: all.length > 1 ? p.label : "this placement", value: p.value, kind: "ours" + (i < all.length - 1 ? " other" : ""), strong: true });
      const m = p.run || p.measured;
      if (m) rows.push({ name: all.length > 1 ? `${p.label}, measured` : "measured", value: m.value, interval: m.interval, kind: "ours" + (i < all.length - 1 ? " other" : ""), strong: true });
    });
    const groups = new Map();
    const last = all[all.length - 1];
    last.devices.forEach((d) => {
      const key = `${d.kind} ${d.alone}`;
      if (groups.has(key)) groups.get(key).push(d); else groups.set(key, [d]);
    });
    for (const group of groups.values()) {
      const name = group.length === 1 ? group[0].name : `each of ${PW.count(group.length)} ${last.kindName(last.devices.indexOf(group[0]))}`;
      rows.push({ name: `${name} alone`, value: group[0].alone, device: group[0].name });
      const m = last.run || last.measured, measured = m && m.single[group[0].name];
      if (measured) rows.push({ name: `${name}, measured`, value: measured, device: group[0].name });
    }
    const bound = Math.max(...all.map((p) => (p.faults.length ? 0 : p.bound || 0)));
    if (bound > 0) rows.push({ name: "proven bound", value: bound, kind: "bound" });
    const most = Math.max(...rows.map((r) => (r.interval ? r.interval[1] : r.value) || 0)) || 1;
    const cells = rows.flatMap((r) => [
      PW.el("span", { class: "name" + (r.strong ? " strong" : ""), title: r.name }, r.name),
      PW.el("span", { class: "track" },
        r.value !== null && PW.el("i", { class: "fill " + (r.kind || ""), width: `${(100 * r.value) / most}%` }),
        r.interval && whisker(r.interval, most)),
      PW.el("span", { class: "value" + (r.strong ? " strong" : "") }, r.value === null ? "not possible" : PW.time(r.value, 3)),
    ]);
    return PW.el("div", { class: "card" }, PW.el("h2", null, "Less is better"), PW.el("div", { class: "scroll" }, PW.el("div", { class: "bars" }, ...cells)));
  }
  function whisker([low, high], most) {
    return PW.el("i", { class: "whisker", left: `${(100 * low) / most}%`, width: `max(4px, ${(100 * (high - low)) / most}%)` });
  }

  function loads(all) {
    const body = [];
    for (const p of all) {
      if (all.length > 1) body.push(PW.el("tr", null, PW.el("td", { colspan: "5" }, PW.el("h3", null, p.label))));
      p.devices.forEach((d) => {
        const busy = p.value > 0 ? Math.min(1, d.load / p.value) : 0, used = d.ops > 0 || d.replica_of >= 0;
        const meter = PW.el("span", { class: "meter", colour: PW.colour(d.name), role: "img", "aria-label": `busy ${PW.percent(busy, 0)}` }, PW.el("i", { width: `${100 * (used ? busy : 0)}%` }));
        body.push(PW.el("tr", { title: d.idle || null }, PW.el("td", null, PW.deviceTag(d.name)), PW.el("td", { class: "wide" }, meter),
          PW.el("td", null, used ? PW.percent(busy, 0) : "idle"), PW.el("td", null, d.replica_of >= 0 ? `as ${p.devices[d.replica_of].name}` : PW.count(d.ops)),
          PW.el("td", { class: "optional" }, d.limit === null ? PW.bytes(d.memory) : `${PW.bytes(d.memory)} of ${PW.bytes(d.limit)}`)));
      });
    }
    const head = PW.el("tr", null, PW.el("th", { scope: "col" }, "device"), PW.el("th", { scope: "col" }, ""), PW.el("th", { scope: "col" }, "busy"), PW.el("th", { scope: "col" }, "operators"), PW.el("th", { scope: "col", class: "optional" }, "memory"));
    return PW.el("div", { class: "card" }, PW.el("h2", null, "Who does what"), PW.el("div", { class: "scroll" }, PW.el("table", { class: "loads" }, PW.el("thead", null, head), PW.el("tbody", null, ...body))));
  }
};

PW.showMemory = (shown) => {
  const charts = [];
  for (const p of shown) {
    p.devices.forEach((device, d) => {
      if (device.ops === 0) return;
      const of = device.limit === null ? "" : ` of ${PW.bytes(device.limit)} (${share(device.memory / device.limit)})`;
      charts.push(PW.el("div", { class: "chart" },
        PW.el("header", null, PW.deviceTag(device.name), shown.length > 1 ? PW.el("span", { class: "whose" }, p.label) : "", PW.el("span", { class: "soft" }, `peak ${PW.bytes(device.memory)}${of}`)),
        device.limit === null ? "" : PW.el("span", { class: "meter", colour: PW.colour(device.name), title: "share of the limit" }, PW.el("i", { width: `${Math.min(100, (100 * device.memory) / device.limit)}%` })),
        p.memory[d].timed ? memoryChart(p, p.memory[d], device) : ""));
    });
  }
  PW.byId("memory").replaceChildren(...charts);
  PW.byId("memory-note").textContent = shown[0].memory.some((m) => m.timed) ? "Weights and live activations over time. The bar is the share of the limit; a dashed line is the limit itself, where it is near." : "What is resident all along: this model of execution keeps no time for activations.";

  function share(part) {
    return part < 0.001 ? "below 0.1%" : PW.percent(part, part < 0.1 ? 1 : 0);
  }
  function memoryChart(p, curve, device) {
    const W = 300, H = 78, end = p.value || 1, peak = Math.max(device.memory, 1), near = device.limit !== null && device.limit < peak * 4;
    const top = (near ? Math.max(device.limit, peak) : peak) * 1.08, x = (t) => (W * Math.min(t, end)) / end, y = (b) => H - (H * b) / top;
    let path = `M0 ${H}`;
    curve.time.forEach((time, i) => { path += ` L${x(time).toFixed(1)} ${y(i ? curve.bytes[i - 1] : curve.bytes[0]).toFixed(1)} L${x(time).toFixed(1)} ${y(curve.bytes[i]).toFixed(1)}`; });
    path += ` L${W} ${y(curve.bytes[curve.bytes.length - 1]).toFixed(1)} L${W} ${H} Z`;
    const svg = PW.svg("svg", { viewBox: `0 0 ${W} ${H + 14}`, role: "img", "aria-label": `memory of ${device.name} over time` });
    const shape = PW.svg("path", { d: path, "fill-opacity": 0.3, "stroke-width": 1.3 });
    shape.style.fill = shape.style.stroke = PW.colour(device.name);
    svg.append(PW.svg("line", { class: "axis", x1: 0, x2: W, y1: H, y2: H }), shape);
    if (near) svg.append(PW.svg("line", { class: "limit", x1: 0, x2: W, y1: y(device.limit), y2: y(device.limit) }));
    svg.append(PW.svg("text", { x: 0, y: H + 12 }, "0"), PW.svg("text", { x: W, y: H + 12, "text-anchor": "end" }, PW.time(end, 3)));
    return svg;
  }
};

PW.showCurves = (shown) => {
  const learnt = shown.filter((p) => p.curve && p.curve.evaluations.length > 1);
  PW.byId("learning").hidden = !learnt.length;
  PW.byId("curves").replaceChildren(...learnt.map((p) => PW.el("div", { class: "chart" },
    PW.el("header", null, PW.el("b", null, p.label), PW.el("span", { class: "soft" }, `best ${PW.time(p.curve.best[p.curve.best.length - 1])} after ${PW.count(p.curve.evaluations[p.curve.evaluations.length - 1])} evaluations`)), curve(p))));

  function curve(p) {
    const W = 300, H = 120, c = p.curve, last = c.evaluations[c.evaluations.length - 1], alone = PW.bestAlone(p);
    const sorted = [...c.mean].sort((a, b) => a - b), high = Math.max(sorted[Math.floor(sorted.length * 0.95)], c.best[0], alone ? alone.alone : 0), low = Math.min(p.bound || Infinity, ...c.best);
    const x = (e) => (W * e) / last, y = (v) => 6 + (H - 12) * (1 - (Math.min(v, high) - low) / (high - low || 1));
    const path = (values) => "M" + values.map((v, i) => `${x(c.evaluations[i]).toFixed(1)} ${y(v).toFixed(1)}`).join(" L");
    const svg = PW.svg("svg", { viewBox: `0 0 ${W} ${H + 14}`, role: "img", "aria-label": "best and mean value over evaluations" });
    const line = (values, colour, width, opacity) => { const s = PW.svg("path", { d: path(values), fill: "none", "stroke-width": width, "stroke-opacity": opacity }); s.style.stroke = colour; return s; };
    const level = (value, name, below) => value > 0 && value >= low && value <= high ? [PW.svg("line", { class: "axis", x1: 0, x2: W, y1: y(value), y2: y(value), "stroke-dasharray": "4 3" }), PW.svg("text", { x: W, y: y(value) + (below ? 10 : -3), "text-anchor": "end" }, `${name} ${PW.time(value, 3)}`)] : [];
    svg.append(...level(p.bound, "proven bound", false), ...(alone ? level(alone.alone, `${alone.name} alone`, true) : []));
    svg.append(line(c.mean, PW.css("--edge"), 1.2, 1), line(c.best, PW.css("--good"), 2, 1));
    svg.append(PW.svg("text", { x: 0, y: H + 12 }, "0"), PW.svg("text", { x: W, y: H + 12, "text-anchor": "end" }, `${PW.count(last)} evaluations; green: best, grey: mean`));
    return svg;
  }
};
