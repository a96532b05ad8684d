// The graph of one placement on a canvas: pan, zoom, open, close, select, by mouse, touch or keys.
PW.graphView = (holder, p, { onSelect, isChanged, mostAtFirst }) => {
  const canvas = PW.el("canvas", { tabindex: "0", role: "application", "aria-label": `Graph of ${p.label}: segments, modules and operators by device` });
  holder.append(canvas);
  let open = new Set([0]), plan = null, selected = -1, hovered = -1, nudge = null, fitted = true;
  const view = { scale: 1, x: 0, y: 0 };
  const redraw = PW.sharpCanvas(canvas, (c, width, height) => { if (plan) paint(c, width, height); });

  const relayout = () => {
    plan = PW.layout(p, open, Math.max(0.6, canvas.clientWidth / Math.max(1, canvas.clientHeight)));
    plan.crossing = plan.edges.filter((e) => e.crosses).length;
  };
  const nodeOf = (key) => plan.nodes.findIndex((n) => n.key === key);

  const fit = () => {
    const pad = 22, top = holder.querySelector(".caption") ? 34 : 0, w = canvas.clientWidth - 2 * pad, h = canvas.clientHeight - 2 * pad - top;
    view.scale = Math.min(1.6, Math.max(0.005, Math.min(w / plan.w, h / plan.h)));
    view.x = pad + (w - plan.w * view.scale) / 2;
    view.y = pad + top + (h - plan.h * view.scale) / 2;
    fitted = true;
    redraw();
  };
  const zoom = (factor, cx = canvas.clientWidth / 2, cy = canvas.clientHeight / 2) => {
    const scale = Math.min(4, Math.max(0.005, view.scale * factor)), f = scale / view.scale;
    view.x = cx - (cx - view.x) * f;
    view.y = cy - (cy - view.y) * f;
    view.scale = scale;
    fitted = false;
    redraw();
  };
  const centre = (node, leastScale) => {
    view.scale = Math.max(view.scale, leastScale);
    view.x = canvas.clientWidth / 2 - (node.x + node.w / 2) * view.scale;
    view.y = canvas.clientHeight / 2 - (node.y + Math.min(node.h, 200) / 2) * view.scale;
    fitted = false;
    redraw();
  };
  const keepInSight = (node) => {
    const x = node.x * view.scale + view.x, y = node.y * view.scale + view.y;
    if (x < 10 || y < 10 || x + node.w * view.scale > canvas.clientWidth - 10 || y + node.h * view.scale > canvas.clientHeight - 10) centre(node, view.scale);
  };

  const toggle = (key) => {
    if (key >= p.nBoxes || key === 0) return;
    const before = plan.nodes[nodeOf(key)], x = before.x * view.scale + view.x, y = before.y * view.scale + view.y;
    if (open.has(key)) open.delete(key); else open.add(key);
    relayout();
    const after = plan.nodes[nodeOf(key)];
    if (fitted) fit();
    else { view.x = x - after.x * view.scale; view.y = y - after.y * view.scale; }
    select(key, { quiet: true });
    redraw();
  };
  const select = (key, { quiet } = {}) => {
    selected = key;
    if (!quiet || key >= 0) onSelect(key);
    redraw();
  };
  const reveal = (v) => {
    PW.boxesAround(p, v).forEach((b) => open.add(b));
    relayout();
    selected = p.nBoxes + v;
    centre(plan.nodes[nodeOf(selected)], 0.9);
  };
  const revealSegment = (segment) => {
    const box = p.boxes.kind.findIndex((kind, b) => kind === "segment" && p.segment[p.order[p.boxes.start[b]]] === segment);
    for (let b = p.boxes.parent[box]; b > 0; b = p.boxes.parent[b]) open.add(b);
    relayout();
    const whole = p.boxes.end[box] - p.boxes.start[box] === 1 ? p.nBoxes + p.order[p.boxes.start[box]] : box;
    select(whole);
    centre(plan.nodes[nodeOf(whole)], 0.4);
  };
  const openMore = () => {
    const closed = plan.nodes.filter((n) => !n.open && n.key < p.nBoxes);
    closed.forEach((n) => open.add(n.key));
    relayout();
    fit();
  };
  const closeAll = () => { open = new Set([0]); relayout(); fit(); };

  const at = (event) => {
    const box = canvas.getBoundingClientRect(), x = (event.clientX - box.left - view.x) / view.scale, y = (event.clientY - box.top - view.y) / view.scale;
    for (let i = plan.nodes.length - 1; i >= 0; i -= 1) {
      const n = plan.nodes[i];
      if (x >= n.x && x <= n.x + n.w && y >= n.y && y <= n.y + n.h) return i;
    }
    return -1;
  };

  // Drawing -------------------------------------------------------------------------------------------------------

  const paint = (c, width, height) => {
    const ink = PW.css("--ink"), soft = PW.css("--soft"), card = PW.css("--card"), edgeColour = PW.css("--edge"), copyColour = PW.css("--copy");
    const s = view.scale, near = selected >= 0 ? nodeOf(selected) : -1;
    const seen = (n) => n.x * s + view.x < width && (n.x + n.w) * s + view.x > 0 && n.y * s + view.y < height && (n.y + n.h) * s + view.y > 0;
    c.save();
    c.translate(view.x, view.y);
    c.scale(s, s);
    c.lineJoin = "round";
    for (const n of plan.nodes) if (n.open && seen(n)) frame(c, n, s, ink, soft, card);
    const edges = plan.edges.length > 4000 && s < 0.25 ? plan.edges.filter((e) => e.crosses) : plan.edges;
    for (const strong of [false, true]) for (const e of edges) if (Boolean(e.crosses) === strong) edge(c, e, s, near, strong ? copyColour : edgeColour, width, height);
    for (let i = 0; i < plan.nodes.length; i += 1) if (!plan.nodes[i].open && seen(plan.nodes[i])) leaf(c, plan.nodes[i], s, ink, card, i === hovered);
    const mark = near >= 0 ? plan.nodes[near] : null;
    if (mark) {
      c.strokeStyle = PW.css("--focus");
      c.lineWidth = 2.5 / Math.min(1, s);
      c.beginPath();
      c.roundRect(mark.x - 3, mark.y - 3, mark.w + 6, mark.h + 6, 8);
      c.stroke();
    }
    c.restore();
  };

  const fillDevices = (c, n, alpha, radius) => {
    const parts = PW.nodeDevices(p, n.key);
    let x = n.x;
    c.save();
    c.beginPath();
    c.roundRect(n.x, n.y, n.w, n.h, radius);
    c.clip();
    c.globalAlpha = alpha;
    for (const { d, part } of parts) {
      c.fillStyle = PW.colour(p.devices[d].name);
      c.fillRect(x, n.y, n.w * part + 0.5, n.h);
      if (PW.isStriped(p.devices[d].name)) stripes(c, x, n.y, n.w * part, n.h);
      x += n.w * part;
    }
    c.restore();
    return parts;
  };
  const stripes = (c, x, y, w, h) => {
    c.save();
    c.beginPath();
    c.rect(x, y, w, h);
    c.clip();
    c.strokeStyle = PW.css("--card");
    c.lineWidth = 2;
    c.beginPath();
    for (let k = -h; k < w; k += 8) { c.moveTo(x + k, y + h); c.lineTo(x + k + h, y); }
    c.stroke();
    c.restore();
  };
  const frame = (c, n, s, ink, soft, card) => {
    c.fillStyle = card;
    c.beginPath();
    c.roundRect(n.x, n.y, n.w, n.h, 9);
    c.fill();
    const parts = fillDevices(c, n, n.depth ? 0.07 : 0.13, 9);
    c.strokeStyle = parts.length === 1 ? PW.colour(p.devices[parts[0].d].name) : soft;
    c.globalAlpha = 0.55;
    c.lineWidth = Math.max(1, 0.8 / s);
    c.beginPath();
    c.roundRect(n.x, n.y, n.w, n.h, 9);
    c.stroke();
    c.globalAlpha = 1;
    if (s < 0.22) return;
    const device = parts.length === 1 ? p.devices[parts[0].d].name : `${parts.length} devices`;
    const isSegment = p.boxes.kind[n.key].startsWith("segment");
    write(c, `${p.boxes.label[n.key]}${isSegment ? " · " + device : ""}`, n.x + 10, n.y + 17, n.w - 20, isSegment ? "600 13px" : "500 12px", isSegment ? ink : soft);
  };
  const leaf = (c, n, s, ink, card, isHovered) => {
    c.fillStyle = card;
    c.beginPath();
    c.roundRect(n.x, n.y, n.w, n.h, 6);
    c.fill();
    const small = s < 0.42;
    const parts = fillDevices(c, n, small ? 0.85 : isHovered ? 0.5 : 0.32, 6);
    const main = parts.reduce((a, b) => (b.part > a.part ? b : a)), colour = PW.colour(p.devices[main.d].name);
    c.strokeStyle = colour;
    c.lineWidth = isHovered ? 2.4 : 1.4;
    c.beginPath();
    c.roundRect(n.x, n.y, n.w, n.h, 6);
    c.stroke();
    if (isChanged) mark(c, n, ink);
    if (small) return;
    if (parts.length === 1) { c.fillStyle = colour; c.fillRect(n.x, n.y + 5, 4, n.h - 10); }
    const device = parts.length === 1 ? p.devices[main.d].name : `${parts.length} devices`;
    if (n.key >= p.nBoxes) {
      const v = n.key - p.nBoxes;
      write(c, PW.tail(PW.model.names[v]), n.x + 10, n.y + 15, n.w - 16, "600 12px", ink);
      write(c, `${device} · ${PW.model.type(v) || "op"}`, n.x + 10, n.y + 29, n.w - 16, "11px", ink, 0.75);
    } else {
      const count = p.boxes.end[n.key] - p.boxes.start[n.key];
      const isSegment = p.boxes.kind[n.key].startsWith("segment");
      write(c, isSegment ? p.boxes.label[n.key] : PW.tail(PW.nodeLabel(p, n.key)), n.x + 10, n.y + n.h / 2 - 3, n.w - 16, "600 13px", ink);
      write(c, `${device} · ${PW.many(count, "op")} · ${PW.time(PW.nodeTime(p, n.key), 3)}`, n.x + 10, n.y + n.h / 2 + 13, n.w - 16, "11px", ink, 0.75);
    }
  };
  const mark = (c, n, ink) => {
    const [a, b] = PW.nodeSpan(p, n.key);
    let changed = 0;
    for (let i = a; i < b; i += 1) if (isChanged(p.order[i])) changed += 1;
    if (!changed) return;
    c.fillStyle = ink;
    c.fillRect(n.x, n.y + n.h - 4, Math.max(4, (n.w * changed) / (b - a)), 4);
  };
  const write = (c, text, x, y, width, font, colour, alpha = 1) => {
    c.font = `${font} system-ui, sans-serif`;
    c.fillStyle = colour;
    c.globalAlpha = alpha;
    c.fillText(PW.fitText(c, text, width), x, y);
    c.globalAlpha = 1;
  };
  const edge = (c, e, s, near, colour, width, height) => {
    const a = plan.nodes[e.a], b = plan.nodes[e.b];
    const left = Math.min(a.x, b.x) * s + view.x, right = Math.max(a.x + a.w, b.x + b.w) * s + view.x;
    const top = Math.min(a.y, b.y) * s + view.y, bottom = Math.max(a.y + a.h, b.y + b.h) * s + view.y;
    if (right < 0 || left > width || bottom < 0 || top > height) return;
    const touched = near < 0 || e.a === near || e.b === near || inSelected(e);
    c.strokeStyle = c.fillStyle = colour;
    const crowd = Math.min(1, 90 / plan.crossing);
    c.globalAlpha = (e.crosses ? 0.15 + 0.6 * crowd : 0.6) * (touched ? 1 : 0.3);
    const thick = e.crosses ? 1 + Math.min(2, Math.log10(1 + e.copied / 1e4)) * crowd : 1;
    c.lineWidth = thick * Math.max(1, Math.min(2.4, 0.5 / s)) * (near >= 0 && touched ? 1.4 : 1);
    const [A, B] = meet(a, b);
    if (B.row > A.row) { aroundRows(c, e, s, a, b, A, B); return; }
    let x1, y1, x2, y2, turn;
    if (b.x >= a.x + a.w - 1) { [x1, y1, x2, y2, turn] = [a.x + a.w, a.y + a.h / 2, b.x, b.y + b.h / 2, "across"]; }
    else if (b.y >= a.y + a.h - 1) { [x1, y1, x2, y2, turn] = [a.x + a.w / 2, a.y + a.h, b.x + b.w / 2, b.y, "down"]; }
    else { [x1, y1, x2, y2, turn] = [a.x + a.w / 2, a.y, b.x + b.w / 2, b.y + b.h, "up"]; }
    c.beginPath();
    c.moveTo(x1, y1);
    if (turn === "across") { const k = Math.max(10, (x2 - x1) / 2); c.bezierCurveTo(x1 + k, y1, x2 - k, y2, x2, y2); }
    else { const k = (turn === "down" ? 1 : -1) * Math.max(12, Math.min(40, Math.abs(y2 - y1) / 2)); c.bezierCurveTo(x1, y1 + k, x2, y2 - k, x2, y2); }
    c.stroke();
    arrow(c, e, s, x2, y2, turn);
    c.globalAlpha = 1;
  };
  const arrow = (c, e, s, x, y, turn) => {
    if (!e.crosses && s < 0.5) return;
    const size = (e.crosses ? 6 : 4) * Math.max(1, Math.min(2, 0.5 / s)), k = turn === "down" ? -size : size;
    c.beginPath();
    c.moveTo(x, y);
    if (turn === "across") { c.lineTo(x - size, y - size * 0.55); c.lineTo(x - size, y + size * 0.55); }
    else { c.lineTo(x - size * 0.55, y + k); c.lineTo(x + size * 0.55, y + k); }
    c.fill();
  };
  // The boxes around two nodes that stand side by side in one box.
  const meet = (a, b) => {
    while (a.depth > b.depth) a = plan.nodes[a.parent];
    while (b.depth > a.depth) b = plan.nodes[b.parent];
    while (a.parent !== b.parent) { a = plan.nodes[a.parent]; b = plan.nodes[b.parent]; }
    return [a, b];
  };
  // To a later row: through the gap above it, as the eye goes to the next line of a text.
  const aroundRows = (c, e, s, a, b, A, B) => {
    const out = A.x + A.w + PW.GAP_X * 0.42, into = B.x - PW.GAP_X * 0.42, gap = B.rowTop - PW.ROW_GAP / 2, y1 = a.y + a.h / 2, y2 = b.y + b.h / 2;
    c.beginPath();
    c.moveTo(a.x + a.w, y1);
    c.arcTo(out, y1, out, gap, 7);
    c.arcTo(out, gap, into, gap, 7);
    c.arcTo(into, gap, into, y2, 7);
    c.arcTo(into, y2, b.x, y2, 7);
    c.lineTo(b.x, y2);
    c.stroke();
    arrow(c, e, s, b.x, y2, "across");
    c.globalAlpha = 1;
  };
  const inSelected = (e) => {
    if (selected < 0 || selected >= p.nBoxes || !open.has(selected)) return false;
    const [lo, hi] = PW.nodeSpan(p, selected);
    const within = (n) => { const [a] = PW.nodeSpan(p, plan.nodes[n].key); return a >= lo && a < hi; };
    return within(e.a) || within(e.b);
  };

  // Input ---------------------------------------------------------------------------------------------------------

  const pointers = new Map();
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, [event.clientX, event.clientY]); moved = false; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) { hover(event); return; }
    const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    moved = true;
    canvas.classList.add("moving");
    PW.tip();
    const others = [...pointers.entries()].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const [ox, oy] = others[0][1], box = canvas.getBoundingClientRect();
      zoom(Math.hypot(event.clientX - ox, event.clientY - oy) / Math.max(1, Math.hypot(before[0] - ox, before[1] - oy)), ox - box.left, oy - box.top);
    } else { view.x += dx; view.y += dy; fitted = false; redraw(); }
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  const release = (event) => {
    if (pointers.delete(event.pointerId) && !moved && event.type === "pointerup") {
      const hit = at(event);
      select(hit >= 0 ? plan.nodes[hit].key : -1);
    }
    canvas.classList.remove("moving");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { if (hovered >= 0) { hovered = -1; redraw(); } PW.tip(); });
  canvas.addEventListener("dblclick", (event) => { const hit = at(event); if (hit >= 0) toggle(plan.nodes[hit].key); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) { remind(); return; }
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) * 0.008), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  const remind = () => {
    if (nudge) return;
    nudge = PW.el("div", { class: "nudge" }, "Hold Ctrl and turn the wheel to zoom");
    holder.append(nudge);
    setTimeout(() => nudge.remove(), 1600);
  };
  const hover = (event) => {
    const hit = at(event);
    if (hit !== hovered) { hovered = hit; redraw(); }
    if (hit < 0) PW.tip(); else PW.tip(event.clientX, event.clientY, ...PW.tooltip(p, plan.nodes[hit].key));
  };

  const walk = (dx, dy) => {
    const from = plan.nodes[nodeOf(selected)];
    const leaves = plan.nodes.filter((n) => !n.open);
    if (!from) { select(leaves[0].key); keepInSight(leaves[0]); return; }
    const cx = from.x + from.w / 2, cy = from.y + from.h / 2;
    let best = null, least = Infinity;
    for (const n of leaves) {
      if (n === from) continue;
      const x = n.x + n.w / 2 - cx, y = n.y + n.h / 2 - cy, along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (along > 1 && along + 2.5 * aside < least) { least = along + 2.5 * aside; best = n; }
    }
    if (best) { select(best.key); keepInSight(best); }
  };
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrow && event.shiftKey) { view.x -= arrow[0] * 80; view.y -= arrow[1] * 80; fitted = false; redraw(); }
    else if (arrow) walk(...arrow);
    else if (event.key === "Enter" || event.key === " ") { if (selected >= 0) toggle(selected); }
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") fit();
    else if (event.key === "Backspace" && selected > 0) { const around = parentOf(selected); if (around > 0) toggle(around); }
    else return;
    event.preventDefault();
  });
  const parentOf = (key) => (key < p.nBoxes ? p.boxes.parent[key] : PW.boxesAround(p, key - p.nBoxes).pop());

  const resized = new ResizeObserver(() => { if (!plan || fitted) { relayout(); fit(); } else redraw(); });
  resized.observe(canvas);
  // As much open as can be read without zooming.
  for (const most of [mostAtFirst, 48, 36, 26, 18, 1]) {
    if (most > mostAtFirst) continue;
    open = PW.firstOpen(p, most);
    relayout();
    fit();
    if (view.scale >= 0.78) break;
  }
  return {
    canvas, view, redraw, fit, zoom, select, reveal, deselect: () => { selected = -1; redraw(); }, revealSegment, openMore, closeAll, toggle,
    nodes: () => plan.nodes, selected: () => selected, placement: p,
    close: () => { resized.disconnect(); holder.remove(); },
  };
};

// The last part of a long path says most.
PW.tail = (name) => (name.length <= 22 ? name : name.split(/[./]/).filter(Boolean).slice(-2).join(".") || name);

// As much of a text as fits, its end cut off.
PW.fitText = (c, text, width) => {
  const most = text.slice(0, 80), wide = c.measureText(most).width;
  if (wide <= width && most.length === text.length) return text;
  return most.slice(0, Math.max(1, Math.floor((most.length * width) / Math.max(1, wide)) - 1)) + "…";
};
