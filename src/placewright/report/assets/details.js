// What is known about a node: tooltip for a glance, side panel for a look.
PW.tooltip = (p, node) => {
  if (node < p.nBoxes) {
    const rows = PW.nodeDevices(p, node).map(({ d, part }) => PW.tipRow(p.devices[d].name, PW.many(p.opCount[node][d], "op") + (part < 1 ? `, ${PW.percent(part, 0)} of the time` : "")));
    return [PW.el("b", null, PW.short(PW.nodeLabel(p, node), 200)), ...rows, PW.tipRow("compute", PW.time(PW.nodeTime(p, node)))];
  }
  const v = node - p.nBoxes, rows = [PW.el("b", null, PW.short(PW.model.names[v], 200))];
  if (PW.model.type(v)) rows.push(PW.tipRow("type", PW.model.type(v)));
  if (PW.model.shape(v)) rows.push(PW.tipRow("output", PW.short(PW.model.shape(v), 60)));
  p.devices.slice(0, 8).forEach((device, d) => {
    const here = p.device[v] === d, cost = p.costOf(v, d);
    if (!here && isTwin(p, d)) return;
    rows.push(PW.tipRow(`on ${device.name}${here ? " (here)" : ""}`, cost === null ? "cannot run" : PW.time(cost) + moveText(p, v, d)));
  });
  rows.push(PW.el("span", { class: "soft" }, PW.whyHere(p, v)));
  return rows;

  function moveText(q, op, d) {
    const value = q.valueIfMoved(op, d);
    if (q.device[op] === d || value === undefined || value === null) return "";
    return value === -1 ? ", not allowed" : value === -2 ? ", breaks a limit" : `, total ${PW.signed(value / q.value - 1)}`;
  }
  function isTwin(q, d) {
    return p.devices.length > 4 && q.devices.findIndex((o) => o.kind === q.devices[d].kind) !== d;
  }
};

PW.whyHere = (p, v) => {
  const here = p.devices[p.device[v]].name;
  if (p.devices.length === 1) return "There is only one device.";
  if (!p.moveRow.has(v)) return "Other devices were not tried for this operator: in a graph of this size only the heaviest are.";
  let best = null, lowest = Infinity, allowed = 0;
  p.devices.forEach((device, d) => {
    const value = p.valueIfMoved(v, d);
    if (d === p.device[v] || value === null) return;
    if (value !== -1) allowed += 1;
    if (value >= 0 && value < lowest) { lowest = value; best = device.name; }
  });
  if (allowed === 0) return `It may run on ${here} only.`;
  if (best === null) return `Moved alone to any other device it would break a limit or the order of stages.`;
  const change = lowest / p.value - 1;
  if (Math.abs(change) < 1e-6) return `Moved alone to ${best}, the total would stay the same: it is not on the critical path.`;
  if (change < 0) return `Moved alone to ${best}, the total would be ${PW.percent(change, Math.abs(change) < 0.001 ? 3 : 1)} less, which ${p.placer} did not find.`;
  return `Moved alone to ${best}, the best other device for it, the total would be ${PW.time(lowest)} (${PW.signed(change)}).`;
};

