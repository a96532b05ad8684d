// Small charts: memory over time, and how a learned placer got there.
PW.showMemory = (shown) => {
  const charts = shown.flatMap((p) => p.devices.map((device, d) => device.ops > 0 && card(p, device, p.memory[d])));
  PW.byId("memory").replaceChildren(...charts.filter(Boolean));
  PW.byId("memory-note").textContent = shown[0].memory.some((m) => m.timed)
    ? "Weights and live activations over time. The bar is the share of the limit, a dashed line the limit if near."
    : "What is resident all along: this model of execution keeps no time for activations.";

  function card(p, device, curve) {
    const part = device.limit === null ? null : device.memory / device.limit;
    const share = part < 0.001 ? "below 0.1%" : PW.percent(part, part < 0.1 ? 1 : 0);
    const peak = `peak ${PW.bytes(device.memory)}` + (part === null ? "" : ` of ${PW.bytes(device.limit)} (${share})`);
    const meter = () => PW.el("span", { class: "meter", colour: PW.colour(device.name), title: "share of the limit" },
      PW.el("i", { width: `${Math.min(100, 100 * part)}%` }));
    return PW.el("div", { class: "chart" },
      PW.el("header", null, PW.deviceTag(device.name),
        shown.length > 1 && PW.el("span", { class: "whose" }, p.label), PW.el("span", { class: "soft" }, peak)),
      part !== null && meter(),
      curve.timed && drawing(p, curve, device));
  }
  function drawing(p, curve, device) {
    const W = 300, H = 78, end = p.value || 1, peak = Math.max(device.memory, 1);
    const isNear = device.limit !== null && device.limit < peak * 4;
    const top = (isNear ? Math.max(device.limit, peak) : peak) * 1.08;
    const x = (t) => ((W * Math.min(t, end)) / end).toFixed(1), y = (b) => (H - (H * b) / top).toFixed(1);
    const bytes = (i) => y(curve.bytes[Math.max(0, i)]);
    const steps = curve.time.map((t, i) => `L${x(t)} ${bytes(i - 1)} L${x(t)} ${bytes(i)}`);
    const path = `M0 ${H} ${steps.join(" ")} L${W} ${bytes(curve.bytes.length - 1)} L${W} ${H} Z`;
    const shape = PW.svg("path", { d: path, "fill-opacity": 0.3, "stroke-width": 1.3 });
    shape.style.fill = shape.style.stroke = PW.colour(device.name);
    const label = `memory of ${device.name} over time`;
    const svg = PW.svg("svg", { viewBox: `0 0 ${W} ${H + 14}`, role: "img", "aria-label": label });
    svg.append(PW.svg("line", { class: "axis", x1: 0, x2: W, y1: H, y2: H }), shape);
    if (isNear) svg.append(PW.svg("line", { class: "limit", x1: 0, x2: W, y1: y(device.limit), y2: y(device.limit) }));
    svg.append(PW.svg("text", { x: 0, y: H + 12 }, "0"));
    svg.append(PW.svg("text", { x: W, y: H + 12, "text-anchor": "end" }, PW.time(end, 3)));
    return svg;
  }
};

PW.showCurves = (shown) => {
  const learnt = shown.filter((p) => p.curve && p.curve.evaluations.length > 1);
  PW.byId("learning").hidden = !learnt.length;
  PW.byId("curves").replaceChildren(...learnt.map((p) => {
    const { best, evaluations } = p.curve, last = best.length - 1;
    const text = `best ${PW.time(best[last])} after ${PW.count(evaluations[last])} evaluations`;
    const header = PW.el("header", null, PW.el("b", null, p.label), PW.el("span", { class: "soft" }, text));
    return PW.el("div", { class: "chart" }, header, drawing(p));
  }));

  function drawing(p) {
    const W = 300, H = 120, c = p.curve, last = c.evaluations[c.evaluations.length - 1], alone = PW.bestAlone(p);
    const ordered = [...c.mean].sort((a, b) => a - b), usual = ordered[Math.floor(ordered.length * 0.95)];
    const high = Math.max(usual, c.best[0], alone ? alone.alone : 0), low = Math.min(p.bound || Infinity, ...c.best);
    const x = (e) => ((W * e) / last).toFixed(1);
    const y = (v) => 6 + (H - 12) * (1 - (Math.min(v, high) - low) / (high - low || 1));
    const line = (values, colour, width) => {
      const points = values.map((v, i) => `${x(c.evaluations[i])} ${y(v).toFixed(1)}`);
      const path = PW.svg("path", { d: "M" + points.join(" L"), fill: "none", "stroke-width": width });
      path.style.stroke = colour;
      return path;
    };
    const level = (value, name, dy) => (value > 0 && value >= low && value <= high ? [
      PW.svg("line", { class: "axis", x1: 0, x2: W, y1: y(value), y2: y(value), "stroke-dasharray": "4 3" }),
      PW.svg("text", { x: W, y: y(value) + dy, "text-anchor": "end" }, `${name} ${PW.time(value, 3)}`),
    ] : []);
    const label = "best and mean value over evaluations";
    const svg = PW.svg("svg", { viewBox: `0 0 ${W} ${H + 14}`, role: "img", "aria-label": label });
    svg.append(line(c.mean, PW.css("--edge"), 1.2), line(c.best, PW.css("--good"), 2));
    svg.append(...level(p.bound, "proven bound", -3), ...(alone ? level(alone.alone, `${alone.name} alone`, -3) : []));
    svg.append(PW.svg("text", { x: 0, y: H + 12 }, "green: best, grey: mean"));
    svg.append(PW.svg("text", { x: W, y: H + 12, "text-anchor": "end" }, PW.many(last, "evaluation")));
    return svg;
  }
};
