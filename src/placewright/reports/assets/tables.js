// Tables that sort by a click on a heading. Rows lead to the graph.
PW.table = (columns, rows, onRow) => {
  let by = -1, isDown = true;
  const body = PW.el("tbody");
  const heads = columns.map((column, i) => PW.el("th", { scope: "col", class: column.text ? "text" : null },
    PW.el("button", { type: "button", onclick: () => sort(i) }, column.name)));

  const row = (entry) => {
    const cells = columns.map((column) => PW.el("td", { class: column.text ? "text" : null },
      PW.el("span", { class: column.text ? "clip" : null }, column.show(entry))));
    if (!onRow) return PW.el("tr", null, ...cells);
    const onkeydown = (event) => { if (event.key === "Enter") onRow(entry); };
    return PW.el("tr", { class: "link", tabindex: "0", onclick: () => onRow(entry), onkeydown }, ...cells);
  };
  const sort = (i) => {
    isDown = by === i ? !isDown : !columns[i].text;
    by = i;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[i].setAttribute("aria-sort", isDown ? "descending" : "ascending");
    const { key } = columns[i], sign = isDown ? -1 : 1;
    const sorted = [...rows].sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : 0));
    body.replaceChildren(...sorted.map(row));
  };
  body.append(...rows.map(row));
  return PW.el("table", { class: "data" }, PW.el("thead", null, PW.el("tr", null, ...heads)), body);
};

PW.rowsOf = ({ total, ...columns }) => {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, i) => Object.fromEntries(names.map((k) => [k, columns[k][i]])));
};

PW.numberColumn = (name, field, show) => ({ name, key: (r) => r[field] ?? -1, show: (r) => show(r[field]) });

PW.textColumn = (name, text) => ({ name, text: true, key: text, show: (r) => PW.short(text(r), 140) });

PW.deviceColumn = (name, device) => ({ name, text: true, key: device, show: (r) => PW.deviceTag(device(r)) });

PW.showTables = (shown, goTo, goToSegment) => {
  const panel = (p, content) =>
    PW.el("div", { class: "panel" }, shown.length > 1 && PW.el("h3", null, p.label), content);
  const segments = (p) => PW.table([
    PW.numberColumn("segment", "segment", (s) => PW.count(s + 1)),
    PW.deviceColumn("device", (r) => p.devices[r.device].name),
    PW.numberColumn("operators", "ops", PW.count),
    PW.numberColumn("compute", "compute", (t) => PW.time(t)),
    PW.numberColumn("in", "bytes_in", PW.bytes),
    PW.numberColumn("out", "bytes_out", PW.bytes),
    PW.textColumn("begins with", (r) => PW.model.names[r.first]),
  ], PW.rowsOf(p.segment_rows), (r) => goToSegment(p, r.segment));
  const copies = (p) => PW.table([
    PW.textColumn("output of", (r) => PW.model.names[r.op]),
    PW.deviceColumn("from", (r) => p.devices[r.from].name),
    PW.deviceColumn("to", (r) => p.devices[r.to].name),
    PW.numberColumn("size", "bytes", PW.bytes),
    PW.numberColumn("takes", "took", (t) => PW.time(t)),
  ], PW.rowsOf(p.copy_rows), (r) => goTo(r.op, p));
  const nothing = () => PW.el("p", { class: "hint" }, "Nothing moves between devices.");

  PW.byId("segments").replaceChildren(...shown.map((p) => panel(p, segments(p))));
  PW.byId("copies").replaceChildren(...shown.map((p) => panel(p, p.copy_rows.total ? copies(p) : nothing())));
  const left = (rows, here, which) =>
    rows.total > here ? `The ${PW.count(here)} ${which} of ${PW.count(rows.total)}.` : "";
  PW.byId("segments-note").textContent =
    shown.map((p) => left(p.segment_rows, p.segment_rows.segment.length, "longest")).filter(Boolean).join(" ") ||
    "Stretches of operators that one device runs without waiting for another.";
  PW.byId("copies-note").textContent =
    shown.map((p) => left(p.copy_rows, p.copy_rows.op.length, "largest")).filter(Boolean).join(" ") ||
    "Tensors that change device.";
};

PW.showChanges = (shown) => {
  PW.byId("changes").hidden = shown.length < 2;
  if (shown.length < 2) return;
  const [a, b] = shown, changes = PW.data.changes[b.number - 1], moved = changes.ops.length;
  PW.byId("changes-heading").textContent =
    moved ? `What changed: ${PW.count(moved)} of ${PW.count(PW.model.n)} operators moved` : "Nothing changed";
  const compute = (r) => `${PW.time(r.from_s, 3)} → ${PW.time(r.to_s, 3)}`;
  const table = () => PW.table([
    PW.textColumn("module", (r) => r.path),
    PW.numberColumn("operators", "ops", PW.count),
    PW.deviceColumn(a.label, (r) => r.from_device),
    PW.deviceColumn(b.label, (r) => r.to_device),
    { name: "compute", key: (r) => r.from_s, show: compute },
  ], changes.groups);
  PW.byId("changes-body").replaceChildren(moved ? PW.el("div", { class: "panel" }, table()) : "");
};
