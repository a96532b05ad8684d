// Who computes and who copies when: a lane per device and per link, on a canvas.
PW.timelineView = (holder, p, { onSelect, span, title }) => {
  const t = p.timeline, n = t.lane.length, LANE = 26, GAP = 4, TOP = 8, BOTTOM = 26;
  const narrow = holder.clientWidth < 560, LEFT = narrow ? 84 : 132;
  const start = new Float64Array(n), took = new Float64Array(n), byLane = t.lanes.map(() => []);
  let clock = 0;
  for (let i = 0; i < n; i += 1) {
    clock += t.start[i];
    start[i] = (clock / t.ticks) * t.end;
    took[i] = (t.took[i] / t.ticks) * t.end;
    byLane[t.lane[i]].push(i);
  }
  const overhead = new Set(t.overhead), names = p.devices.map((d) => d.name), end = Math.max(span, t.end || 0) || 1;
  const device = (d) => (d < 0 ? "host" : names[d]);
  const label = (lane) => (lane.what === "compute" ? device(lane.from) : lane.from === lane.to ? `${device(lane.from)} copies` : `${device(lane.from)} → ${device(lane.to)}`);
  const canvas = PW.el("canvas", { tabindex: "0", role: "application", "aria-label": `Timeline of ${p.label}; arrows move, plus and minus zoom` });
  const box = PW.el("div", { class: "timeline" }, title && PW.el("h3", null, title));
  const area = PW.el("div");
  area.style.height = TOP + t.lanes.length * (LANE + GAP) + BOTTOM + "px";
  area.append(canvas);
  box.append(area);
  holder.append(box);
  let from = 0, to = end, selected = -1;
  const redraw = PW.sharpCanvas(canvas, paint);

  function paint(c, width, height) {
    const ink = PW.css("--ink"), soft = PW.css("--soft"), line = PW.css("--line"), card = PW.css("--card"), scale = (width - LEFT - 14) / (to - from);
    const x = (s) => LEFT + (s - from) * scale;
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    axis(c, x, width, height, soft, line);
    t.lanes.forEach((lane, l) => {
      const y = TOP + l * (LANE + GAP), copies = lane.what !== "compute";
      c.save();
      c.beginPath();
      c.rect(LEFT, 0, width - LEFT - 12, height);
      c.clip();
      let last = -1;
      for (const i of byLane[l]) {
        const a = x(start[i]), b = x(start[i] + took[i]);
        if (b < LEFT || a > width) continue;
        if (b - a < 0.6) { const pixel = Math.floor(a); if (pixel === last) continue; last = pixel; }
        bar(c, i, lane, a, Math.max(0.7, b - a), y, copies, ink, card);
      }
      c.restore();
      c.fillStyle = copies ? soft : ink;
      c.textAlign = "right";
      c.fillText(PW.fitText(c, label(lane), LEFT - 14), LEFT - 9, y + LANE / 2);
    });
  }
  function bar(c, i, lane, a, w, y, copies, ink, card) {
    const what = t.what[i], isCopy = copies || what === null || what < 0;
    const owner = isCopy && what !== null && what < 0 && copies ? p.device[PW.model.producer[-1 - what]] : lane.from < 0 ? lane.to : lane.from;
    const colour = PW.colour(names[owner]), inset = isCopy ? 6 : 2;
    c.fillStyle = overhead.has(i) ? PW.css("--edge") : colour;
    c.globalAlpha = isCopy ? 0.45 : 0.92;
    const gap = w > 3 ? 0.6 : 0;
    c.fillRect(a, y + inset, w - gap, LANE - 2 * inset);
    c.globalAlpha = 1;
    if (what !== null && what >= 0 && what === selected) { c.strokeStyle = ink; c.lineWidth = 2; c.strokeRect(a, y + 1, Math.max(2, w - gap), LANE - 2); }
    if (w > 56 && what !== null && what >= 0) {
      c.fillStyle = PW.theme() === "dark" ? "#10141a" : "#ffffff";
      if (PW.theme() === "light" && /e69f00|56b4e9|b8a800/.test(colour)) c.fillStyle = "#1c2230";
      c.textAlign = "left";
      c.fillText(PW.fitText(c, PW.tail(PW.model.names[what]), w - 10), a + 5, y + LANE / 2);
    }
  }
  function axis(c, x, width, height, soft, line) {
    const rough = (to - from) / Math.max(2, (width - LEFT) / 110), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
    c.strokeStyle = line;
    c.fillStyle = soft;
    c.textAlign = "center";
    for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-6; at += step) {
      const px = Math.round(x(at)) + 0.5;
      if (px < LEFT - 1 || px > width - 10) continue;
      c.beginPath();
      c.moveTo(px, TOP);
      c.lineTo(px, height - BOTTOM + 4);
      c.stroke();
      c.fillText(at === 0 ? "0" : PW.time(at, 3), Math.min(px, width - 26), height - 11);
    }
  }
  function hit(event) {
    const at = canvas.getBoundingClientRect(), px = event.clientX - at.left, l = Math.floor((event.clientY - at.top - TOP) / (LANE + GAP));
    if (!byLane[l] || px < LEFT) return -1;
    const moment = from + ((px - LEFT) / (canvas.clientWidth - LEFT - 14)) * (to - from), slack = ((to - from) / canvas.clientWidth) * 1.5;
    let best = -1;
    for (const i of byLane[l]) {
      if (start[i] - slack > moment) break;
      if (start[i] + took[i] + slack >= moment) best = i;
    }
    return best;
  }
  function tip(event) {
    const i = hit(event);
    if (i < 0) { PW.tip(); return; }
    const what = t.what[i], lane = t.lanes[t.lane[i]];
    const name = what === null ? (overhead.has(i) ? "start of a segment" : "copies of this call") : PW.model.names[what >= 0 ? what : PW.model.producer[-1 - what]];
    const rows = [PW.el("b", null, PW.short(name, 200))];
    if (what !== null && what < 0) rows.push(PW.tipRow("its output moves", `${label(lane).replace(" copies", "")}, ${PW.bytes(PW.model.tensorBytes[-1 - what])}`));
    else rows.push(PW.tipRow("on", label(lane)));
    rows.push(PW.tipRow("takes", PW.time(took[i])), PW.tipRow("from", `${PW.time(start[i])} to ${PW.time(start[i] + took[i])}`));
    PW.tip(event.clientX, event.clientY, ...rows);
  }
  function show(a, b) {
    const width = Math.min(end, Math.max(end / 1e5, b - a));
    from = Math.max(0, Math.min(a, end - width));
    to = from + width;
    redraw();
  }
  const zoom = (factor, moment = (from + to) / 2) => show(moment - (moment - from) / factor, moment + (to - moment) / factor);

  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => { grabbed = { x: event.clientX, from, to, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!grabbed) { tip(event); return; }
    const shift = ((grabbed.x - event.clientX) / (canvas.clientWidth - LEFT - 14)) * (grabbed.to - grabbed.from);
    if (Math.abs(event.clientX - grabbed.x) > 3) { grabbed.moved = true; PW.tip(); show(grabbed.from + shift, grabbed.to + shift); }
  });
  canvas.addEventListener("pointerup", (event) => {
    const what = grabbed && !grabbed.moved ? t.what[hit(event)] : null;
    grabbed = null;
    if (what !== null && what !== undefined) onSelect(what >= 0 ? what : PW.model.producer[-1 - what]);
  });
  canvas.addEventListener("pointercancel", () => { grabbed = null; });
  canvas.addEventListener("pointerleave", () => PW.tip());
  canvas.addEventListener("dblclick", () => show(0, end));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const px = event.clientX - canvas.getBoundingClientRect().left;
    zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) * 0.008), from + ((px - LEFT) / (canvas.clientWidth - LEFT - 14)) * (to - from));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = (to - from) / 8;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowLeft") show(from - step, to - step);
    else if (event.key === "ArrowRight") show(from + step, to + step);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") show(0, end);
    else return;
    event.preventDefault();
  });
  const resized = new ResizeObserver(redraw);
  resized.observe(canvas);
  return { redraw, zoom, canvas, range: () => [from, to], mark: (v) => { selected = v; redraw(); }, close: () => { resized.disconnect(); box.remove(); } };
};
