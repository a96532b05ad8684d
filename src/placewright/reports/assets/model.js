// The page's data, unpacked: one model, and its placements.
PW.unpackNames = ({ keep, rest }) => {
  const names = new Array(rest.length);
  let before = "";
  for (let i = 0; i < rest.length; i += 1) before = names[i] = before.slice(0, keep[i]) + rest[i];
  return names;
};

PW.unpackModel = (m) => {
  const n = m.names.rest.length, edgeCount = m.reader.length;
  const model = {
    name: m.name, n, names: PW.unpackNames(m.names),
    type: (v) => m.types.words[m.types.at[v]],
    path: (v) => m.paths.words[m.paths.at[v]],
    shape: (v) => m.shapes.words[m.shapes.at[v]],
    weightBytes: m.weight_bytes, flops: m.flops, tensorBytes: m.tensor_bytes, backward: new Set(m.backward),
    producer: new Int32Array(m.tensor_producer.length),
    from: new Int32Array(edgeCount), to: new Int32Array(edgeCount), tensor: new Int32Array(edgeCount),
    outPtr: new Int32Array(n + 1), inPtr: new Int32Array(n + 1), inEdge: new Int32Array(edgeCount),
  };
  let producer = 0, e = 0;
  m.tensor_producer.forEach((step, t) => {
    producer += step;
    model.producer[t] = producer;
    for (let k = 0; k < m.readers[t]; k += 1, e += 1) {
      model.from[e] = producer;
      model.to[e] = producer + m.reader[e];
      model.tensor[e] = t;
      model.outPtr[producer + 1] += 1;
      model.inPtr[model.to[e] + 1] += 1;
    }
  });
  for (let v = 0; v < n; v += 1) { model.outPtr[v + 1] += model.outPtr[v]; model.inPtr[v + 1] += model.inPtr[v]; }
  const next = model.inPtr.slice();
  for (let i = 0; i < edgeCount; i += 1) { model.inEdge[next[model.to[i]]] = i; next[model.to[i]] += 1; }
  return model;
};

// Edges run in the order of their producers, so those of op v are outPtr[v] to outPtr[v + 1].
PW.unpackPlacement = (p, number, costs, model) => {
  const cost = costs[p.cost], nBoxes = p.boxes.start.length, nDevices = p.devices.length;
  const placement = { ...p, number, nBoxes, position: new Int32Array(model.n) };
  placement.children = Array.from({ length: nBoxes }, () => []);
  placement.costOf = (v, d) => cost.op_time[p.devices[d].kind][v];
  placement.kindName = (d) => cost.kinds[p.devices[d].kind];
  placement.timeOf = (v) => placement.costOf(v, p.device[v]) || 0;
  p.order.forEach((v, i) => { placement.position[v] = i; });
  p.boxes.parent.forEach((parent, b) => { if (parent >= 0) placement.children[parent].push(b); });
  placement.share = Array.from({ length: nBoxes }, () => new Float64Array(nDevices));
  placement.opCount = Array.from({ length: nBoxes }, () => new Int32Array(nDevices));
  for (let b = nBoxes - 1; b >= 0; b -= 1) {
    if (placement.children[b].length === 0) {
      for (let i = p.boxes.start[b]; i < p.boxes.end[b]; i += 1) {
        const v = p.order[i];
        placement.share[b][p.device[v]] += placement.timeOf(v);
        placement.opCount[b][p.device[v]] += 1;
      }
    }
    const parent = p.boxes.parent[b];
    if (parent >= 0) {
      for (let d = 0; d < nDevices; d += 1) {
        placement.share[parent][d] += placement.share[b][d];
        placement.opCount[parent][d] += placement.opCount[b][d];
      }
    }
  }
  placement.moveRow = new Map(p.moves.op.map((v, i) => [v, i]));
  placement.valueIfMoved = (v, d) => {
    const row = placement.moveRow.get(v);
    return row === undefined ? undefined : p.moves.value[row * nDevices + d];
  };
  return placement;
};

// A node is a box (its number) or an op (number of boxes + its number). A box of one op is shown as that op.
PW.nodeChildren = (p, node) => {
  if (node >= p.nBoxes) return [];
  const inner = p.children[node], isSingle = (b) => p.boxes.end[b] - p.boxes.start[b] === 1;
  if (inner.length) return inner.map((b) => (isSingle(b) ? p.nBoxes + p.order[p.boxes.start[b]] : b));
  const ops = [];
  for (let i = p.boxes.start[node]; i < p.boxes.end[node]; i += 1) ops.push(p.nBoxes + p.order[i]);
  return ops;
};

PW.nodeSpan = (p, node) => {
  if (node < p.nBoxes) return [p.boxes.start[node], p.boxes.end[node]];
  const at = p.position[node - p.nBoxes];
  return [at, at + 1];
};

PW.nodeDevices = (p, node) => {
  if (node >= p.nBoxes) return [{ d: p.device[node - p.nBoxes], part: 1 }];
  const share = p.share[node], count = p.opCount[node];
  const total = share.reduce((a, b) => a + b, 0), all = count.reduce((a, b) => a + b, 0);
  const parts = [];
  count.forEach((c, d) => { if (c) parts.push({ d, part: total > 0 ? share[d] / total : c / all }); });
  return parts;
};

PW.nodeTime = (p, node) =>
  node >= p.nBoxes ? p.timeOf(node - p.nBoxes) : p.share[node].reduce((a, b) => a + b, 0);

PW.nodeLabel = (p, node) => {
  if (node >= p.nBoxes) return PW.model.names[node - p.nBoxes];
  const kind = p.boxes.kind[node];
  return (kind.startsWith("segment") ? kind + " " : "") + (p.boxes.label[node] || PW.model.name);
};

// The boxes around an op, from the whole inwards.
PW.boxesAround = (p, v) => {
  const at = p.position[v], path = [0];
  for (;;) {
    const inner = p.children[path[path.length - 1]].find((b) => p.boxes.start[b] <= at && at < p.boxes.end[b]);
    if (inner === undefined || p.boxes.end[inner] - p.boxes.start[inner] === 1) return path;
    path.push(inner);
  }
};
