// The answer in five seconds: the value, what was gained, what is proven, and who does how much.
PW.bestAlone = (p) => {
  let best = null;
  for (const d of p.devices) if (d.alone !== null && (best === null || d.alone < best.alone)) best = d;
  return best;
};

// A pipeline's time per sample says nothing about the time for one sample: such values are not set against each other.
PW.areComparable = (a, b) => a.objective === b.objective && a.execution === b.execution;

PW.measuredOf = (p) => p.run || p.measured;

PW.showSummary = (shown) => {
  const last = shown[shown.length - 1], first = shown[0];
  const before = shown.length > 1 && PW.areComparable(first, last) ? first : null;
  PW.byId("summary").replaceChildren(PW.headline(last, before), PW.comparison(shown), PW.loads(shown));
  PW.byId("faults").replaceChildren(...shown.filter((p) => p.faults.length).map((p) => {
    const more = p.faults.length + p.more_faults - 5;
    return PW.el("div", { class: "banner", role: "alert" }, PW.el("b", null, `${p.label} is not valid: `),
      p.faults.slice(0, 5).join("; "), more > 0 ? ` and ${PW.count(more)} more` : "");
  }));
};

// The first card: value, gain, proof -------------------------------------------------------------------------------

PW.headline = (p, before) => {
  const isThroughput = p.objective === "throughput", alone = PW.bestAlone(p), measured = PW.measuredOf(p);
  const rate = isThroughput && PW.unit === "s" && p.value > 0 ? ` ${PW.count(Math.round(1 / p.value))} per second` : "";
  const parts = [
    PW.el("h2", null, isThroughput ? "Time per sample of a full pipeline" : "Time for one sample"),
    PW.el("p", { class: "big" }, PW.time(p.value, 3), rate && PW.el("small", null, rate)),
  ];
  if (before) parts.push(PW.gain(p.value, before.value, `than ${before.label} (${PW.time(before.value, 3)})`));
  else if (alone) parts.push(PW.gain(p.value, alone.alone, `than ${alone.name} alone`));
  else parts.push(PW.el("p", { class: "gain" }, "No single device may hold everything."));
  if (before && alone && p.value !== null) {
    const text = `${PW.percent(1 - p.value / alone.alone)} ${p.value < alone.alone ? "less" : "more"}`;
    parts.push(PW.el("p", { class: "proof" }, `${text} than ${alone.name} alone (${PW.time(alone.alone, 3)}).`));
  }
  parts.push(PW.proof(p));
  if (measured) parts.push(PW.measuredText(measured));
  return PW.el("div", { class: "card" }, ...parts);
};

PW.gain = (ours, theirs, rest) => {
  if (ours === null || !(theirs > 0)) return "";
  const change = 1 - ours / theirs;
  if (Math.abs(change) < 5e-5) return PW.el("p", { class: "gain" }, `No different ${rest}`);
  const text = `${PW.percent(change)} ${change > 0 ? "less time" : "more time"} ${rest}`;
  return PW.el("p", { class: "gain " + (change > 0 ? "good" : "bad") }, text);
};

PW.proof = (p) => {
  const say = (...parts) => PW.el("p", { class: "proof" }, ...parts), strong = (text) => PW.el("b", null, text);
  if (p.faults.length) return say("This placement breaks rules or limits; see above.");
  if (p.status === "optimal") return say(strong("Proven optimal: "), "under this model nothing is better.");
  if (!p.bound) return say("Nothing is proven about the best possible value.");
  const near = [strong(`within ${PW.percent(p.gap)}`), " of the best possible."];
  const far = () => [strong(`at most ${PW.digits(p.gap + 1, 3)} times`), " the best possible."];
  const bound = strong(PW.time(p.bound, 3));
  return say("Proven: no placement is below ", bound, ", so this one is ", ...(p.gap < 1 ? near : far()));
};

PW.measuredText = (m) => {
  const interval = m.interval ? ` (95%: ${PW.time(m.interval[0], 3)} to ${PW.time(m.interval[1], 3)})` : "";
  const off = m.predicted ? `, ${PW.signed(m.value / m.predicted - 1)} of the prediction.` : ".";
  const time = PW.el("b", null, PW.time(m.value, 3));
  return PW.el("p", { class: "proof" }, `Measured with ${m.runtime || "a runtime"}: `, time, interval + off);
};

// The second card: bars to one scale -------------------------------------------------------------------------------

