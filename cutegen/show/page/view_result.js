// The epilogue: C's tile, or a part of it, in shared memory; the writes of accumulators, and the threads that store it.

function resultView() {
  const result = operands.c;
  if (!result.epilogue) return;
  const steps = result.epilogue.steps.length ? ` Fused: ${result.epilogue.steps.join(", ")}.` : "";
  if (!result.shared) {
    directView(steps);
    return;
  }
  const { shared } = result;
  const layoutNow = () => state.layouts.c;
  const placeNow = () => {
    if (state.operand !== "c") return null;
    const { x, y } = result.inPart(state.x, state.y);
    return inStage(shared, layoutNow(), x, y);
  };
  const picture = new SharedPicture(() => shared, layoutNow, placeNow);
  // All lanes of the write that covers the followed element; they fill these places together.
  picture.others = (painter, tile, layout, whole, zoom, first) => {
    const found = way();
    if (found.name !== "c") return;
    const [, warps, lanes] = result.written.shape;
    const wide = result.epilogue.shared.access / tile.bytes;
    for (let lane = 0; lane < lanes; lane += 1) {
      const at = tile.element(result.written.values[(found.writer.write * warps + found.writer.warp) * lanes + lane]);
      const place = inStage(tile, layout, ...at);
      painter.rect(whole.x(place.inLine), whole.y(place.inStage), wide * whole.width, Math.max(2, whole.height), {
        fill: palette.thread,
      });
      if (within(place.inStage - first, LINES_OF_ZOOM)) {
        marked(painter, zoom.x(place.chunk) + 1, zoom.y(place.inStage - first) + 1, zoom.width - 2, zoom.height - 2);
      }
    }
  };
  const { group, refreshed } = layoutSwitch("result", () => "c", () => shared);
  const { store, parts, by } = result.epilogue.shared;
  const leaves = store.kind === "vectors" ? `then stored by threads, ${store.bits / 8} bytes each` : "then stored by TMA in boxes";
  const what = parts ? `A part of C, ${shared.tile.join(" × ")}, stored at once` : `The complete tile of C`;
  new View({
    id: "result",
    title: "Epilogue",
    note: `${what}, in shared memory: written by ${by}, ${leaves}. Solid: one write of a warp.${steps}`,
    controls: group,
    on: ["all", "layouts"],
    draw: (painter, width) => picture.draw(painter, width),
    mark: (painter, width) => picture.mark(painter, width),
    at(px, py, width) {
      const place = picture.at(px, py, width);
      if (!place) return null;
      const [down, along] = state.operand === "c" ? result.inPart(state.x, state.y).at : [0, 0];
      return ["c", down * shared.tile[0] + place[0], along * shared.tile[1] + place[1]];
    },
    words() {
      refreshed();
      const [sectors, least] = result.epilogue.sectors;
      return [
        ...countsOf(shared, layoutNow()),
        ...writeFacts(result, layoutNow()),
        ["sectors", "sectors stored", `${thousands(sectors)} of at least ${thousands(least)}`],
      ];
    },
  });
}

/** Return the write that covers the followed element of C, with its wavefronts. */
function writeFacts(result, layout) {
  const found = way();
  if (found.name !== "c") return [];
  const [, warps, lanes] = result.written.shape;
  const bytes = result.epilogue.shared.access;
  const together = Math.min(lanes, lanesOfPhase(bytes));
  let turns = 0;
  for (let first = 0; first < lanes; first += together) {
    const placed = [];
    for (let lane = first; lane < first + together; lane += 1) {
      const i = (found.writer.write * warps + found.writer.warp) * lanes + lane;
      placed.push(result.shared.place(...result.shared.element(result.written.values[i]), layout).byte);
    }
    turns += wavefronts(placed, bytes);
  }
  return [["write-wavefronts", `write ${found.writer.write} of warp ${found.writer.warp}`, plural(turns, "wavefront")]];
}

/** Show an epilogue without shared memory: which thread stores each element, and the sectors that it touches. */
function directView(steps) {
  const result = operands.c;
  const [m, n] = result.epilogue.tile;
  const [rows, columns] = result.major === 1 ? [m, n] : [n, m];
  const cell = (row, column) => (result.major === 1 ? [row, column] : [column, row]);
  const gridOf = (width) => cells(44, 24, (width - 48) / columns, clamp(520 / rows, 2, 8));
  new View({
    id: "result",
    title: "Epilogue",
    note: `Directly from registers to global memory, contiguous to the right: the thread that holds an accumulator stores it. Hue: warp. Shade: lane mod 4.${steps}`,
    on: ["all"],
    draw(painter, width) {
      const grid = gridOf(width);
      painted(painter, grid, rows, columns, (row, column) => {
        const { thread } = result.holder(...cell(row, column));
        return hue(warpOf(thread), thread % 4, 4);
      });
      const names = result.major === 1 ? ["m", "n"] : ["n", "m"];
      numbered(painter, grid, rows, columns, { rowStep: 16, columnStep: 16, rowName: names[0], columnName: names[1] });
      return grid.y(rows) + 6;
    },
    mark(painter, width) {
      if (state.operand !== "c") return;
      const grid = gridOf(width);
      const { global } = way();
      const [i, j] = result.element(state.x, state.y);
      const [row, column] = result.major === 1 ? [i, j] : [j, i];
      const sector = SECTOR_BYTES / result.bytes;
      framed(painter, grid.x(global.sectorInRow * sector), grid.y(row), sector * grid.width, grid.height, 1.5);
      lit(painter, grid.x(column), grid.y(row), grid.width, grid.height);
    },
    at(px, py, width) {
      const [row, column] = gridOf(width).at(px, py);
      return within(row, rows) && within(column, columns) ? ["c", ...cell(row, column)] : null;
    },
    words() {
      const [sectors, least] = result.epilogue.sectors;
      return [["sectors", "sectors stored", `${thousands(sectors)} of at least ${thousands(least)}`]];
    },
  });
}
