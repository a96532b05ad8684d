// What is known about a node: a tooltip for a glance, the side panel for a look.
PW.tooltip = (p, node) => (node < p.nBoxes ? PW.boxTooltip(p, node) : PW.opTooltip(p, node - p.nBoxes));

PW.boxTooltip = (p, box) => {
  const rows = PW.nodeDevices(p, box).map(({ d, part }) => {
    const share = part < 1 ? `, ${PW.percent(part, 0)} of the time` : "";
    return PW.tipRow(p.devices[d].name, PW.many(p.opCount[box][d], "op") + share);
  });
  const title = PW.el("b", null, PW.short(PW.nodeLabel(p, box), 200));
  return [title, ...rows, PW.tipRow("compute", PW.time(PW.nodeTime(p, box)))];
};

PW.opTooltip = (p, v) => {
  const rows = [PW.el("b", null, PW.short(PW.model.names[v], 200))];
  if (PW.model.type(v)) rows.push(PW.tipRow("type", PW.model.type(v)));
  if (PW.model.shape(v)) rows.push(PW.tipRow("output", PW.short(PW.model.shape(v), 60)));
  p.devices.forEach((device, d) => {
    const isHere = p.device[v] === d, cost = p.costOf(v, d);
    // Of many equal devices the first one speaks for all.
    const isTwin = p.devices.length > 4 && p.devices.findIndex((o) => o.kind === device.kind) !== d;
    if (isTwin && !isHere) return;
    const where = `on ${device.name}${isHere ? " (here)" : ""}`;
    const total = isHere ? "" : `, total ${PW.moveText(p, v, d)}`;
    rows.push(PW.tipRow(where, cost === null ? "cannot run" : PW.time(cost) + total));
  });
  rows.push(PW.el("span", { class: "soft" }, PW.whyHere(p, v)));
  return rows;
};

// The total if an op stood on another device, in words.
PW.moveText = (p, v, d) => {
  const value = p.valueIfMoved(v, d);
  if (value === undefined) return "not tried";
  if (value === null) return "—";
  if (value === -1) return "not allowed";
  if (value === -2) return "breaks a limit";
  return `${PW.time(value)} (${PW.signed(value / p.value - 1)})`;
};

PW.whyHere = (p, v) => {
  const here = p.devices[p.device[v]].name;
  if (p.devices.length === 1) return "There is only one device.";
  if (!p.moveRow.size) return "Other devices were not tried: stages share devices, or the value is not finite.";
  if (!p.moveRow.has(v)) return "Not tried elsewhere: in a graph of this size only the heaviest operators are.";
  let best = null, lowest = Infinity, allowed = 0;
  p.devices.forEach((device, d) => {
    const value = p.valueIfMoved(v, d);
    if (d === p.device[v] || value === null) return;
    if (value !== -1) allowed += 1;
    if (value >= 0 && value < lowest) {
      lowest = value;
      best = device.name;
    }
  });
  if (allowed === 0) return `It may run on ${here} only.`;
  if (best === null) return "Moved alone to any other device it would break a limit or the order of stages.";
  const change = lowest / p.value - 1, moved = `Moved alone to ${best}`;
  if (Math.abs(change) < 1e-6) return `${moved}, the total would stay the same: it is not what the total waits for.`;
  const total = `${PW.time(lowest)} (${PW.signed(change)})`;
  if (change > 0) return `${moved}, the best other device for it, the total would be ${total}.`;
  const gain = PW.percent(change, change > -0.001 ? 3 : 1);
  return `${moved}, the total would be ${gain} less, which ${p.placer} did not find.`;
};

