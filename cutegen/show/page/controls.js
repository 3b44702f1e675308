// The page's controls: search, operand, sliders (thread, warp, stage, k-block, load, phase, slot), theme, help and keys.

const KEYS = [
  ["← ↑ ↓ →", "move the followed element (left and right: along the contiguous mode)"],
  ["Shift + arrow", "move it by 8"],
  ["a b c", "follow an element of A, B or C"],
  ["/", "search: a,12,40 for an element, t37 for a thread, w2 for a warp"],
  ["[ ]", "previous or next thread"],
  [", .", "previous or next phase"],
  ["space", "play or pause the pipeline"],
  ["s", "one pipeline slot forward (Shift: back)"],
  ["d", "switch between light and dark"],
  ["?", "this help"],
  ["Esc", "close"],
];

/** Parse a search; return the element or thread to follow, or an error. */
function searched(text) {
  const thread = /^\s*([tw])\s*(\d+)\s*$/i.exec(text);
  if (thread && isPlan) {
    const number = Number(thread[2]) * (thread[1].toLowerCase() === "w" ? WARP : 1);
    const last = data.mma.threads - 1;
    if (number > last) return { error: `found ${text.trim()}; expected a thread up to t${last}, the last MMA thread` };
    return { thread: number };
  }
  const place = /^\s*(?:([abc])\s*[,(\s]\s*)?(\d+)\s*[,\s]\s*(\d+)\s*\)?\s*$/i.exec(text);
  if (!place) return { error: isPlan ? "expected a,12,40, t37 or w2" : "expected 3,5" };
  const operand = isPlan ? (place[1] || state.operand).toLowerCase() : "layout";
  const [x, y] = [Number(place[2]), Number(place[3])];
  const extents = tileOf(operand);
  if (x >= extents[0] || y >= extents[1]) {
    return { error: `found (${x}, ${y}); expected less than (${extents.join(", ")}), the tile shape` };
  }
  return { operand, x, y };
}

function searchBox() {
  const field = element("input", {
    id: "search", type: "search", placeholder: isPlan ? "a,12,40 or t37" : "3,5", spellcheck: "false",
    autocomplete: "off", "aria-label": "Search for an element or a thread", "aria-describedby": "complaint",
  });
  const complaint = element("span", { id: "complaint", role: "alert" });
  const form = element("form", { role: "search" }, field, element("button", { type: "submit" }, "Follow"), complaint);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const found = searched(field.value);
    complaint.textContent = found.error || "";
    if (found.error) return;
    if (found.thread !== undefined) markThread(found.thread);
    else follow(found.operand, found.x, found.y, true);
  });
  return form;
}

/** Mark a thread. The followed element stays, and the views show the loads of this thread's warp. */
function markThread(thread) {
  update({ thread });
  if (resting) resting.thread = state.thread;
}

/** Build a slider with its label and value. `most` returns the largest value, which may depend on the followed element. */
function slider(id, label, most, set, read = () => state[id]) {
  const input = element("input", { type: "range", min: 0, id: `slide-${id}` });
  const output = element("output", { for: `slide-${id}`, id: `at-${id}` });
  input.addEventListener("input", () => set(Number(input.value)));
  const name = element("span", {});
  const root = element("label", { class: "slider" }, name, input, output);
  return {
    root,
    say() {
      const last = most();
      name.textContent = typeof label === "function" ? label() : label;
      input.max = String(last);
      input.value = String(read());
      input.disabled = last === 0;
      output.textContent = `${read()} / ${last}`;
    },
  };
}

/** Build the slider that selects the access of a lane or the descriptor block to show by phase. */
function loadSlider(loads) {
  const label = () => lanesShown()?.word || (followed().inPlace ? "block" : "access");
  const isListed = () => !writesShown() && state.operand !== "c";
  const most = () => (isListed() ? loads().length : lanesShown()?.count || 1) - 1;
  const set = (i) => update({ [indexShown()]: isListed() ? loads()[i] : i });
  const read = () => (isListed() ? Math.max(0, loads().indexOf(state.load)) : Math.min(state[indexShown()], most()));
  return slider("load", label, most, set, read);
}

