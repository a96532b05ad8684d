// Small helpers. Text reaches the page through text nodes only, never as markup.
const PW = {};

PW.el = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "colour") node.style.color = value;
    else if (name === "width") node.style.width = value;
    else if (name === "left") node.style.left = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return node;
};

PW.svg = (tag, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

PW.byId = (id) => document.getElementById(id);

PW.digits = (value, count) => {
  const text = Number(value.toPrecision(count));
  return Math.abs(text) >= 1e6 || (text !== 0 && Math.abs(text) < 1e-4) ? text.toExponential() : String(text);
};

PW.time = (value, digits = 4) => {
  if (value === null || value === undefined) return "—";
  if (PW.unit !== "s") return PW.digits(value, Math.max(digits, 5));
  const size = Math.abs(value);
  if (size >= 1 || size === 0) return PW.digits(value, digits) + " s";
  if (size >= 1e-3) return PW.digits(value * 1e3, digits) + " ms";
  if (size >= 1e-6) return PW.digits(value * 1e6, digits) + " µs";
  return PW.digits(value * 1e9, digits) + " ns";
};

PW.bytes = (value) => {
  if (value === null || value === undefined) return "no limit";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return (unit === 0 ? String(Math.round(value)) : PW.digits(value, 3)) + " " + units[unit];
};

PW.count = (value) => value.toLocaleString("en-GB");
PW.many = (value, one, more) => PW.count(value) + " " + (value === 1 ? one : more || one + "s");

PW.percent = (fraction, digits = 1) => {
  const text = (Math.abs(fraction) * 100).toFixed(digits);
  return text + "%";
};

PW.signed = (fraction) => {
  const isTiny = Math.abs(fraction) < 0.001 && fraction !== 0;
  return (fraction < 0 ? "−" : "+") + PW.percent(fraction, isTiny ? 3 : 1);
};

PW.short = (text, limit) => {
  if (text.length <= limit) return text;
  const head = Math.ceil((limit - 1) * 0.6);
  return text.slice(0, head) + "…" + text.slice(text.length - (limit - 1 - head));
};

// Okabe and Ito's colours, which differ for every common sort of colour blindness; from the ninth device on, striped.
PW.palettes = {
  light: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a800", "#7c8592"],
  dark: ["#3f9ade", "#f0b23c", "#2fbf94", "#dd93bb", "#f07f3c", "#8accf3", "#e3d94a", "#a0a9b6"],
};

PW.theme = () => document.documentElement.dataset.theme || "light";

PW.colour = (deviceName) => {
  const palette = PW.palettes[PW.theme()];
  const number = PW.deviceNumber.get(deviceName) || 0;
  return palette[number % palette.length];
};

PW.isStriped = (deviceName) => (PW.deviceNumber.get(deviceName) || 0) >= 8;

PW.chip = (deviceName) => PW.el("span", {
  class: PW.isStriped(deviceName) ? "chip striped" : "chip", colour: PW.colour(deviceName), "aria-hidden": "true",
});

PW.deviceTag = (deviceName) => PW.el("span", { class: "device" }, PW.chip(deviceName), PW.el("bdi", null, deviceName));

PW.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

PW.tip = (x, y, ...children) => {
  const tip = PW.byId("tip");
  if (!children.length) { tip.hidden = true; return; }
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18) + "px";
};

PW.tipRow = (name, value) =>
  PW.el("span", { class: "row" }, PW.el("span", { class: "soft" }, name), PW.el("span", null, value));

// A canvas as sharp as the screen, drawn at most once per frame.
PW.sharpCanvas = (canvas, draw) => {
  let asked = false;
  const context = canvas.getContext("2d");
  const paint = () => {
    asked = false;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  return () => { if (!asked) { asked = true; requestAnimationFrame(paint); } };
};

PW.wheelFactor = (event) => Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) * 0.008);

PW.flops = (value) => {
  const units = ["flop", "kflop", "Mflop", "Gflop", "Tflop"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${PW.digits(value, 3)} ${units[unit]}`;
};

// Black or white, whichever can be read on a colour.
PW.inkOn = (colour) => {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#10141a" : "#ffffff";
};