PW.showDetails = (p, node, goTo, view) => {
  const panel = PW.byId("details");
  if (!p || node < 0) {
    panel.replaceChildren(PW.el("p", { class: "empty" }, "Select a box to see what it holds, what it costs on each device, and why it is where it is."), ...overview(p || PW.placements[0]));
    return;
  }
  panel.replaceChildren(...(node < p.nBoxes ? box() : op(node - p.nBoxes)));
  panel.scrollTop = 0;

  function tag(names) {
    return PW.el("div", null, ...names.map((n) => PW.el("span", { class: "tag" }, PW.deviceTag(n), " ")));
  }
  function list(title, entries) {
    if (!entries.length) return [];
    const shown = entries.slice(0, 8).map(([v, note]) => PW.el("li", null, PW.el("button", { type: "button", onclick: () => goTo(v) }, PW.short(PW.model.names[v], 120)), PW.el("span", { class: "soft" }, " " + note)));
    if (entries.length > 8) shown.push(PW.el("li", { class: "soft" }, `and ${PW.count(entries.length - 8)} more`));
    return [PW.el("h4", null, title), PW.el("ul", null, ...shown)];
  }
  function facts(pairs) {
    return PW.el("dl", null, ...pairs.filter((x) => x && x[1]).flatMap(([k, v]) => [PW.el("dt", null, k), PW.el("dd", null, v)]));
  }
  function box() {
    const count = p.boxes.end[node] - p.boxes.start[node], ops = p.order.slice(p.boxes.start[node], p.boxes.end[node]);
    const heaviest = ops.map((v) => [v, p.timeOf(v)]).sort((a, b) => b[1] - a[1]).slice(0, 8).map(([v, t]) => [v, PW.time(t, 3)]);
    const devices = PW.nodeDevices(p, node).map(({ d }) => p.devices[d].name);
    let weights = 0;
    for (const v of ops) weights += PW.model.weightBytes[v];
    return [
      PW.el("h3", { class: "name" }, PW.nodeLabel(p, node)), tag(devices),
      facts([["operators", PW.count(count)], ["compute", PW.time(PW.nodeTime(p, node))], ["weights", weights ? PW.bytes(weights) : ""], ["segment", p.boxes.kind[node] === "segments" ? "" : PW.count(p.segment[ops[0]] + 1)]]),
      PW.el("button", { type: "button", onclick: () => view.toggle(node) }, "Open or close"),
      ...list("Heaviest operators", heaviest),
    ];
  }
  function op(v) {
    const m = PW.model, inputs = [], outputs = [], seen = new Set();
    for (let i = m.inPtr[v]; i < m.inPtr[v + 1]; i += 1) { const e = m.inEdge[i]; inputs.push([m.from[e], flow(e)]); }
    for (let e = m.outPtr[v]; e < m.outPtr[v + 1]; e += 1) if (!seen.has(m.to[e])) { seen.add(m.to[e]); outputs.push([m.to[e], flow(e)]); }
    return [
      PW.el("h3", { class: "name" }, m.names[v]), tag([p.devices[p.device[v]].name]),
      facts([["type", m.type(v)], ["module", m.path(v)], ["output", m.shape(v)], ["weights", m.weightBytes[v] ? PW.bytes(m.weightBytes[v]) : ""], ["work", m.flops[v] ? flops(m.flops[v]) : ""], ["segment", PW.count(p.segment[v] + 1)], ["pass", m.backward.has(v) ? "backward" : ""]]),
      costs(v), PW.el("p", { class: "why" }, PW.whyHere(p, v)),
      ...list("Reads from", inputs), ...list("Read by", outputs),
    ];
  }
  function flops(value) {
    const units = ["flop", "kflop", "Mflop", "Gflop", "Tflop"];
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
    return `${PW.digits(value, 3)} ${units[unit]}`;
  }
  function flow(e) {
    const a = p.devices[p.device[PW.model.from[e]]].name, b = p.devices[p.device[PW.model.to[e]]].name, bytes = PW.bytes(PW.model.tensorBytes[PW.model.tensor[e]]);
    return a === b ? bytes : `${bytes}, ${a} → ${b}`;
  }
  function costs(v) {
    const rows = p.devices.map((device, d) => {
      const cost = p.costOf(v, d), value = p.valueIfMoved(v, d), here = p.device[v] === d;
      const text = here ? PW.time(p.value) : value === undefined ? "not tried" : value === null ? "—" : value === -1 ? "not allowed" : value === -2 ? "breaks a limit" : `${PW.time(value)} (${PW.signed(value / p.value - 1)})`;
      return PW.el("tr", null, PW.el("td", null, PW.deviceTag(device.name)), PW.el("td", null, cost === null ? "cannot run" : PW.time(cost, 3)), PW.el("td", null, here ? PW.el("b", null, text) : text));
    });
    return PW.el("table", { class: "data" }, PW.el("thead", null, PW.el("tr", null, ...["device", "this op", "total if here"].map((h) => PW.el("th", { scope: "col" }, h)))), PW.el("tbody", null, ...rows));
  }
  function overview(q) {
    const idle = q.devices.filter((d) => d.idle);
    return [
      facts([["operators", PW.count(PW.model.n)], ["segments", PW.count(q.segments)], ["moved", PW.bytes(q.bytes_moved)], ["placer", q.placer], ["search", q.seconds ? PW.digits(q.seconds, 3) + " s" : ""], ["note", q.note]]),
      ...(idle.length ? [PW.el("h4", null, "Idle devices"), PW.el("ul", null, ...idle.map((d) => PW.el("li", null, PW.deviceTag(d.name), ": " + d.idle)))] : []),
    ];
  }
};
