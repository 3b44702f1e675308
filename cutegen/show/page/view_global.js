// The CTA's tiles of A, B and C in position, and global memory: which thread copies each vector, and its sector.

/** Place A to the left of C and B above it, with K towards the middle, all to one scale. */
function mapGrids(width) {
  const [m, n, k] = data.overview.cta;
  const [left, top, gap] = [30, 22, 14];
  const scale = (width - left - gap - 4) / (n + k);
  const tall = Math.min(scale, 560 / (m + k));
  return {
    a: cells(left, top + k * tall + gap + 12, scale, tall),
    b: cells(left + k * scale + gap, top, scale, tall),
    c: cells(left + k * scale + gap, top + k * tall + gap + 12, scale, tall),
    height: top + (k + m) * tall + gap + 20,
  };
}

/** Return where the map draws an element of an operand: [row, column] of its grid. */
const onMap = (name, x, y) => (name === "b" ? [y, x] : [x, y]);

/** Return the title of the accumulators: the tile of C, or with pairs of columns the sums of twice C's columns. */
function titleOfSums(m, n) {
  const columns = data.epilogue ? data.epilogue.tile[1] : n;
  return columns === n ? `C ${m} × ${n}` : `C ${m} × ${columns}, sums ${m} × ${n}`;
}

function mapView() {
  const [m, n, k] = data.overview.cta;
  const extents = { a: [m, k], b: [k, n], c: [m, n] };
  new View({
    id: "map",
    title: "CTA tiles: C = A · B",
    note: "A on the left, B above, C between them. Dashed: the k-block. Outlined: the elements that the followed one contributes to or is computed from. Point at any element.",
    on: ["all"],
    draw(painter, width) {
      const grids = mapGrids(width);
      const [atomM, atomN, atomK] = data.mma.tile;
      painted(painter, grids.a, m, k, (row, column) => hue(Math.floor(row / atomM), Math.floor(column / atomK) % 2, 2));
      painted(painter, grids.b, k, n, (row, column) => hue(Math.floor(column / atomN) + 1, Math.floor(row / atomK) % 2, 2));
      painted(painter, grids.c, m, n, (row, column) => hue(warpOf(operands.c.holder(row, column).thread), 0, 1));
      const bold = { size: 12, bold: true };
      const room = k * grids.a.width > 90;
      painter.text(grids.a.x(0), grids.a.y(0) - 9, room ? `A ${m} × ${k}` : "A", bold);
      painter.text(grids.b.x(0), grids.b.y(0) - 9, `B ${n} × ${k}, N to the right`, bold);
      painter.text(grids.c.x(0), grids.c.y(0) - 9, `${titleOfSums(m, n)}${n * grids.c.width > 260 ? ", by warp" : ""}`, bold);
      return grids.height;
    },
    mark(painter, width) {
      const grids = mapGrids(width);
      const blockK = data.mma.tile[2];
      const band = { stroke: palette.thread, line: 1, dash: [4, 3] };
      painter.rect(grids.a.x(state.kBlock * blockK), grids.a.y(0), blockK * grids.a.width, m * grids.a.height, band);
      painter.rect(grids.b.x(0), grids.b.y(state.kBlock * blockK), n * grids.b.width, blockK * grids.b.height, band);
      this.thread(painter, grids);
      const { operand, x, y } = state;
      if (operand === "a") framed(painter, grids.c.x(0), grids.c.y(x), n * grids.c.width, grids.c.height, 1.5);
      if (operand === "b") framed(painter, grids.c.x(x), grids.c.y(0), grids.c.width, m * grids.c.height, 1.5);
      if (operand === "c") {
        framed(painter, grids.a.x(0), grids.a.y(x), k * grids.a.width, grids.a.height, 1.5);
        framed(painter, grids.b.x(y), grids.b.y(0), grids.b.width, k * grids.b.height, 1.5);
      }
      const [row, column] = onMap(operand, x, y);
      lit(painter, grids[operand].x(column), grids[operand].y(row), grids[operand].width, grids[operand].height);
    },
    at(px, py, width) {
      const grids = mapGrids(width);
      for (const name of ["a", "b", "c"]) {
        const [row, column] = grids[name].at(px, py);
        if (within(row, extents[name][0]) && within(column, extents[name][1])) return [name, ...onMap(name, row, column)];
      }
      return null;
    },
    words() {
      const result = operands.c;
      const held = state.thread * result.values;
      const rows = new Set();
      const columns = new Set();
      for (let i = 0; i < result.values; i += 1) {
        rows.add(result.coordinates[held + i] % m);
        columns.add(Math.floor(result.coordinates[held + i] / m));
      }
      return [
        ["marked-thread", "marked thread", `t${state.thread}, warp ${warpOf(state.thread)}`],
        ["marked-c", "its accumulators", `${result.values} sums: rows ${span(rows)}`],
        ["marked-columns", "columns", fewer(columns)],
        ["k-block", "k-block", `${state.kBlock} of ${kBlocks()}`],
      ];
    },
  });
  const view = views[views.length - 1];
  /** Draw what the marked thread holds: A and B of this k-block, and all its accumulators. */
  view.thread = (painter, grids) => {
    const dot = (name, x, y) => {
      const [row, column] = onMap(name, x, y);
      const grid = grids[name];
      const [width, height] = [Math.max(grid.width, 2), Math.max(grid.height, 2)];
      painter.rect(grid.x(column), grid.y(row), width, height, { fill: palette.thread });
    };
    for (const name of ["a", "b"]) {
      const operand = operands[name];
      if (!operand.copied) continue;
      for (let i = 0; i < operand.values; i += 1) {
        const [x, y] = operand.element(operand.held.values[state.thread * operand.values + i]);
        if (Math.floor(y / data.mma.tile[2]) === state.kBlock) dot(name, x, y);
      }
    }
    const result = operands.c;
    for (let i = 0; i < result.values; i += 1) {
      const coordinate = result.coordinates[state.thread * result.values + i];
      dot("c", coordinate % m, Math.floor(coordinate / m));
    }
  };
}

