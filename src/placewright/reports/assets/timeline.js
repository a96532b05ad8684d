// Who computes and who copies when: a lane per device and per link, on a canvas.
PW.timelineView = (holder, p, { onSelect, span, title }) => {
  const LANE = 26, GAP = 4, TOP = 8, BOTTOM = 26, RIGHT = 14, MOST_LINKS = 10;
  const LEFT = holder.clientWidth < 560 ? 84 : 132;
  const t = p.timeline, names = p.devices.map((d) => d.name), end = Math.max(span, t.end || 0) || 1;
  const { start, took, byLane } = PW.unpackTimeline(t), overhead = new Set(t.overhead);
  const canvas = PW.el("canvas", {
    tabindex: "0", role: "application", "aria-label": `Timeline of ${p.label}; arrows move, plus and minus zoom`,
  });
  const area = PW.el("div", null, canvas), links = t.lanes.filter((lane) => lane.what !== "compute").length;
  const box = PW.el("div", { class: "timeline" }, title && PW.el("h3", null, title), area);
  holder.append(box);
  let from = 0, to = end, selected = -1, lanes = [];
  const redraw = PW.sharpCanvas(canvas, paint);

  // Of very many links the busiest are shown, until all are asked for.
  const showLinks = (most) => {
    const total = byLane.map((slices) => slices.reduce((sum, i) => sum + took[i], 0));
    const isLink = (l) => t.lanes[l].what !== "compute", all = t.lanes.map((_, l) => l);
    const busiest = new Set(all.filter(isLink).sort((a, b) => total[b] - total[a]).slice(0, most));
    lanes = all.filter((l) => !isLink(l) || busiest.has(l));
    area.style.height = TOP + lanes.length * (LANE + GAP) + BOTTOM + "px";
    redraw();
  };
  if (links > MOST_LINKS) {
    const texts = [`Show all ${PW.count(links)} links`, `Show the ${MOST_LINKS} busiest links`];
    const button = PW.el("button", { type: "button" }, texts[0]);
    button.addEventListener("click", () => {
      const isAll = button.textContent === texts[0];
      button.textContent = texts[isAll ? 1 : 0];
      showLinks(isAll ? links : MOST_LINKS);
    });
    box.append(button);
  }
  showLinks(MOST_LINKS);

  function label({ what, from: a, to: b }) {
    const name = (d) => (d < 0 ? "host" : names[d]);
    if (what === "compute") return name(a);
    return a === b ? `${name(a)} copies` : `${name(a)} → ${name(b)}`;
  }
  const perPixel = () => (to - from) / (canvas.clientWidth - LEFT - RIGHT);

  // Drawing -------------------------------------------------------------------------------------------------------

  function paint(c, width, height) {
    const ink = PW.css("--ink"), soft = PW.css("--soft"), scale = 1 / perPixel();
    const x = (s) => LEFT + (s - from) * scale;
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    axis(c, x, width, height, soft);
    lanes.forEach((l, row) => {
      const lane = t.lanes[l], y = TOP + row * (LANE + GAP);
      c.save();
      c.beginPath();
      c.rect(LEFT, 0, width - LEFT - RIGHT + 2, height);
      c.clip();
      let last = -1;
      for (const i of byLane[l]) {
        const a = x(start[i]), b = x(start[i] + took[i]);
        if (b < LEFT || a > width) continue;
        if (b - a < 0.6 && Math.floor(a) === last) continue;
        last = Math.floor(a);
        bar(c, i, lane, a, Math.max(0.7, b - a), y, ink);
      }
      c.restore();
      c.fillStyle = lane.what === "compute" ? ink : soft;
      c.textAlign = "right";
      c.fillText(PW.fitText(c, label(lane), LEFT - 14), LEFT - 9, y + LANE / 2);
    });
  }
  function bar(c, i, lane, a, w, y, ink) {
    const what = t.what[i], isOp = what !== null && what >= 0, isTensor = what !== null && what < 0;
    const isOnLink = isTensor && lane.what !== "compute";
    const owner = isOnLink ? p.device[PW.model.producer[-1 - what]] : lane.from < 0 ? lane.to : lane.from;
    const colour = PW.colour(names[owner]), inset = isOp ? 2 : 6, gap = w > 3 ? 0.6 : 0;
    c.fillStyle = overhead.has(i) ? PW.css("--edge") : colour;
    c.globalAlpha = isOp ? 0.92 : 0.45;
    c.fillRect(a, y + inset, w - gap, LANE - 2 * inset);
    c.globalAlpha = 1;
    if (!isOp) return;
    if (what === selected) {
      c.strokeStyle = ink;
      c.lineWidth = 2;
      c.strokeRect(a, y + 1, Math.max(2, w - gap), LANE - 2);
    }
    if (w > 56) {
      c.fillStyle = PW.inkOn(colour);
      c.textAlign = "left";
      c.fillText(PW.fitText(c, PW.tail(PW.model.names[what]), w - 10), a + 5, y + LANE / 2);
    }
  }
  function axis(c, x, width, height, soft) {
    const rough = perPixel() * 110, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999);
    c.strokeStyle = PW.css("--line");
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

  // Input ---------------------------------------------------------------------------------------------------------

  function hit(event) {
    const at = canvas.getBoundingClientRect(), px = event.clientX - at.left;
    const lane = byLane[lanes[Math.floor((event.clientY - at.top - TOP) / (LANE + GAP))]];
    if (!lane || px < LEFT) return -1;
    const moment = from + (px - LEFT) * perPixel(), slack = perPixel() * 1.5;
    let best = -1;
    for (const i of lane) {
      if (start[i] - slack > moment) break;
      if (start[i] + took[i] + slack >= moment) best = i;
    }
    return best;
  }
  function tip(event) {
    const i = hit(event);
    if (i < 0) {
      PW.tip();
      return;
    }
    const what = t.what[i], lane = label(t.lanes[t.lane[i]]);
    const unnamed = overhead.has(i) ? "start of a segment" : "copies of this call";
    const name = what === null ? unnamed : PW.model.names[what >= 0 ? what : PW.model.producer[-1 - what]];
    const isCopy = what !== null && what < 0;
    const bytes = isCopy ? `, ${PW.bytes(PW.model.tensorBytes[-1 - what])}` : "";
    PW.tip(event.clientX, event.clientY, PW.el("b", null, PW.short(name, 200)),
      PW.tipRow(isCopy ? "its output moves" : "on", lane + bytes), PW.tipRow("takes", PW.time(took[i])),
      PW.tipRow("from", `${PW.time(start[i])} to ${PW.time(start[i] + took[i])}`));
  }
  function show(a, b) {
    const width = Math.min(end, Math.max(end / 1e5, b - a));
    from = Math.max(0, Math.min(a, end - width));
    to = from + width;
    redraw();
  }
  const zoom = (factor, moment = (from + to) / 2) =>
    show(moment - (moment - from) / factor, moment + (to - moment) / factor);

  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => {
    grabbed = { x: event.clientX, from, to, hasMoved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grabbed) {
      tip(event);
    } else if (grabbed.hasMoved || Math.abs(event.clientX - grabbed.x) > 3) {
      const shift = (grabbed.x - event.clientX) * perPixel();
      grabbed.hasMoved = true;
      PW.tip();
      show(grabbed.from + shift, grabbed.to + shift);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const i = grabbed && !grabbed.hasMoved ? hit(event) : -1, what = i >= 0 ? t.what[i] : null;
    grabbed = null;
    if (what !== null) onSelect(what >= 0 ? what : PW.model.producer[-1 - what]);
  });
  canvas.addEventListener("pointercancel", () => { grabbed = null; });
  canvas.addEventListener("pointerleave", () => PW.tip());
  canvas.addEventListener("dblclick", () => show(0, end));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const px = event.clientX - canvas.getBoundingClientRect().left;
    zoom(PW.wheelFactor(event), from + (px - LEFT) * perPixel());
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
  const mark = (v) => {
    selected = v;
    redraw();
  };
  const close = () => {
    resized.disconnect();
    box.remove();
  };
  return { canvas, redraw, zoom, mark, close, range: () => [from, to] };
};

PW.unpackTimeline = (t) => {
  const n = t.lane.length, start = new Float64Array(n), took = new Float64Array(n), byLane = t.lanes.map(() => []);
  let clock = 0;
  for (let i = 0; i < n; i += 1) {
    clock += t.start[i];
    start[i] = (clock / t.ticks) * t.end;
    took[i] = (t.took[i] / t.ticks) * t.end;
    byLane[t.lane[i]].push(i);
  }
  return { start, took, byLane };
};
