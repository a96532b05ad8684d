// Boxes in boxes: in each box the nodes stand in layers from left to right, layers run on in rows like text.
PW.GAP_X = 26;
PW.ROW_GAP = 26;

PW.layout = (p, open, aspect) => {
  const m = PW.model, kid = new Int32Array(m.n);
  const GAP_X = PW.GAP_X, GAP_Y = 9, ROW_GAP = PW.ROW_GAP, PAD = 11, HEAD = 26;

  const inside = (node, wanted) => {
    const kids = PW.nodeChildren(p, node);
    const [start, end] = PW.nodeSpan(p, node);
    kids.forEach((k, i) => { const [a, b] = PW.nodeSpan(p, k); kid.fill(i, a, b); });
    const links = new Set();
    for (let at = start; at < end; at += 1) {
      const v = p.order[at];
      for (let e = m.outPtr[v]; e < m.outPtr[v + 1]; e += 1) {
        const other = p.position[m.to[e]];
        if (other < end && other >= start && kid[other] !== kid[at]) links.add(kid[at] * kids.length + kid[other]);
      }
    }
    const edges = [...links].map((key) => [Math.floor(key / kids.length), key % kids.length]);
    const items = kids.map((k) => (open.has(k) ? opened(k) : { key: k, ...PW.nodeSize(p, k) }));
    return arrange(items, edges, wanted);
  };

  const opened = (node) => {
    const body = inside(node, 3.2);
    return { key: node, w: Math.max(body.w, 110) + 2 * PAD, h: body.h + HEAD + PAD, body, open: true };
  };

  const arrange = (items, edges, wanted) => {
    const columns = columnsOf(items, edges);
    const width = (c) => Math.max(...c.map((i) => items[i].w));
    const height = (c) => c.reduce((sum, i) => sum + items[i].h + GAP_Y, -GAP_Y);
    const widths = columns.map(width), heights = columns.map(height);
    // Rows as long as makes the whole come closest to the wanted shape.
    const rowsFor = (target) => {
      const rows = [];
      let x = 0, row = null;
      columns.forEach((_, k) => {
        if (!row || x + widths[k] > target) { row = { columns: [], w: 0, h: 0 }; rows.push(row); x = 0; }
        row.columns.push({ k, left: x });
        x += widths[k] + GAP_X;
        row.w = x - GAP_X;
        row.h = Math.max(row.h, heights[k]);
      });
      return { rows, w: Math.max(...rows.map((r) => r.w)), h: rows.reduce((sum, r) => sum + r.h + ROW_GAP, -ROW_GAP) };
    };
    const total = widths.reduce((sum, w) => sum + w + GAP_X, -GAP_X);
    let best = null;
    for (let count = 1; count <= 24 && count <= columns.length; count += 1) {
      const tried = rowsFor(Math.max(...widths, (total / count) * (count > 1 ? 1.08 : 1) + 1));
      if (!best || Math.max(tried.w / wanted, tried.h) < Math.max(best.w / wanted, best.h)) best = tried;
    }
    let y = 0;
    best.rows.forEach((row, number) => {
      for (const { k, left } of row.columns) {
        let top = y + (row.h - heights[k]) / 2;
        for (const i of columns[k]) {
          Object.assign(items[i], { x: left + (widths[k] - items[i].w) / 2, y: top, row: number, rowTop: y });
          top += items[i].h + GAP_Y;
        }
      }
      y += row.h + ROW_GAP;
    });
    return { w: best.w, h: best.h, items };
  };

  const root = inside(0, aspect);
  const nodes = [], nodeAt = new Int32Array(m.n).fill(-1);
  const place = (body, x, y, depth, parent) => {
    for (const item of body.items) {
      const { key, w, h, row } = item, isOpen = Boolean(item.open), rowTop = y + item.rowTop;
      const node = { key, w, h, row, depth, parent, rowTop, open: isOpen, x: x + item.x, y: y + item.y };
      nodes.push(node);
      const inset = isOpen ? PAD + (w - 2 * PAD - item.body.w) / 2 : 0;
      if (isOpen) place(item.body, node.x + inset, node.y + HEAD, depth + 1, nodes.length - 1);
      else nodeAt.fill(nodes.length - 1, ...PW.nodeSpan(p, key));
    }
  };
  place(root, 0, 0, 0, -1);
  return { nodes, edges: PW.visibleEdges(p, nodeAt, nodes.length), nodeAt, w: root.w, h: root.h };

  function columnsOf(items, edges) {
    // Items come in topological order, so one pass finds the longest ways.
    const layer = new Int32Array(items.length), entered = new Uint8Array(items.length);
    const first = new Int32Array(items.length).fill(1e9);
    edges.sort((a, b) => a[0] - b[0]);
    for (const [a, b] of edges) { layer[b] = Math.max(layer[b], layer[a] + 1); entered[b] = 1; }
    for (const [a, b] of edges) first[a] = Math.min(first[a], layer[b]);
    items.forEach((_, i) => { if (!entered[i] && first[i] < 1e9) layer[i] = Math.max(0, first[i] - 1); });
    const layers = [];
    items.forEach((_, i) => { (layers[layer[i]] = layers[layer[i]] || []).push(i); });
    const rank = new Float64Array(items.length);
    const before = items.map(() => []), after = items.map(() => []);
    for (const [a, b] of edges) { before[b].push(a); after[a].push(b); }
    for (let sweep = 0; sweep < 4; sweep += 1) {
      const near = sweep % 2 ? after : before;
      for (const l of sweep % 2 ? [...layers].reverse() : layers) {
        const middle = (i) => near[i].reduce((sum, j) => sum + rank[j], 0) / near[i].length;
        const centre = new Map(l.map((i, at) => [i, near[i].length ? middle(i) : (at + 1) / (l.length + 1)]));
        l.sort((a, b) => centre.get(a) - centre.get(b) || a - b);
        l.forEach((i, at) => { rank[i] = (at + 1) / (l.length + 1); });
      }
    }
    const most = Math.max(5, Math.ceil(Math.sqrt(items.length)));
    return layers.flatMap((l) => {
      const parts = Math.ceil(l.length / most), size = Math.ceil(l.length / parts);
      return Array.from({ length: parts }, (_, i) => l.slice(i * size, (i + 1) * size)).filter((c) => c.length);
    });
  }
};