/** Shorten a long list to its count, its first values and its last value. */
function fewer(values) {
  const found = [...values].sort((one, other) => one - other);
  const text = span(found);
  return text.length <= 48 ? text : `${found.length}: ${found.slice(0, 6).join(", ")} … ${found[found.length - 1]}`;
}

function globalGrid(tile, width) {
  const [left, top] = [44, 24];
  const across = (width - left - 4) / tile.columns;
  return cells(left, top, across, clamp(640 / tile.rows, 3, 10));
}

/** Say who moves the followed operand between global memory and the CTA. */
function moverNote({ copiers, name, sharedTile }) {
  const lines = "Lines separate 32-byte sectors.";
  if (!sharedTile) {
    return `${name}, contiguous to the right: the thread that holds an accumulator stores it. Hue: warp. Shade: lane mod 4. Solid: elements of t${state.thread}. ${lines}`;
  }
  const does = name === "C" ? "storing" : "copying";
  return copiers
    ? `${name}, contiguous to the right. Hue: ${does} warp. Shade: group of 8 lanes. Solid: vectors of t${state.thread}. ${lines}`
    : `${name}, contiguous to the right. One thread issues the TMA copies of boxes. Dashed: the box of the followed element. ${lines}`;
}

/** List the copies of the followed operand between global memory and the CTA, and their sectors. */
function moverFacts(operand) {
  const isResult = operand === operands.c;
  const copy = isResult ? operand.epilogue.shared?.store : operand.copy;
  const [sectors, least] = isResult ? operand.epilogue.sectors : copy.sectors;
  const boxes = () => `boxes of ${copy.box.join(" × ")}${copy.shares > 1 ? `, shared by ${copy.shares} CTAs` : ""}`;
  const vectors = () => `${isResult ? "vectors" : copy.op}, ${copy.bits} bits, threads ${copy.threads}`;
  const { steps } = isResult ? operand.epilogue : { steps: [] };
  return [
    ["tile", "tile", `${operand.globalTile.tile.join(" × ")} ${operand.globalTile.dtype}`],
    ["copies", isResult ? "stores" : "copies", !copy ? "by each thread, from registers" : copy.kind === "boxes" ? boxes() : vectors()],
    ["sectors", isResult ? "sectors stored" : "sectors per tile", `${thousands(sectors)} of at least ${thousands(least)}`],
    steps.length > 0 && ["steps", "fused", steps.join(", ")],
  ];
}

function globalView() {
  const color = (operand, tile, row, column) => {
    const { hue: number, shade } = operand.moverOf(...tile.cell(row, column));
    return hue(number, shade, 4);
  };
  const view = new View({
    id: "global",
    title: "Global memory: copies and sectors",
    note: "",
    on: ["all", "operand"],
    draw(painter, width) {
      const operand = followed();
      const tile = operand.globalTile;
      if (!tile) return 0;
      const grid = globalGrid(tile, width);
      painted(painter, grid, tile.rows, tile.columns, (row, column) => color(operand, tile, row, column));
      const sector = SECTOR_BYTES / tile.bytes;
      for (let column = sector; column < tile.columns; column += sector) {
        painter.line(grid.x(column), grid.y(0), grid.x(column), grid.y(tile.rows), { stroke: palette.paper });
      }
      const names = { rowName: tile.modes[1 - tile.major], columnName: tile.modes[tile.major] };
      numbered(painter, grid, tile.rows, tile.columns, { rowStep: 8, columnStep: sector, ...names });
      return grid.y(tile.rows) + 6;
    },
    mark(painter, width) {
      const operand = followed();
      const tile = operand.globalTile;
      if (!tile) return;
      const grid = globalGrid(tile, width);
      for (const [first, count] of operand.movedBy(state.thread)) {
        const [row, column] = tile.cell(...first);
        painter.rect(grid.x(column), grid.y(row), count * grid.width, Math.max(3, grid.height), { fill: palette.thread });
      }
      const at = operand.inGlobal(state.x, state.y);
      const [row, column] = tile.cell(...at);
      const sector = SECTOR_BYTES / tile.bytes;
      framed(painter, grid.x(way().global.sectorInRow * sector), grid.y(row), sector * grid.width, grid.height, 2);
      const { box } = operand.moverOf(...at);
      if (box) {
        const [top, left, tall, wide] = box;
        const dashed = { stroke: palette.accent, dash: [5, 4] };
        painter.rect(grid.x(left), grid.y(top), wide * grid.width, tall * grid.height, dashed);
      }
      lit(painter, grid.x(column), grid.y(row), grid.width, grid.height);
    },
    at(px, py, width) {
      const tile = followed().globalTile;
      if (!tile) return null;
      const [row, column] = globalGrid(tile, width).at(px, py);
      if (!within(row, tile.rows) || !within(column, tile.columns)) return null;
      return [state.operand, ...tile.cell(row, column)];
    },
    words() {
      const operand = followed();
      const note = operand.globalTile ? moverNote(operand) : "These loads are shown without an epilogue: no C is stored.";
      view.root.querySelector(".note").textContent = note;
      return operand.globalTile ? moverFacts(operand) : [];
    },
  });
}