function planSliders() {
  const warps = () => Math.max(1, data.mma.threads / WARP);
  const phases = () => (accessOf()?.phases.length ?? 1) - 1;
  const loads = () => {
    const operand = followed();
    if (state.operand === "c") return [];
    if (operand.copied) return operand.loadsOf(state.kBlock, data.mma.tile[2]);
    const blocks = operand.tile[0] / operand.loads.rows;
    const perBlock = data.mma.tile[2] / operand.loads.k;
    return Array.from({ length: blocks * perBlock }, (_, i) => state.kBlock * blocks * perBlock + i);
  };
  const setBlock = (kBlock) => {
    state.kBlock = kBlock;
    const [load = state.load] = loads();
    state.kBlock = -1; // so that `update` reports a change
    update({ kBlock, load });
  };
  return [
    slider("thread", "thread", () => data.mma.threads - 1, markThread),
    slider("warp", "warp", () => Math.ceil(warps()) - 1, (warp) => markThread(warp * WARP + (state.thread % WARP)), () => warpOf(state.thread)),
    slider("kBlock", "k-block", () => kBlocks() - 1, setBlock),
    loadSlider(loads),
    slider("phase", () => (lanesShown() || !followed().inPlace ? "phase" : "core matrix"), phases, (phase) => update({ phase })),
    slider("stage", "stage", () => data.overview.stages - 1, (stage) => update({ stage })),
    ...(data.pipeline ? [slider("slot", "slot", () => data.pipeline.slots.length - 1, (slot) => update({ slot }))] : []),
  ];
}

function operandButtons() {
  const names = ["a", "b", ...(data.epilogue ? ["c"] : [])];
  const buttons = names.map((name) => {
    const button = element("button", { type: "button", id: `operand-${name}` }, name.toUpperCase());
    button.addEventListener("click", () => follow(name, state.x, state.y, true));
    return button;
  });
  const say = () => buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(state.operand === names[i])));
  return { root: element("div", { class: "switch", role: "group", "aria-label": "Followed operand" }, ...buttons), say };
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  palette = THEMES[name];
  refresh(new Set(["all"]));
}

const themeNow = () => document.documentElement.dataset.theme;

function themeButton() {
  const button = element("button", { type: "button", id: "theme", "aria-label": "Switch between light and dark" }, "◐");
  button.addEventListener("click", () => setTheme(themeNow() === "dark" ? "light" : "dark"));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  return button;
}

function helpBox() {
  const rows = KEYS.filter(([keys]) => isPlan || !/a b c|\[|,|space|^s$/.test(keys));
  const list = element("dl", {}, ...rows.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const close = element("button", { type: "button", autofocus: true }, "Close");
  const box = element(
    "dialog",
    { id: "help", "aria-label": "Keys" },
    element("h2", {}, "Keys"),
    list,
    element("p", {}, "Point at an element to follow it through every view; click to pin it. The followed element is drawn in the accent color, elements of the marked thread in solid text color. Each picture can be saved as SVG."),
    close,
  );
  close.addEventListener("click", () => box.close());
  return box;
}

/** Move the followed element: `down` across rows, `right` along the contiguous mode. */
function moved(down, right) {
  const name = state.operand;
  const operand = operands[name];
  const major = operand.major ?? 1;
  const [x, y] = major === 1 ? [state.x + down, state.y + right] : [state.x + right, state.y + down];
  const [lastX, lastY] = tileOf(name);
  follow(name, clamp(x, 0, lastX - 1), clamp(y, 0, lastY - 1), true);
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const press = (id) => document.getElementById(id)?.click();
  const shortcuts = {
    "/": () => document.getElementById("search").focus(),
    "?": () => document.getElementById("help").showModal(),
    d: () => press("theme"),
  };
  if (isPlan) {
    Object.assign(shortcuts, {
      a: () => press("operand-a"),
      b: () => press("operand-b"),
      c: () => press("operand-c"),
      "[": () => markThread(state.thread - 1),
      "]": () => markThread(state.thread + 1),
      ",": () => update({ phase: state.phase - 1 }),
      ".": () => update({ phase: state.phase + 1 }),
      s: () => press("step"),
      S: () => press("step-back"),
    });
    if (event.target.tagName !== "BUTTON") shortcuts[" "] = () => press("play");
  }
  const arrow = ARROWS[event.key];
  const by = event.shiftKey ? 8 : 1;
  if (arrow) moved(arrow[0] * by, arrow[1] * by);
  else if (shortcuts[event.key]) shortcuts[event.key]();
  else return;
  event.preventDefault();
}
