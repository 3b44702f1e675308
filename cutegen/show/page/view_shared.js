// Shared memory: one row per 128-byte line, 32 banks across, in any of the compared layouts.

const LINES_OF_ZOOM = 8;
const cachedContents = new Map();

function contentsOf(tile, layout) {
  const key = `${tile.name}/${layout}`;
  if (!cachedContents.has(key)) cachedContents.set(key, tile.contents(layout));
  return cachedContents.get(key);
}

/** Return the elements per line and the lines per stage. */
function linesOf(tile, layout) {
  const perLine = LINE_BYTES / tile.bytes;
  return { perLine, lines: Math.ceil(tile.layouts[layout].stage / perLine) };
}

/** Draws one stage of a tile, and eight lines of it enlarged. `followedPlace` returns the followed element's location, or null. */
class SharedPicture {
  constructor(tileOfState, layoutOfState, followedPlace) {
    Object.assign(this, { tileOfState, layoutOfState, followedPlace });
  }

  geometry(width) {
    const tile = this.tileOfState();
    if (!tile) return null;
    const layout = this.layoutOfState();
    const { perLine, lines } = linesOf(tile, layout);
    const [left, top] = [44, 36];
    const room = width - left - 4;
    const whole = cells(left, top, room / perLine, clamp(420 / lines, 2, 12));
    const below = whole.y(lines) + 44;
    const chunks = LINE_BYTES / CHUNK_BYTES;
    const zoom = cells(left, below, room / chunks, 22);
    return { tile, layout, perLine, lines, whole, zoom, height: zoom.y(LINES_OF_ZOOM) + 8 };
  }

  /** Return the first of the eight enlarged lines. */
  firstLine(lines) {
    const place = this.followedPlace();
    const line = place ? place.inStage : 0;
    return clamp(Math.floor(line / LINES_OF_ZOOM) * LINES_OF_ZOOM, 0, Math.max(0, lines - LINES_OF_ZOOM));
  }

  color(tile, coordinate) {
    if (coordinate < 0) return palette.empty;
    const [, column] = tile.cell(...tile.element(coordinate));
    return hue(Math.floor((column * tile.bytes) / CHUNK_BYTES));
  }

  draw(painter, width) {
    const shown = this.geometry(width);
    if (!shown) return 0;
    const { tile, layout, perLine, lines, whole, height } = shown;
    const found = contentsOf(tile, layout);
    painted(painter, whole, lines, perLine, (row, column) => {
      const at = row * perLine + column;
      return at < found.length ? this.color(tile, found[at]) : null;
    });
    const perBank = BANK_BYTES / tile.bytes;
    for (let bank = 0; bank < BANKS; bank += 4) {
      painter.text(whole.x(bank * perBank), whole.y(0) - 8, bank, { size: 10, fill: palette.soft });
      painter.line(whole.x(bank * perBank), whole.y(0), whole.x(bank * perBank), whole.y(lines), { stroke: palette.paper });
    }
    painter.text(whole.x(0), whole.y(0) - 24, "bank", { size: 10, fill: palette.soft, bold: true });
    for (let line = 0; line < lines; line += 8) {
      painter.text(whole.x(0) - 5, whole.y(line + 0.5) + 3, line, { size: 10, fill: palette.soft, align: "end" });
    }
    return height;
  }

