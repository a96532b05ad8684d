// Tables that sort by a click on a heading. Rows lead to the graph.
PW.table = (columns, rows, onRow) => {
  let by = -1, down = true;
  const body = PW.el("tbody"), heads = columns.map((c, i) => PW.el("th", { scope: "col", class: c.text ? "text" : null }, PW.el("button", { type: "button", onclick: () => sort(i) }, c.name)));
  const fill = (order) => body.replaceChildren(...order.map((row) => {
    const cells = columns.map((c) => PW.el("td", { class: c.text ? "text" : null }, PW.el("span", { class: c.text ? "clip" : null }, c.show(row))));
    const go = () => onRow && onRow(row);
    return PW.el("tr", { class: onRow ? "link" : null, tabindex: onRow ? "0" : null, onclick: go, onkeydown: (e) => { if (e.key === "Enter") go(); } }, ...cells);
  }));
  const sort = (i) => {
    down = by === i ? !down : !columns[i].text;
    by = i;
    heads.forEach((h, k) => (k === i ? h.setAttribute("aria-sort", down ? "descending" : "ascending") : h.removeAttribute("aria-sort")));
    const key = columns[i].key;
    fill([...rows].sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); }));
  };
  fill(rows);
  return PW.el("table", { class: "data" }, PW.el("thead", null, PW.el("tr", null, ...heads)), body);
};

PW.rowsOf = (columns, n) => Array.from({ length: n }, (_, i) => Object.fromEntries(Object.keys(columns).map((k) => [k, columns[k][i]])));

PW.number = (name, field, show) => ({ name, key: (r) => r[field] ?? -1, show: (r) => show(r[field]) });

PW.deviceColumn = (p, name, field) => ({ name, text: true, key: (r) => p.devices[r[field]].name, show: (r) => PW.deviceTag(p.devices[r[field]].name) });

PW.showTables = (shown, goTo, goToSegment) => {
  const panel = (p, table, empty) => PW.el("div", { class: "panel" }, shown.length > 1 ? PW.el("h3", null, p.label) : "", table || PW.el("p", { class: "hint" }, empty));
  PW.byId("segments").replaceChildren(...shown.map((p) => {
    const { total, ...columns } = p.segment_rows;
    return panel(p, PW.table([
      PW.number("segment", "segment", (s) => PW.count(s + 1)),
      PW.deviceColumn(p, "device", "device"),
      PW.number("operators", "ops", PW.count),
      PW.number("compute", "compute", (t) => PW.time(t)),
      PW.number("in", "bytes_in", PW.bytes),
      PW.number("out", "bytes_out", PW.bytes),
      { name: "begins with", text: true, key: (r) => PW.model.names[r.first], show: (r) => PW.short(PW.model.names[r.first], 140) },
    ], PW.rowsOf(columns, columns.segment.length), (r) => goToSegment(p, r.segment)));
  }));
  PW.byId("copies").replaceChildren(...shown.map((p) => {
    const { total, ...columns } = p.copy_rows;
    return panel(p, total ? PW.table([
      { name: "output of", text: true, key: (r) => PW.model.names[r.op], show: (r) => PW.short(PW.model.names[r.op], 140) },
      PW.deviceColumn(p, "from", "from"),
      PW.deviceColumn(p, "to", "to"),
      PW.number("size", "bytes", PW.bytes),
      PW.number("takes", "took", (t) => PW.time(t)),
    ], PW.rowsOf(columns, columns.op.length), (r) => goTo(r.op, p)) : null, "Nothing moves between devices.");
  }));
  const cap = (rows, what) => shown.map((p) => rows(p)).map((r) => [r.total, (r.segment || r.op).length]).filter(([total, here]) => total > here).map(([total, here]) => `${PW.count(here)} ${what} of ${PW.count(total)}`).join("; ");
  PW.byId("segments-note").textContent = cap((p) => p.segment_rows, "longest") || "Stretches of operators that one device runs without waiting for another.";
  PW.byId("copies-note").textContent = cap((p) => p.copy_rows, "largest") || "Tensors that change device.";
};

PW.showChanges = (shown) => {
  const section = PW.byId("changes");
  section.hidden = shown.length < 2;
  if (section.hidden) return;
  const [a, b] = shown, changes = PW.data.changes[b.number - 1];
  PW.byId("changes-heading").textContent = changes.ops.length ? `What changed: ${PW.count(changes.ops.length)} of ${PW.count(PW.model.n)} operators moved` : "Nothing changed";
  const faster = (r) => (r.to_s === null || r.from_s === null ? "—" : `${PW.time(r.from_s, 3)} → ${PW.time(r.to_s, 3)}`);
  PW.byId("changes-body").replaceChildren(changes.groups.length ? PW.el("div", { class: "panel" }, PW.table([
    { name: "module", text: true, key: (r) => r.path, show: (r) => r.path },
    PW.number("operators", "ops", PW.count),
    { name: a.label, text: true, key: (r) => r.from_device, show: (r) => PW.deviceTag(r.from_device) },
    { name: b.label, text: true, key: (r) => r.to_device, show: (r) => PW.deviceTag(r.to_device) },
    { name: "compute", key: (r) => r.from_s, show: faster },
  ], changes.groups)) : "");
};