PW.showDetails = (p, node, goTo, view) => {
  const panel = PW.byId("details");
  panel.replaceChildren(...(node < 0 ? overview() : node < p.nBoxes ? box(node) : op(node - p.nBoxes)));
  panel.scrollTop = 0;

  function overview() {
    const text = "Select a box to see what it holds, what it costs on each device, and why it is where it is.";
    const idle = p.devices.filter((d) => d.idle);
    const reasons = idle.map((d) => PW.el("li", null, PW.deviceTag(d.name), ": " + d.idle));
    return [
      PW.el("p", { class: "empty" }, text),
      facts([
        ["operators", PW.count(PW.model.n)], ["segments", PW.count(p.segments)], ["moved", PW.bytes(p.bytes_moved)],
        ["placer", p.placer], ["search", p.seconds ? PW.digits(p.seconds, 3) + " s" : ""], ["note", p.note],
      ]),
      ...(idle.length ? [PW.el("h4", null, "Idle devices"), PW.el("ul", null, ...reasons)] : []),
    ];
  }
  function box(b) {
    const ops = p.order.slice(p.boxes.start[b], p.boxes.end[b]);
    const weights = ops.reduce((sum, v) => sum + PW.model.weightBytes[v], 0);
    const heaviest = ops.map((v) => [v, p.timeOf(v)]).sort((x, y) => y[1] - x[1]).slice(0, 8);
    return [
      PW.el("h3", { class: "name" }, PW.nodeLabel(p, b)),
      tags(PW.nodeDevices(p, b).map(({ d }) => p.devices[d].name)),
      facts([
        ["operators", PW.count(ops.length)], ["compute", PW.time(PW.nodeTime(p, b))],
        ["weights", weights ? PW.bytes(weights) : ""],
        ["segment", p.boxes.kind[b] === "segments" ? "" : PW.count(p.segment[ops[0]] + 1)],
      ]),
      PW.el("button", { type: "button", onclick: () => view.toggle(b) }, "Open or close"),
      ...list("Heaviest operators", heaviest.map(([v, time]) => [v, PW.time(time, 3)])),
    ];
  }
  function op(v) {
    const m = PW.model, inputs = [], outputs = new Map();
    for (let i = m.inPtr[v]; i < m.inPtr[v + 1]; i += 1) inputs.push([m.from[m.inEdge[i]], flow(m.inEdge[i])]);
    for (let e = m.outPtr[v]; e < m.outPtr[v + 1]; e += 1) outputs.set(m.to[e], flow(e));
    return [
      PW.el("h3", { class: "name" }, m.names[v]),
      tags([p.devices[p.device[v]].name]),
      facts([
        ["type", m.type(v)], ["module", m.path(v)], ["output", m.shape(v)],
        ["weights", m.weightBytes[v] ? PW.bytes(m.weightBytes[v]) : ""],
        ["work", m.flops[v] ? PW.flops(m.flops[v]) : ""],
        ["segment", PW.count(p.segment[v] + 1)], ["pass", m.backward.has(v) ? "backward" : ""],
      ]),
      costs(v),
      PW.el("p", { class: "why" }, PW.whyHere(p, v)),
      ...list("Reads from", inputs),
      ...list("Read by", [...outputs]),
    ];
  }
  function costs(v) {
    const rows = p.devices.map((device, d) => {
      const cost = p.costOf(v, d), isHere = p.device[v] === d;
      return PW.el("tr", null,
        PW.el("td", null, PW.deviceTag(device.name)),
        PW.el("td", null, cost === null ? "cannot run" : PW.time(cost, 3)),
        PW.el("td", null, isHere ? PW.el("b", null, PW.time(p.value)) : PW.moveText(p, v, d)));
    });
    const heads = ["device", "this op", "total if here"].map((h) => PW.el("th", { scope: "col" }, h));
    return PW.el("table", { class: "data" },
      PW.el("thead", null, PW.el("tr", null, ...heads)), PW.el("tbody", null, ...rows));
  }
  function tags(names) {
    return PW.el("div", null, ...names.map((n) => PW.el("span", { class: "tag" }, PW.deviceTag(n))));
  }
  function facts(pairs) {
    const known = pairs.filter(([, value]) => value);
    return PW.el("dl", null, ...known.flatMap(([k, v]) => [PW.el("dt", null, k), PW.el("dd", null, v)]));
  }
  function list(title, entries) {
    if (!entries.length) return [];
    const rows = entries.slice(0, 8).map(([v, note]) => PW.el("li", null,
      PW.el("button", { type: "button", onclick: () => goTo(v) }, PW.short(PW.model.names[v], 120)),
      PW.el("span", { class: "soft" }, " " + note)));
    if (entries.length > 8) rows.push(PW.el("li", { class: "soft" }, `and ${PW.count(entries.length - 8)} more`));
    return [PW.el("h4", null, title), PW.el("ul", null, ...rows)];
  }
  function flow(e) {
    const a = p.devices[p.device[PW.model.from[e]]].name, b = p.devices[p.device[PW.model.to[e]]].name;
    const bytes = PW.bytes(PW.model.tensorBytes[PW.model.tensor[e]]);
    return a === b ? bytes : `${bytes}, ${a} → ${b}`;
  }
};