  mark(painter, width) {
    const shown = this.geometry(width);
    if (!shown) return;
    const { tile, layout, perLine, lines, whole, zoom } = shown;
    const first = this.firstLine(lines);
    painter.rect(whole.x(0) - 2, whole.y(first) - 1, perLine * whole.width + 4, LINES_OF_ZOOM * whole.height + 2, {
      stroke: palette.thread,
      dash: [4, 3],
    });
    const found = contentsOf(tile, layout);
    const perChunk = CHUNK_BYTES / tile.bytes;
    const caption = `16 bytes per cell, with (${tile.modes.join(", ")}) of the first element`;
    painter.text(zoom.x(0), zoom.y(0) - 22, caption, { size: 11, fill: palette.soft });
    for (let chunk = 0; chunk < 8; chunk += 1) {
      const banks = `${chunk * 4}–${chunk * 4 + 3}`;
      painter.text(zoom.x(chunk + 0.5), zoom.y(0) - 8, banks, { size: 10, fill: palette.soft, align: "middle" });
    }
    for (let line = 0; line < Math.min(LINES_OF_ZOOM, lines); line += 1) {
      painter.text(zoom.x(0) - 5, zoom.y(line + 0.5), first + line, { size: 10, fill: palette.soft, align: "end" });
      for (let chunk = 0; chunk < 8; chunk += 1) {
        const at = (first + line) * perLine + chunk * perChunk;
        const coordinate = at < found.length ? found[at] : -1;
        painter.rect(zoom.x(chunk) + 1, zoom.y(line) + 1, zoom.width - 2, zoom.height - 2, { fill: this.color(tile, coordinate) });
        const label = coordinate < 0 ? "pad" : tile.element(coordinate).join(",");
        painter.text(zoom.x(chunk + 0.5), zoom.y(line + 0.5), label, { align: "middle", fill: coordinate < 0 ? palette.soft : palette.ink });
      }
    }
    this.others(painter, tile, layout, whole, zoom, first);
    const place = this.followedPlace();
    if (!place) return;
    lit(painter, whole.x(place.inLine), whole.y(place.inStage), whole.width, whole.height);
    const down = place.inStage - first;
    if (within(down, LINES_OF_ZOOM)) {
      framed(painter, zoom.x(place.chunk) + 1, zoom.y(down) + 1, zoom.width - 2, zoom.height - 2, 2.5);
      painter.text(zoom.x(place.chunk) + zoom.width - 6, zoom.y(down + 0.5), "•", { fill: palette.accent, align: "end", size: 14 });
    }
  }

  /** Outline what is accessed together with the followed element. */
  others() {}

  at(px, py, width) {
    const shown = this.geometry(width);
    if (!shown) return null;
    const { tile, layout, perLine, lines, whole, zoom } = shown;
    const found = contentsOf(tile, layout);
    let [line, column] = whole.at(px, py);
    if (!within(line, lines) || !within(column, perLine)) {
      const [down, chunk] = zoom.at(px, py);
      if (!within(down, LINES_OF_ZOOM) || !within(chunk, 8)) return null;
      const inside = (px - zoom.x(chunk)) / zoom.width;
      const perChunk = CHUNK_BYTES / tile.bytes;
      // The window must not move while the pointer is in it.
      line = this.firstLine(lines) + down;
      column = chunk * perChunk + clamp(Math.floor(inside * perChunk), 0, perChunk - 1);
    }
    const coordinate = found[line * perLine + column];
    return coordinate >= 0 ? tile.element(coordinate) : null;
  }
}

/** Return the location of an element within its own stage. */
function inStage(tile, layout, x, y) {
  const place = tile.place(x, y, layout);
  return { ...place, inStage: place.line, inLine: Math.floor((place.byte % LINE_BYTES) / tile.bytes) };
}

/** Build the buttons plain, pad and swizzle for the best layout of each kind, and a list of all compared layouts. */
function layoutSwitch() {
  const group = element("div", { class: "switch", role: "group", "aria-label": "Shared memory layout" });
  const list = element("select", { id: "shared-layout", "aria-label": "All compared layouts" });
  const buttons = ["plain", "pad", "swizzle"].map((kind) => {
    const button = element("button", { type: "button", "data-kind": kind, id: `shared-${kind}` }, kind);
    button.addEventListener("click", () => choose(best(kind)));
    return button;
  });
  const best = (kind) => followed().sharedTile.layouts.findIndex((row) => row.kind === kind);
  const choose = (index) => {
    if (index >= 0) update({ layouts: { ...state.layouts, [state.operand]: index } });
  };
  list.addEventListener("change", () => choose(Number(list.value)));
  group.append(...buttons, list);
  let filled = null;
  const refreshed = () => {
    const tile = followed().sharedTile;
    group.hidden = !tile;
    if (!tile) {
      buttons.forEach((button) => { button.disabled = true; });
      return;
    }
    const chosen = state.layouts[state.operand];
    if (filled !== tile.name) {
      filled = tile.name;
      list.replaceChildren(
        ...tile.layouts.map((row, i) => element("option", { value: i }, `${row.name}${i === 0 ? " (in use)" : ""}`)),
      );
    }
    list.value = String(chosen);
    buttons.forEach((button) => {
      const kind = button.dataset.kind;
      button.disabled = best(kind) < 0;
      button.title = button.disabled ? `No ${kind} layout is compatible with these copies` : `The best ${kind} layout of the comparison`;
      button.setAttribute("aria-pressed", String(tile.layouts[chosen].kind === kind));
    });
  };
  return { group, refreshed };
}