PW.nodeSize = (p, node) => {
  if (node >= p.nBoxes) return { w: 132, h: 36 };
  const ops = p.boxes.end[node] - p.boxes.start[node];
  return { w: 152, h: 44 + Math.min(18, Math.round(Math.log2(ops))) };
};

PW.visibleEdges = (p, nodeAt, count) => {
  const m = PW.model, found = new Map();
  for (let e = 0; e < m.from.length; e += 1) {
    const a = nodeAt[p.position[m.from[e]]], b = nodeAt[p.position[m.to[e]]];
    if (a === b) continue;
    const key = a * count + b, bytes = m.tensorBytes[m.tensor[e]];
    let edge = found.get(key);
    if (!edge) found.set(key, (edge = { a, b, bytes: 0, copied: 0, tensors: 0, last: -1 }));
    if (edge.last === m.tensor[e]) continue;
    edge.last = m.tensor[e];
    edge.tensors += 1;
    edge.bytes += bytes;
    if (p.device[m.from[e]] !== p.device[m.to[e]]) { edge.copied += bytes; edge.crosses = true; }
  }
  return [...found.values()];
};

// Boxes to open at first: the largest, as long as the picture stays readable.
PW.firstOpen = (p, most) => {
  const open = new Set([0]);
  let shown = PW.nodeChildren(p, 0).length;
  const canOpen = (k) => k < p.nBoxes && p.boxes.kind[k] !== "segments";
  const waiting = PW.nodeChildren(p, 0).filter(canOpen);
  const size = (k) => p.boxes.end[k] - p.boxes.start[k];
  for (;;) {
    waiting.sort((a, b) => size(b) - size(a));
    const at = waiting.findIndex((k) => shown + PW.nodeChildren(p, k).length - 1 <= most);
    if (at < 0) return open;
    const [box] = waiting.splice(at, 1), kids = PW.nodeChildren(p, box);
    open.add(box);
    shown += kids.length - 1;
    waiting.push(...kids.filter(canOpen));
  }
};
