// Assembles the page and follows the first element.

/** Name the plan's sizes, each with its unit. */
function chipsOfPlan(overview) {
  const [m, n, k] = overview.cta;
  const { threads } = data.mma;
  const others = threads < overview.threads ? `, ${threads} multiply` : "";
  return [
    `family ${overview.family}`,
    `target ${overview.target}`,
    `CTA tile m ${m} × n ${n} × k ${k}`,
    plural(overview.stages, "stage"),
    `${plural(overview.threads, "thread")} per CTA${others}`,
    `${thousands(overview.smem_bytes)} bytes of shared memory per CTA`,
  ];
}

function head() {
  const { overview } = data;
  const title = isPlan ? overview.title : data.layout.text;
  const swapped = isPlan && overview.swapped ? ["A and B swapped: A here is the call's B"] : [];
  const chips = isPlan
    ? [...swapped, ...chipsOfPlan(overview)]
    : [`elements of ${data.layout.dtype}`];
  const help = element("button", { type: "button", id: "help-button", "aria-label": "Keys and help" }, "?");
  help.addEventListener("click", () => document.getElementById("help").showModal());
  return element(
    "header",
    { id: "head" },
    element("div", { class: "name" }, element("h1", {}, title), element("p", {}, isPlan ? overview.description : "a layout, element by element")),
    element("ul", { class: "chips" }, ...chips.map((chip) => element("li", {}, chip))),
    searchBox(),
    themeButton(),
    help,
  );
}

function planPage(root) {
  const sliders = planSliders();
  const buttons = operandButtons();
  const name = element("strong", { id: "followed", "aria-live": "polite" });
  const bar = element("aside", { id: "bar", "aria-label": "Followed element" },
    element("div", { class: "now" }, element("span", {}, "following "), name, buttons.root),
    ...(data.open.note ? [element("p", { class: "now", id: "note" }, `Opened at ${data.open.note}.`)] : []),
    ...sliders.map((each) => each.root),
  );
  root.append(head(), bar, journey, element("main", { id: "views" }), helpBox());
  mapView();
  sharedView();
  globalView();
  accessView();
  bitsView(placeForBits);
  fragmentView();
  tensorMemoryView();
  if (data.matrix) matrixView();
  pipelineView();
  rankingView();
  decisionsView();
  watchers.push(() => {
    sayJourney();
    buttons.say();
    sliders.forEach((each) => each.say());
  });
}

function layoutPage(root) {
  root.append(head(), element("main", { id: "views" }), helpBox());
  layoutViews();
}

const COLUMN_PX = 476;
const WIDE_COLUMN_PX = 640;
let columnsNow = 0;

/** Arrange the views in columns of similar height, with wide views below all columns, if the number of columns changed. */
function arrange() {
  const holder = document.getElementById("views");
  const least = window.innerWidth >= 2000 ? WIDE_COLUMN_PX : COLUMN_PX;
  const count = Math.max(1, Math.floor((holder.clientWidth + 16) / (least + 16)));
  if (count === columnsNow) return;
  columnsNow = count;
  const columns = Array.from({ length: count }, () => element("div", { class: "column" }));
  const [wide, narrow] = [views.filter((view) => view.wide), views.filter((view) => !view.wide)];
  const first = isPlan ? [] : wide.splice(0, 1);
  holder.style.setProperty("--columns", count);
  holder.replaceChildren(...first.map((view) => view.root), ...columns, ...wide.map((view) => view.root));
  for (const view of narrow) {
    const heights = columns.map((column) => column.offsetHeight);
    columns[heights.indexOf(Math.min(...heights))].append(view.root);
    view.redraw();
    view.say();
  }
}

const PARTS = { mma: "fragment", smem: "shared", g2s: "global", s2r: "access", epilogue: "shared", pipeline: "pipeline" };

function begin() {
  (isPlan ? planPage : layoutPage)(document.getElementById("page"));
  watchers.push(refresh);
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "dark" : "light");
  if (isPlan) {
    const { thread, part, element: at } = data.open;
    state.thread = thread;
    state.operand = "";
    if (at) {
      state.stage = at[3];
      follow(at[0], at[1], at[2], true);
    } else follow(part === "epilogue" ? "c" : "a", 0, 0, true, thread);
    arrange();
    if (part && PARTS[part]) document.getElementById(`view-${PARTS[part]}`).scrollIntoView();
  } else {
    state.operand = "";
    follow("layout", 0, 0, true);
    arrange();
  }
  document.addEventListener("keydown", onKey);
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (entry.contentRect.width === width) return;
    width = entry.contentRect.width;
    arrange();
    refresh(new Set(["all"]));
  }).observe(document.getElementById("views"));
}

begin();
