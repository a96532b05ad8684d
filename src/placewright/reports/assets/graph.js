// The graph of one placement on a canvas: pan, zoom, open, close, select, by mouse, touch or keys.
PW.graphView = (holder, p, { onSelect, isChanged, mostAtFirst }) => {
  const name = `Graph of ${p.label}: segments, modules and operators by device`;
  const canvas = PW.el("canvas", { tabindex: "0", role: "application", "aria-label": name });
  holder.append(canvas);
  const view = { scale: 1, x: 0, y: 0 }, paint = PW.painter(p, isChanged);
  let open = new Set([0]), plan = null, selected = -1, hovered = -1, isFitted = true;
  const redraw = PW.sharpCanvas(canvas, (c, w, h) => { if (plan) paint(c, w, h, view, plan, selected, hovered); });

  const relayout = () => {
    plan = PW.layout(p, open, Math.max(0.6, canvas.clientWidth / Math.max(1, canvas.clientHeight)));
    plan.crossing = plan.edges.filter((e) => e.crosses).length;
  };
  const nodeOf = (key) => plan.nodes.find((n) => n.key === key);

  // Where to look -------------------------------------------------------------------------------------------------

  const fit = () => {
    const pad = 22, top = holder.querySelector(".caption") ? 34 : 0;
    const w = canvas.clientWidth - 2 * pad, h = canvas.clientHeight - 2 * pad - top;
    view.scale = Math.min(1.6, Math.max(0.005, Math.min(w / plan.w, h / plan.h)));
    view.x = pad + (w - plan.w * view.scale) / 2;
    view.y = pad + top + (h - plan.h * view.scale) / 2;
    isFitted = true;
    redraw();
  };
  const zoom = (factor, cx = canvas.clientWidth / 2, cy = canvas.clientHeight / 2) => {
    const scale = Math.min(4, Math.max(0.005, view.scale * factor)), change = scale / view.scale;
    moveTo(cx - (cx - view.x) * change, cy - (cy - view.y) * change, scale);
  };
  const moveTo = (x, y, scale = view.scale) => {
    Object.assign(view, { x, y, scale });
    isFitted = false;
    redraw();
  };
  const centre = (node, leastScale) => {
    const scale = Math.max(view.scale, leastScale), x = node.x + node.w / 2, y = node.y + Math.min(node.h, 200) / 2;
    moveTo(canvas.clientWidth / 2 - x * scale, canvas.clientHeight / 2 - y * scale, scale);
  };
  const keepInSight = (node) => {
    const x = node.x * view.scale + view.x, y = node.y * view.scale + view.y;
    const right = x + node.w * view.scale, bottom = y + node.h * view.scale;
    if (x < 10 || y < 10 || right > canvas.clientWidth - 10 || bottom > canvas.clientHeight - 10) centre(node, 0);
  };

  // What is open and selected -------------------------------------------------------------------------------------

  const select = (key) => {
    selected = key;
    onSelect(key);
    redraw();
  };
  const deselect = () => {
    selected = -1;
    redraw();
  };
  const toggle = (key) => {
    if (key >= p.nBoxes || key === 0) return;
    const before = nodeOf(key), x = before.x * view.scale + view.x, y = before.y * view.scale + view.y;
    if (open.has(key)) open.delete(key);
    else open.add(key);
    relayout();
    const after = nodeOf(key);
    if (isFitted) fit();
    else moveTo(x - after.x * view.scale, y - after.y * view.scale);
    select(key);
  };
  const reveal = (v) => {
    PW.boxesAround(p, v).forEach((b) => open.add(b));
    relayout();
    select(p.nBoxes + v);
    centre(nodeOf(selected), 0.9);
  };
  const revealSegment = (segment) => {
    const isIt = (kind, b) => kind === "segment" && p.segment[p.order[p.boxes.start[b]]] === segment;
    const box = p.boxes.kind.findIndex(isIt), first = p.boxes.start[box];
    for (let b = p.boxes.parent[box]; b > 0; b = p.boxes.parent[b]) open.add(b);
    relayout();
    select(p.boxes.end[box] - first === 1 ? p.nBoxes + p.order[first] : box);
    centre(nodeOf(selected), 0.4);
  };
  const openMore = () => {
    for (const n of plan.nodes) if (!n.open && n.key < p.nBoxes) open.add(n.key);
    relayout();
    fit();
  };
  const closeAll = () => {
    open = new Set([0]);
    relayout();
    fit();
  };

  // Mouse and touch -----------------------------------------------------------------------------------------------

  const pointers = new Map();
  let hasMoved = false, nudge = null;

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - view.x) / view.scale, y = (event.clientY - box.top - view.y) / view.scale;
    return plan.nodes.findLastIndex((n) => x >= n.x && x <= n.x + n.w && y >= n.y && y <= n.y + n.h);
  };
  const hover = (event) => {
    const hit = at(event);
    if (hit !== hovered) {
      hovered = hit;
      redraw();
    }
    if (hit < 0) PW.tip();
    else PW.tip(event.clientX, event.clientY, ...PW.tooltip(p, plan.nodes[hit].key));
  };
  const drag = (event, before) => {
    const dx = event.clientX - before[0], dy = event.clientY - before[1];
    if (!hasMoved && Math.hypot(dx, dy) < 4) return;
    hasMoved = true;
    canvas.classList.add("moving");
    PW.tip();
    const other = [...pointers.entries()].find(([id]) => id !== event.pointerId);
    if (other) {
      const [x, y] = other[1], box = canvas.getBoundingClientRect();
      const was = Math.hypot(before[0] - x, before[1] - y), is = Math.hypot(event.clientX - x, event.clientY - y);
      zoom(is / Math.max(1, was), x - box.left, y - box.top);
    } else {
      moveTo(view.x + dx, view.y + dy);
    }
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
  };
  const release = (event) => {
    if (pointers.delete(event.pointerId) && !hasMoved && event.type === "pointerup") {
      const hit = at(event);
      select(hit >= 0 ? plan.nodes[hit].key : -1);
    }
    canvas.classList.remove("moving");
  };
  const remind = () => {
    if (nudge) return;
    nudge = PW.el("div", { class: "nudge" }, "Hold Ctrl and turn the wheel to zoom");
    holder.append(nudge);
    setTimeout(() => nudge.remove(), 1600);
  };
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    hasMoved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before) drag(event, before);
    else hover(event);
  });
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    hovered = -1;
    redraw();
    PW.tip();
  });
  canvas.addEventListener("dblclick", (event) => {
    const hit = at(event);
    if (hit >= 0) toggle(plan.nodes[hit].key);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) {
      remind();
      return;
    }
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(PW.wheelFactor(event), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  // Keys ----------------------------------------------------------------------------------------------------------

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const walk = (dx, dy) => {
    const leaves = plan.nodes.filter((n) => !n.open), from = nodeOf(selected);
    let next = from ? null : leaves[0], least = Infinity;
    for (const n of from ? leaves : []) {
      const x = n.x + n.w / 2 - from.x - from.w / 2, y = n.y + n.h / 2 - from.y - from.h / 2;
      const along = x * dx + y * dy, cost = along + 2.5 * (Math.abs(x * dy) + Math.abs(y * dx));
      if (n !== from && along > 1 && cost < least) {
        least = cost;
        next = n;
      }
    }
    if (!next) return;
    select(next.key);
    keepInSight(next);
  };
  const around = (key) => (key < p.nBoxes ? p.boxes.parent[key] : PW.boxesAround(p, key - p.nBoxes).pop());
  const press = (event) => {
    const arrow = ARROWS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (arrow && event.shiftKey) moveTo(view.x - arrow[0] * 80, view.y - arrow[1] * 80);
    else if (arrow) walk(...arrow);
    else if ((event.key === "Enter" || event.key === " ") && selected >= 0) toggle(selected);
    else if (event.key === "Backspace" && selected > 0) toggle(around(selected));
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") fit();
    else return false;
    return true;
  };
  canvas.addEventListener("keydown", (event) => { if (press(event)) event.preventDefault(); });

  const resized = new ResizeObserver(() => {
    if (isFitted) {
      relayout();
      fit();
    } else {
      redraw();
    }
  });
  // As much open as can be read without zooming.
  for (const most of [mostAtFirst, 48, 36, 26, 18, 1].filter((m) => m <= mostAtFirst)) {
    open = PW.firstOpen(p, most);
    relayout();
    fit();
    if (view.scale >= 0.78) break;
  }
  resized.observe(canvas);
  const close = () => {
    resized.disconnect();
    holder.remove();
  };
  return {
    canvas, view, placement: p, nodes: () => plan.nodes, selected: () => selected,
    redraw, fit, zoom, select, deselect, toggle, reveal, revealSegment, openMore, closeAll, close,
  };
};
