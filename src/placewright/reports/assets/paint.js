// How the graph of a placement is drawn: frames of open boxes, then edges, then closed boxes and ops.
PW.painter = (p, isChanged) => {
  let plan, s, colours;

  const paint = (c, width, height, view, drawn, selected, hovered) => {
    plan = drawn;
    s = view.scale;
    colours = { ink: PW.css("--ink"), soft: PW.css("--soft"), card: PW.css("--card"), edge: PW.css("--edge") };
    Object.assign(colours, { copy: PW.css("--copy"), focus: PW.css("--focus") });
    const area = { left: -view.x / s, top: -view.y / s, right: (width - view.x) / s, bottom: (height - view.y) / s };
    const near = plan.nodes.findIndex((n) => n.key === selected);
    c.save();
    c.translate(view.x, view.y);
    c.scale(s, s);
    c.lineJoin = "round";
    for (const n of plan.nodes) if (n.open && inSight(n, n, area)) frame(c, n);
    // Far out, in a crowd, lines that stay on a device only blur the picture.
    const onlyCopies = plan.edges.length > 4000 && s < 0.25;
    for (const strong of [false, true]) {
      for (const e of plan.edges) {
        if (Boolean(e.crosses) !== strong || (onlyCopies && !strong)) continue;
        if (inSight(plan.nodes[e.a], plan.nodes[e.b], area)) edge(c, e, near, selected);
      }
    }
    plan.nodes.forEach((n, i) => { if (!n.open && inSight(n, n, area)) leaf(c, n, i === hovered); });
    if (near >= 0) ring(c, plan.nodes[near]);
    c.restore();
  };

  const inSight = (a, b, area) =>
    Math.min(a.x, b.x) < area.right && Math.max(a.x + a.w, b.x + b.w) > area.left &&
    Math.min(a.y, b.y) < area.bottom && Math.max(a.y + a.h, b.y + b.h) > area.top;

  const rounded = (c, n, radius, more = 0) => {
    c.beginPath();
    c.roundRect(n.x - more, n.y - more, n.w + 2 * more, n.h + 2 * more, radius);
  };
  const write = (c, text, x, y, width, font, colour, alpha = 1) => {
    c.font = `${font} system-ui, sans-serif`;
    c.fillStyle = colour;
    c.globalAlpha = alpha;
    c.fillText(PW.fitText(c, text, width), x, y);
    c.globalAlpha = 1;
  };
  const deviceText = (parts) => (parts.length === 1 ? p.devices[parts[0].d].name : `${parts.length} devices`);
  // A name without what the box around it says already.
  const within = (n, name) => {
    if (n.parent < 0) return name;
    const around = p.boxes.label[plan.nodes[n.parent].key].replace(/^[\d–]+ · /, "");
    const rest = name.startsWith(around) ? name.slice(around.length) : "";
    // A bare number says nothing.
    return around && /^[./]./.test(rest) && !/^.\d+$/.test(rest) ? rest.slice(1) : name;
  };
  const isSegment = (n) => n.key < p.nBoxes && p.boxes.kind[n.key].startsWith("segment");

  // Boxes ---------------------------------------------------------------------------------------------------------

  // Fills a box with the colours of its devices, each as wide as its share of the time.
  const fillDevices = (c, n, parts, alpha, radius) => {
    let x = n.x;
    c.save();
    rounded(c, n, radius);
    c.clip();
    c.globalAlpha = alpha;
    for (const { d, part } of parts) {
      c.fillStyle = PW.colour(p.devices[d].name);
      c.fillRect(x, n.y, n.w * part + 0.5, n.h);
      if (PW.isStriped(p.devices[d].name)) stripes(c, x, n.y, n.w * part, n.h);
      x += n.w * part;
    }
    c.restore();
  };
  const stripes = (c, x, y, w, h) => {
    c.save();
    c.beginPath();
    c.rect(x, y, w, h);
    c.clip();
    c.strokeStyle = colours.card;
    c.lineWidth = 2;
    c.beginPath();
    for (let k = -h; k < w; k += 8) {
      c.moveTo(x + k, y + h);
      c.lineTo(x + k + h, y);
    }
    c.stroke();
    c.restore();
  };
  const frame = (c, n) => {
    const parts = PW.nodeDevices(p, n.key);
    c.fillStyle = colours.card;
    rounded(c, n, 9);
    c.fill();
    fillDevices(c, n, parts, n.depth ? 0.07 : 0.13, 9);
    c.strokeStyle = parts.length === 1 ? PW.colour(p.devices[parts[0].d].name) : colours.soft;
    c.globalAlpha = 0.55;
    c.lineWidth = Math.max(1, 0.8 / s);
    rounded(c, n, 9);
    c.stroke();
    c.globalAlpha = 1;
    if (s < 0.22) return;
    const label = within(n, p.boxes.label[n.key]);
    const title = isSegment(n) ? `${label} · ${deviceText(parts)}` : label;
    const look = isSegment(n) ? ["600 13px", colours.ink] : ["500 12px", colours.soft];
    write(c, title, n.x + 10, n.y + 17, n.w - 20, ...look);
  };
  const leaf = (c, n, isHovered) => {
    const parts = PW.nodeDevices(p, n.key), isSmall = s < 0.42;
    const main = parts.reduce((a, b) => (b.part > a.part ? b : a)), colour = PW.colour(p.devices[main.d].name);
    if (n.w * s < 14) {  // corners and frames cannot be seen, only cost time
      c.fillStyle = colour;
      c.fillRect(n.x, n.y, n.w, n.h);
      return;
    }
    c.fillStyle = colours.card;
    rounded(c, n, 6);
    c.fill();
    fillDevices(c, n, parts, isSmall ? 0.85 : isHovered ? 0.5 : 0.32, 6);
    c.strokeStyle = colour;
    c.lineWidth = isHovered ? 2.4 : 1.4;
    rounded(c, n, 6);
    c.stroke();
    if (isChanged) shareMoved(c, n);
    if (isSmall) return;
    if (parts.length === 1) {
      c.fillStyle = colour;
      c.fillRect(n.x, n.y + 5, 4, n.h - 10);
    }
    const x = n.x + 10, width = n.w - 16, middle = n.y + n.h / 2;
    if (n.key >= p.nBoxes) {
      const v = n.key - p.nBoxes;
      write(c, PW.tail(within(n, PW.model.names[v])), x, middle - 3, width, "600 12px", colours.ink);
      write(c, `${deviceText(parts)} · ${PW.model.type(v) || "op"}`, x, middle + 11, width, "11px", colours.ink, 0.75);
      return;
    }
    const count = PW.many(p.boxes.end[n.key] - p.boxes.start[n.key], "op");
    const label = isSegment(n) ? p.boxes.label[n.key] : PW.tail(within(n, p.boxes.label[n.key]));
    const figures = `${deviceText(parts)} · ${count} · ${PW.time(PW.nodeTime(p, n.key), 3)}`;
    write(c, label, x, middle - 3, width, "600 13px", colours.ink);
    write(c, figures, x, middle + 13, width, "11px", colours.ink, 0.75);
  };
  const shareMoved = (c, n) => {
    const [start, end] = PW.nodeSpan(p, n.key);
    let moved = 0;
    for (let i = start; i < end; i += 1) if (isChanged(p.order[i])) moved += 1;
    if (!moved) return;
    c.fillStyle = colours.ink;
    c.fillRect(n.x, n.y + n.h - 4, Math.max(4, (n.w * moved) / (end - start)), 4);
  };
  const ring = (c, n) => {
    c.strokeStyle = colours.focus;
    c.lineWidth = 2.5 / Math.min(1, s);
    rounded(c, n, 8, 3);
    c.stroke();
  };

  // Edges ---------------------------------------------------------------------------------------------------------

  const edge = (c, e, near, selected) => {
    const a = plan.nodes[e.a], b = plan.nodes[e.b];
    const isNear = near < 0 || e.a === near || e.b === near || isInside(e, selected);
    const crowd = Math.min(1, 90 / plan.crossing);
    const thick = e.crosses ? (1 + Math.min(2, Math.log10(1 + e.copied / 1e4)) * crowd) * (0.55 + 0.45 * crowd) : 1;
    c.strokeStyle = c.fillStyle = e.crosses ? colours.copy : colours.edge;
    c.globalAlpha = (e.crosses ? 0.15 + 0.6 * crowd : 0.6) * (isNear ? 1 : 0.3);
    c.lineWidth = thick * Math.max(1, Math.min(2.4, 0.5 / s)) * (near >= 0 && isNear ? 1.4 : 1);
    const [A, B] = sideBySide(a, b);
    c.beginPath();
    if (B.row > A.row) toLaterRow(c, e, a, b, A, B);
    else if (b.x >= a.x + a.w - 1) across(c, e, a, b);
    else upOrDown(c, e, a, b);
    c.globalAlpha = 1;
  };
  const isInside = (e, selected) => {
    if (selected < 0 || selected >= p.nBoxes) return false;
    const [low, high] = PW.nodeSpan(p, selected);
    return [e.a, e.b].some((i) => {
      const [at] = PW.nodeSpan(p, plan.nodes[i].key);
      return at >= low && at < high;
    });
  };
  // The boxes around two nodes that stand side by side in one box.
  const sideBySide = (a, b) => {
    while (a.depth > b.depth) a = plan.nodes[a.parent];
    while (b.depth > a.depth) b = plan.nodes[b.parent];
    while (a.parent !== b.parent) {
      a = plan.nodes[a.parent];
      b = plan.nodes[b.parent];
    }
    return [a, b];
  };
  const across = (c, e, a, b) => {
    const x1 = a.x + a.w, y1 = a.y + a.h / 2, x2 = b.x, y2 = b.y + b.h / 2, bend = Math.max(10, (x2 - x1) / 2);
    c.moveTo(x1, y1);
    c.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    c.stroke();
    arrow(c, e, x2, y2, 1, 0);
  };
  const upOrDown = (c, e, a, b) => {
    const way = b.y >= a.y + a.h - 1 ? 1 : -1, x1 = a.x + a.w / 2, x2 = b.x + b.w / 2;
    const y1 = way > 0 ? a.y + a.h : a.y, y2 = way > 0 ? b.y : b.y + b.h;
    const bend = way * Math.max(12, Math.min(40, Math.abs(y2 - y1) / 2));
    c.moveTo(x1, y1);
    c.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    c.stroke();
    arrow(c, e, x2, y2, 0, way);
  };
  // Through the gap above the later row, as the eye goes to the next line of a text.
  const toLaterRow = (c, e, a, b, A, B) => {
    const out = A.x + A.w + PW.GAP_X * 0.42, into = B.x - PW.GAP_X * 0.42, gap = B.rowTop - PW.ROW_GAP / 2;
    const y1 = a.y + a.h / 2, y2 = b.y + b.h / 2;
    c.moveTo(a.x + a.w, y1);
    c.arcTo(out, y1, out, gap, 7);
    c.arcTo(out, gap, into, gap, 7);
    c.arcTo(into, gap, into, y2, 7);
    c.arcTo(into, y2, b.x, y2, 7);
    c.lineTo(b.x, y2);
    c.stroke();
    arrow(c, e, b.x, y2, 1, 0);
  };
  const arrow = (c, e, x, y, dx, dy) => {
    if (!e.crosses && s < 0.5) return;
    const size = (e.crosses ? 6 : 4) * Math.max(1, Math.min(2, 0.5 / s)), half = size * 0.55;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x - dx * size - dy * half, y - dy * size - dx * half);
    c.lineTo(x - dx * size + dy * half, y - dy * size + dx * half);
    c.fill();
  };

  return paint;
};

// The last part of a long path says most.
PW.tail = (name) => (name.length <= 22 ? name : name.split(/[./]/).filter(Boolean).slice(-2).join(".") || name);

// As much of a text as fits, its end cut off.
PW.fitText = (c, text, width) => {
  const most = text.slice(0, 80), wide = c.measureText(most).width;
  if (wide <= width && most.length === text.length) return text;
  return most.slice(0, Math.max(1, Math.floor((most.length * width) / Math.max(1, wide)) - 1)) + "…";
};