PW.comparison = (shown) => {
  const rows = [...shown.flatMap((p, i) => ownRows(p, i < shown.length - 1)), ...aloneRows(shown[shown.length - 1])];
  const boundOf = (p) => (p.faults.length ? 0 : p.bound || 0);
  const bounds = shown.every((p) => PW.areComparable(p, shown[0]))
    ? [{ name: "proven bound", value: Math.max(...shown.map(boundOf)), kind: "bound" }]
    : shown.map((p) => ({ name: `${p.label}, proven bound`, value: boundOf(p), kind: "bound" }));
  rows.push(...bounds.filter((r) => r.value > 0));
  const most = Math.max(...rows.map((r) => (r.interval ? r.interval[1] : r.value) || 0)) || 1;
  const cells = rows.flatMap((r) => [
    PW.el("span", { class: "name" + (r.isOwn ? " strong" : ""), title: r.name }, r.name),
    PW.el("span", { class: "track" },
      r.value !== null && PW.el("i", { class: "fill " + (r.kind || ""), width: `${(100 * r.value) / most}%` }),
      r.interval && whisker(r.interval, most)),
    PW.el("span", { class: "value" + (r.isOwn ? " strong" : "") },
      r.value === null ? "not possible" : PW.time(r.value, 3)),
  ]);
  const bars = PW.el("div", { class: "bars" }, ...cells);
  return PW.el("div", { class: "card" },
    PW.el("h2", null, "Time per sample: less is better"), PW.el("div", { class: "scroll" }, bars));

  function ownRows(p, isOther) {
    const kind = isOther ? "ours other" : "ours", m = PW.measuredOf(p);
    const own = [{ name: shown.length > 1 ? p.label : "this placement", value: p.value, kind, isOwn: true }];
    const name = shown.length > 1 ? `${p.label}, measured` : "measured";
    return m ? [...own, { name, value: m.value, interval: m.interval, kind, isOwn: true }] : own;
  }
  function aloneRows(p) {
    const groups = new Map(), m = PW.measuredOf(p), found = [];
    for (const d of p.devices) {
      const key = `${d.kind} ${d.alone}`;
      groups.set(key, [...(groups.get(key) || []), d]);
    }
    for (const [first, ...others] of groups.values()) {
      const kind = p.kindName(p.devices.indexOf(first));
      const name = others.length ? `each of ${PW.count(others.length + 1)} ${kind}` : first.name;
      found.push({ name: `${name} alone`, value: first.alone });
      if (m && m.single[first.name]) found.push({ name: `${name}, measured`, value: m.single[first.name] });
    }
    return found;
  }
  function whisker([low, high], scale) {
    const width = `max(4px, ${(100 * (high - low)) / scale}%)`;
    return PW.el("i", { class: "whisker", left: `${(100 * low) / scale}%`, width });
  }
};

// The third card: devices ------------------------------------------------------------------------------------------

PW.loads = (shown) => {
  const body = shown.flatMap((p) => [
    ...(shown.length > 1 ? [PW.el("tr", null, PW.el("td", { colspan: "5" }, PW.el("h3", null, p.label)))] : []),
    ...p.devices.map((d) => row(p, d)),
  ]);
  const heads = ["device", "", "busy", "operators"].map((h) => PW.el("th", { scope: "col" }, h));
  heads.push(PW.el("th", { scope: "col", class: "optional" }, "memory"));
  const table = PW.el("table", { class: "loads" },
    PW.el("thead", null, PW.el("tr", null, ...heads)), PW.el("tbody", null, ...body));
  return PW.el("div", { class: "card" }, PW.el("h2", null, "Who does what"), PW.el("div", { class: "scroll" }, table));

  function row(p, d) {
    const isUsed = d.ops > 0 || d.replica_of >= 0, busy = isUsed && p.value > 0 ? Math.min(1, d.load / p.value) : 0;
    const label = `busy ${PW.percent(busy, 0)}`;
    const meter = PW.el("span", { class: "meter", colour: PW.colour(d.name), role: "img", "aria-label": label },
      PW.el("i", { width: `${100 * busy}%` }));
    return PW.el("tr", { title: d.idle || null },
      PW.el("td", null, PW.deviceTag(d.name)),
      PW.el("td", { class: "wide" }, meter),
      PW.el("td", null, isUsed ? PW.percent(busy, 0) : "idle"),
      PW.el("td", null, d.replica_of >= 0 ? `as ${p.devices[d.replica_of].name}` : PW.count(d.ops)),
      PW.el("td", { class: "optional" }, PW.bytes(d.memory) + (d.limit === null ? "" : ` of ${PW.bytes(d.limit)}`)));
  }
};
