// Boxes in boxes: in each box the nodes stand in layers from left to right, layers run on in rows like text.
PW.layout = (p, open, aspect) => {
  const m = PW.model, kid = new Int32Array(m.n);
  const GAP_X = 22, GAP_Y = 9, ROW_GAP = 22, PAD = 10, HEAD = 24;

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
    const body = inside(node, 1.9);
    return { key: node, w: Math.max(body.w, 110) + 2 * PAD, h: body.h + HEAD + PAD, body, open: true };
  };

  const arrange = (items, edges, wanted) => {
    const columns = columnsOf(items, edges);
    const width = (c) => Math.max(...c.map((i) => items[i].w));
    const height = (c) => c.reduce((sum, i) => sum + items[i].h + GAP_Y, -GAP_Y);
    const area = columns.reduce((sum, c) => sum + (width(c) + GAP_X) * (height(c) + ROW_GAP), 0);
    const target = Math.max(...columns.map(width), Math.sqrt(area * 1.15 * wanted));
    let x = 0, y = 0, row = [], rowHeight = 0, fullWidth = 0;
    const finish = () => {
      for (const { c, left } of row) {
        let top = y + (rowHeight - height(c)) / 2;
        for (const i of c) {
          items[i].x = left + (width(c) - items[i].w) / 2;
          items[i].y = top;
          top += items[i].h + GAP_Y;
        }
      }
      fullWidth = Math.max(fullWidth, x - GAP_X);
      y += rowHeight + ROW_GAP;
      x = 0; row = []; rowHeight = 0;
    };
    for (const c of columns) {
      if (row.length && x + width(c) > target) finish();
      row.push({ c, left: x });
      x += width(c) + GAP_X;
      rowHeight = Math.max(rowHeight, height(c));
    }
    finish();
    return { w: fullWidth, h: y - ROW_GAP, items };
  };

  const root = inside(0, aspect);
  const nodes = [], nodeAt = new Int32Array(m.n).fill(-1);
  const place = (body, x, y, depth) => {
    for (const item of body.items) {
      const node = { key: item.key, x: x + item.x, y: y + item.y, w: item.w, h: item.h, open: Boolean(item.open), depth };
      nodes.push(node);
      if (item.open) place(item.body, node.x + PAD + (item.w - 2 * PAD - item.body.w) / 2, node.y + HEAD, depth + 1);
      else nodeAt.fill(nodes.length - 1, ...PW.nodeSpan(p, item.key));
    }
  };
  place(root, 0, 0, 0);
  return { nodes, edges: PW.visibleEdges(p, nodeAt, nodes.length), nodeAt, w: root.w, h: root.h };

  function columnsOf(items, edges) {
    // Items come in topological order, so one pass finds the longest ways.
    const layer = new Int32Array(items.length), first = new Int32Array(items.length).fill(1e9), entered = new Uint8Array(items.length);
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
        const centre = new Map(l.map((i, at) => [i, near[i].length ? near[i].reduce((s, j) => s + rank[j], 0) / near[i].length : (at + 1) / (l.length + 1)]));
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
  if (node >= p.nBoxes) return { w: 118, h: 30 };
  const ops = p.boxes.end[node] - p.boxes.start[node];
  return { w: 138, h: 42 + Math.min(18, Math.round(Math.log2(ops))) };
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
  const waiting = PW.nodeChildren(p, 0).filter((k) => k < p.nBoxes);
  const size = (k) => p.boxes.end[k] - p.boxes.start[k];
  for (;;) {
    waiting.sort((a, b) => size(b) - size(a));
    const at = waiting.findIndex((k) => shown + PW.nodeChildren(p, k).length - 1 <= most);
    if (at < 0) return open;
    const [box] = waiting.splice(at, 1), kids = PW.nodeChildren(p, box);
    open.add(box);
    shown += kids.length - 1;
    waiting.push(...kids.filter((k) => k < p.nBoxes));
  }
};
