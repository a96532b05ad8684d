// Search by name, type or module: names first. Arrows choose, Enter goes there.
PW.searchBox = (placementShown, goTo, done) => {
  const MOST = 40, input = PW.byId("search"), hits = PW.byId("hits");
  let found = [], at = 0, words = null;

  const look = () => {
    const wanted = input.value.trim().toLowerCase(), byName = [], byOther = [];
    const other = (v) => `${PW.model.type(v)} ${PW.model.path(v)}`.toLowerCase();
    words = words || PW.model.names.map((name, v) => [name.toLowerCase(), other(v)]);
    if (wanted) {
      words.forEach(([name, rest], v) => {
        if (name.includes(wanted)) byName.push(v);
        else if (rest.includes(wanted)) byOther.push(v);
      });
    }
    found = [...byName, ...byOther].slice(0, MOST);
    at = 0;
    const total = byName.length + byOther.length;
    const text = `${PW.count(total)} found` + (total > MOST ? `, the first ${MOST} shown` : "");
    hits.replaceChildren(...found.map(row), PW.el("li", { class: "soft", role: "presentation" }, text));
    toggle(wanted !== "");
    point();
  };
  const row = (v, i) => {
    const p = placementShown();
    const onpointerdown = (event) => {
      event.preventDefault();
      choose(i);
    };
    return PW.el("li", { role: "option", id: `hit-${i}`, onpointerdown }, PW.chip(p.devices[p.device[v]].name),
      PW.el("span", { class: "name" }, PW.short(PW.model.names[v], 200)),
      PW.el("small", null, PW.short(PW.model.type(v), 40)));
  };
  const toggle = (isOpen) => {
    hits.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
  };
  const point = () => {
    found.forEach((_, i) => hits.children[i].setAttribute("aria-selected", String(i === at)));
    if (!found.length || hits.hidden) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    input.setAttribute("aria-activedescendant", `hit-${at}`);
    hits.children[at].scrollIntoView({ block: "nearest" });
  };
  const choose = (i) => {
    if (found[i] === undefined) return;
    goTo(found[i]);
    toggle(false);
    done();
  };
  input.addEventListener("input", look);
  input.addEventListener("focus", () => { if (input.value) look(); });
  input.addEventListener("blur", () => toggle(false));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      choose(at);
    } else if (event.key === "Escape") {
      input.value = "";
      input.blur();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      event.preventDefault();
      point();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target === input) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
};
