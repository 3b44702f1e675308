// Fragments: who holds which element of the tiled MMA's tile, and the registers of the marked thread.

const WIDEST_LABELLED = 44;

/** The tiled MMA's tile that has the followed element, or the first one of the k-block. */
function mmaTile(operand) {
  const along = operand.name === "A" ? 0 : 1;
  const [rows, columns] = [data.mma.tile[along], data.mma.tile[2]];
  const isFollowed = state.operand === operand.name.toLowerCase();
  const begin = isFollowed ? Math.floor(state.x / rows) * rows : 0;
  return { x: begin, y: state.kBlock * columns, rows, columns };
}

function fragmentGeometry(operand, width) {
  const tile = mmaTile(operand);
  // K to the right; a tile wider than tall is turned, so that it stands as it does on paper.
  const grid = cells(44, 26, (width - 48) / tile.columns, clamp(620 / tile.rows, 5, 20));
  return { tile, grid, height: grid.y(tile.rows) + 6 };
}

function fragmentView() {
  const view = new View({
    id: "fragment",
    title: "Fragments: who holds what",
    note: "",
    on: ["all", "operand", "kBlock", "x", "thread"],
    draw(painter, width) {
      const operand = followed();
      const { tile, grid, height } = fragmentGeometry(operand, width);
      numbered(painter, grid, tile.rows, tile.columns, {
        rowStep: grid.height < 12 ? 4 : 1, columnStep: 1, rowName: operand.modes[0], columnName: operand.modes[1],
      });
      if (!operand.copied) {
        painter.rect(grid.x(0), grid.y(0), tile.columns * grid.width, tile.rows * grid.height, { fill: palette.empty });
        const [x, y] = [grid.x(tile.columns / 2), grid.y(tile.rows / 2)];
        painter.text(x, y - 8, "in no register:", { align: "middle" });
        painter.text(x, y + 8, "the tensor core reads it in shared memory", { align: "middle" });
        return height;
      }
      const size = clamp(grid.width / 5.6, 7, 11);
      for (let i = 0; i < tile.rows; i += 1) {
        for (let j = 0; j < tile.columns; j += 1) {
          const holders = operand.holders(tile.x + i, tile.y + j);
          const holder = chosenHolder(holders);
          const isMarked = holder.thread === state.thread;
          const fill = isMarked ? palette.thread : hue(holder.warp, holder.lane % 4, 4);
          painter.rect(grid.x(j), grid.y(i), grid.width - 1, grid.height - 1, { fill });
          if (grid.height < 9) continue;
          const label = grid.width > WIDEST_LABELLED ? `t${holder.thread} v${holder.value}` : `t${holder.thread}`;
          painter.text(grid.x(j + 0.5), grid.y(i + 0.5), label, {
            size, align: "middle", fill: isMarked ? palette.paper : palette.ink,
          });
        }
      }
      return height;
    },
    mark(painter, width) {
      const operand = followed();
      if (state.operand === "c") return;
      const { tile, grid } = fragmentGeometry(operand, width);
      const [i, j] = [state.x - tile.x, state.y - tile.y];
      if (within(i, tile.rows) && within(j, tile.columns)) {
        framed(painter, grid.x(j), grid.y(i), grid.width - 1, grid.height - 1, 2.5);
      }
    },
    at(px, py, width) {
      const operand = followed();
      const { tile, grid } = fragmentGeometry(operand, width);
      const [i, j] = grid.at(px, py);
      if (!within(i, tile.rows) || !within(j, tile.columns)) return null;
      return [operand.name.toLowerCase(), tile.x + i, tile.y + j];
    },
    words() {
      const operand = followed();
      const [x, k] = operand.modes;
      const { tile } = fragmentGeometry(operand, 600);
      const note = view.root.querySelector(".note");
      if (!operand.copied) {
        note.textContent = `${operand.name} stays in shared memory: wgmma takes it by descriptor. Its sums are in the accumulators.`;
        return [];
      }
      note.textContent = `One tile of the tiled MMA, ${tile.rows} × ${tile.columns} of ${operand.name} (${x} down, ${k} to the right): the thread that holds each element. Hues are warps, shades lane mod 4; dark: t${state.thread}.`;
      return registersOf(operand);
    },
  });
}

/** The registers of the marked thread in this k-block, a fact each. */
function registersOf(operand) {
  const perRegister = 32 / operand.bits;
  const rows = [];
  const blockK = data.mma.tile[2];
  for (let value = 0; value < operand.values; value += perRegister) {
    const first = operand.held.values[state.thread * operand.values + value];
    if (Math.floor(operand.element(first)[1] / blockK) !== state.kBlock) continue;
    const held = [];
    let isLit = false;
    for (let part = 0; part < perRegister; part += 1) {
      const at = operand.element(operand.held.values[state.thread * operand.values + value + part]);
      held.push(at);
      isLit = isLit || (state.operand !== "c" && at[0] === state.x && at[1] === state.y);
    }
    rows.push([`R${value / perRegister}`, `R${value / perRegister}`, held.map((at) => `(${at.join(",")})`).join(" "), isLit]);
  }
  return rows.slice(0, 32);
}
