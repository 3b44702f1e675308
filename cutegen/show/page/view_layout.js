// The page of a layout expression: the offset and bank of each coordinate, the memory that they fill, and the swizzle.

const SHOWN = 64;
const MOST_DRAWN = 1 << 16;

function layoutViews() {
  const { layout } = data;
  const bytes = layout.bits / 8;
  const [rows, columns] = layout.shape;
  const [shownRows, shownColumns] = [Math.min(rows, SHOWN), Math.min(columns, SHOWN)];
  const tile = tileOfLayout(layout);
  const placeAt = (row, column) => tile.place(row, column, 0);
  const now = () => ({ ...placeAt(state.x, state.y), bytes, swizzle: layout.swizzle });
  const gridOf = (width) => {
    const across = Math.min((width - 48) / shownColumns, 64);
    return cells(44, 26, across, clamp(640 / shownRows, 10, across > 24 ? 30 : 16));
  };
  new View({
    id: "layout",
    title: layout.text,
    note: `Mode 0 runs down, the other modes to the right: ${layout.shape.join(" × ")} ${layout.dtype}${shownRows < rows || shownColumns < columns ? `, of which ${shownRows} × ${shownColumns} are shown` : ""}. Each hue is four banks; each cell shows its offset in elements.`,
    wide: true,
    on: ["all"],
    draw(painter, width) {
      const grid = gridOf(width);
      const longest = String(layout.most).length;
      const size = Math.min(11, (grid.width - 4) / (longest * 0.61));
      for (let row = 0; row < shownRows; row += 1) {
        for (let column = 0; column < shownColumns; column += 1) {
          const { offset, bank } = placeAt(row, column);
          painter.rect(grid.x(column), grid.y(row), grid.width - 1, grid.height - 1, { fill: hue(Math.floor(bank / 4), bank % 4, 4) });
          const label = String(offset);
          if (size >= 6.5) painter.text(grid.x(column + 0.5) - 0.5, grid.y(row + 0.5), label, { size, align: "middle" });
        }
      }
      const step = grid.width < 16 ? 8 : 1;
      numbered(painter, grid, shownRows, shownColumns, { rowStep: 1, columnStep: step, rowName: "0", columnName: "1" });
      return grid.y(shownRows) + 6;
    },
    mark(painter, width) {
      const grid = gridOf(width);
      const { bank } = now();
      for (let row = 0; row < shownRows; row += 1) {
        for (let column = 0; column < shownColumns; column += 1) {
          if (placeAt(row, column).bank === bank) marked(painter, grid.x(column), grid.y(row), grid.width - 1, grid.height - 1);
        }
      }
      if (state.x < shownRows && state.y < shownColumns) framed(painter, grid.x(state.y), grid.y(state.x), grid.width - 1, grid.height - 1, 3);
    },
    at(px, py, width) {
      const [row, column] = gridOf(width).at(px, py);
      return within(row, shownRows) && within(column, shownColumns) ? ["layout", row, column] : null;
    },
    words() {
      const place = now();
      return [
        ["at", "coordinate", `(${coordinatesOf(layout, state.x, state.y).join(", ")})`],
        ["offset", "offset", place.offset],
        ["byte", "byte", place.byte],
        ["bank", "bank", place.bank, true],
        ["column-ways", "16 bytes in 8 rows here", plural(wavefronts(eightRows(placeAt, rows), CHUNK_BYTES), "wavefront")],
        ["different", "offsets", `${thousands(layout.least)} to ${thousands(layout.most)}, ${thousands(layout.different)} distinct`],
      ];
    },
  });
  if (layout.least < 0) return;
  bitsView(now, ["all", "x", "y"]);
  if (layout.most < MOST_DRAWN) memoryView(tile);
}

/** Return the layout as a tile of two modes: mode 0 down, all others to the right, the first of them fastest. */
function tileOfLayout(layout) {
  const single = layout.modes.length === 1;
  const modes = single ? [[[1, 0]], layout.modes[0]] : [layout.modes[0], layout.modes.slice(1).flat()];
  const row = { ...layout, modes, stage: layout.most + 1 };
  const told = { name: "layout", tile: layout.shape, modes: ["0", "1"], major: 1, bits: layout.bits, begins: 0, layouts: [row] };
  return new SharedTile(told);
}

/** Return the coordinate in each of the layout's own modes. */
function coordinatesOf(layout, row, column) {
  if (layout.modes.length === 1) return [column];
  let rest = column;
  const others = layout.modes.slice(1).map((leaves) => {
    const size = sizeOfMode(leaves);
    const index = rest % size;
    rest = Math.floor(rest / size);
    return index;
  });
  return [row, ...others];
}

/** Show the memory that the layout fills, line by line. */
function memoryView(tile) {
  const picture = new SharedPicture(() => tile, () => 0, () => inStage(tile, 0, state.x, state.y));
  new View({
    id: "memory",
    title: "Placement in memory",
    note: "One row per 128-byte line, 32 banks across. Each hue is 16 bytes of a row of the layout.",
    on: ["all"],
    draw: (painter, width) => picture.draw(painter, width),
    mark: (painter, width) => picture.mark(painter, width),
    at(px, py, width) {
      const place = picture.at(px, py, width);
      return place && ["layout", ...place];
    },
    words() {
      const place = inStage(tile, 0, state.x, state.y);
      return [["memory-line", "line", place.line], ["memory-byte", "byte in the line", place.byte % LINE_BYTES]];
    },
  });
}

/** Return the byte offsets of the followed column in eight rows, as ldmatrix reads them. */
function eightRows(placeAt, rows) {
  const first = Math.floor(state.x / 8) * 8;
  return Array.from({ length: Math.min(8, rows - first) }, (_, i) => placeAt(first + i, state.y).byte);
}
