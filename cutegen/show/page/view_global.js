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
      painter.text(grids.c.x(0), grids.c.y(0) - 9, `C ${m} × ${n}, by warp`, bold);
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
        ["marked-c", "its accumulators", `${result.values} of C: rows ${span(rows)}`],
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

function globalGrid(operand, width) {
  const [left, top] = [44, 24];
  const across = (width - left - 4) / operand.columns;
  return cells(left, top, across, clamp(640 / operand.rows, 3, 10));
}

function globalView() {
  const color = (operand, row, column) => {
    if (!operand.copiers) {
      const { box } = inBox(operand.copy, operand, ...operand.cell(row, column));
      return hue(box, Math.floor(row / 8) % 2, 2);
    }
    const { thread } = operand.copiers.of(operand.coordinate(...operand.cell(row, column)));
    return hue(warpOf(thread), Math.floor((thread % WARP) / 8), 4);
  };
  const view = new View({
    id: "global",
    title: "Global memory: copies and sectors",
    note: "",
    on: ["all", "operand"],
    draw(painter, width) {
      const operand = followed();
      const grid = globalGrid(operand, width);
      painted(painter, grid, operand.rows, operand.columns, (row, column) => color(operand, row, column));
      const sector = SECTOR_BYTES / operand.bytes;
      for (let column = sector; column < operand.columns; column += sector) {
        painter.line(grid.x(column), grid.y(0), grid.x(column), grid.y(operand.rows), { stroke: palette.paper });
      }
      const names = { rowName: operand.modes[1 - operand.major], columnName: operand.modes[operand.major] };
      numbered(painter, grid, operand.rows, operand.columns, { rowStep: 8, columnStep: sector, ...names });
      return grid.y(operand.rows) + 6;
    },
    mark(painter, width) {
      const operand = followed();
      const grid = globalGrid(operand, width);
      if (operand.copiers && state.thread < operand.copiers.threads) {
        const { steps, threads, elements, values } = operand.copiers;
        for (let step = 0; step < steps; step += 1) {
          const first = values[(step * threads + state.thread) * elements];
          const [row, column] = operand.cell(...operand.element(first));
          painter.rect(grid.x(column), grid.y(row), elements * grid.width, Math.max(3, grid.height), { fill: palette.thread });
        }
      }
      if (state.operand === "c") return;
      const { global, copy } = way();
      const [row, column] = operand.cell(state.x, state.y);
      const sector = SECTOR_BYTES / operand.bytes;
      framed(painter, grid.x(global.sectorInRow * sector), grid.y(row), sector * grid.width, grid.height, 2);
      if (!operand.copiers) {
        const [wide, tall] = operand.copy.box;
        painter.rect(grid.x(copy.box * wide), grid.y(copy.rank * tall), wide * grid.width, tall * grid.height, {
          stroke: palette.accent,
          dash: [5, 4],
        });
      }
      lit(painter, grid.x(column), grid.y(row), grid.width, grid.height);
    },
    at(px, py, width) {
      const operand = followed();
      const [row, column] = globalGrid(operand, width).at(px, py);
      if (!within(row, operand.rows) || !within(column, operand.columns)) return null;
      return [operand.name.toLowerCase(), ...operand.cell(row, column)];
    },
    words() {
      const operand = followed();
      const { copy } = operand;
      const [sectors, least] = copy.sectors;
      view.root.querySelector(".note").textContent = operand.copiers
        ? `${operand.name}, contiguous to the right. Hue: copying warp. Shade: group of 8 lanes. Solid: vectors of t${state.thread}. Lines separate 32-byte sectors.`
        : `${operand.name}, contiguous to the right. One thread issues the TMA copies of boxes. Dashed: the box of the followed element. Lines separate 32-byte sectors.`;
      return [
        ["tile", "tile", `${operand.tile.join(" × ")} ${operand.dtype}`],
        operand.copiers
          ? ["copies", "copies", `${copy.op}, ${copy.bits} bits, threads ${copy.threads}`]
          : ["copies", "copies", `boxes of ${copy.box.join(" × ")}${copy.shares > 1 ? `, shared by ${copy.shares} CTAs` : ""}`],
        ["sectors", "sectors per tile", `${thousands(sectors)} of at least ${thousands(least)}`],
      ];
    },
  });
}