function countsOf(tile, layout) {
  const row = tile.layouts[layout];
  const count = (name, label, pair) => {
    const waits = pair[0] > pair[1] ? "waits" : false;
    return [name, label, `${ways(pair)}, ${plural(pair[0], "wavefront")}`, waits];
  };
  return [
    ["layout", "layout", row.name],
    ["layout-text", "in CuTe notation", row.text],
    count("writes", "writes", row.write),
    row.lines && count("lines", "by line", row.lines),
    count("reads", "reads", row.read),
    ["bytes", "per stage", plural(row.bytes, "byte")],
  ];
}

/** Say why the followed operand has no tile in shared memory. */
const notShared = () => `${followed().name} does not pass through shared memory: registers are stored to global memory.`;

function sharedNote() {
  const { tile } = sharedNow();
  const column = tile.modes[tile.major];
  const colors = `Each hue is 16 bytes of a row along ${column}; equal hues share a column in global memory. Outlined: one phase.`;
  if (state.operand !== "c") return `One stage of ${tile.name}. ${colors}`;
  const { epilogue } = operands.c;
  const { store, parts, by } = epilogue.shared;
  const what = parts ? `A part of C, ${tile.tile.join(" × ")}, stored at once` : "The complete tile of C";
  const leaves = store.kind === "vectors" ? `stored by threads, ${store.bits / 8} bytes each` : "stored by TMA in boxes";
  return `${what}: written by ${by}, then ${leaves}. ${colors}`;
}

function sharedView() {
  const tileNow = () => followed().sharedTile;
  const layoutNow = () => state.layouts[state.operand];
  const picture = new SharedPicture(tileNow, layoutNow, () => {
    const { x, y } = sharedNow();
    return inStage(tileNow(), layoutNow(), x, y);
  });
  // The pieces that the lanes of the phase address, or the rows of the core matrix. Pieces in the same bank wait.
  picture.others = (painter, tile, layout, whole, zoom, first) => {
    const perChunk = CHUNK_BYTES / tile.bytes;
    const access = accessOf();
    if (!access || access.torn) return;
    const wide = Math.min(perChunk, access.bytes / tile.bytes);
    for (const [x, y] of access.phases[state.phase].pieces.map((piece) => piece.element)) {
      const place = inStage(tile, layout, x, y);
      marked(painter, whole.x(place.inLine), whole.y(place.inStage), wide * whole.width, Math.max(3, whole.height));
      if (within(place.inStage - first, LINES_OF_ZOOM)) {
        marked(painter, zoom.x(place.chunk) + 1, zoom.y(place.inStage - first) + 1, zoom.width - 2, zoom.height - 2);
      }
    }
  };
  const { group, refreshed } = layoutSwitch();
  const view = new View({
    id: "shared",
    title: "Shared memory: lines and banks",
    note: "",
    controls: group,
    on: ["all", "operand", "layouts"],
    draw: (painter, width) => picture.draw(painter, width),
    mark: (painter, width) => picture.mark(painter, width),
    at(px, py, width) {
      const place = picture.at(px, py, width);
      return place && [state.operand, ...followed().fromShared(...place)];
    },
    words() {
      refreshed();
      view.root.querySelector(".note").textContent = tileNow() ? sharedNote() : notShared();
      return tileNow() ? countsOf(tileNow(), layoutNow()) : [];
    },
  });
}
