// Fragments: the thread that holds each element of a tile of the tiled MMA, and the registers of the marked thread.
// Shows the accumulators instead if C is followed, or if the operand stays in shared memory.

const WIDEST_LABELED = 44;
const ACCUMULATOR_ROWS = 16;

/** Return the window to show: its operand, origin and extents, and which thread holds each element as which value. */
function fragmentWindow() {
  const operand = followed();
  if (operand.copied) {
    const along = operand.name === "A" ? 0 : 1;
    const [rows, columns] = [data.mma.tile[along], data.mma.tile[2]];
    const x = Math.floor(state.x / rows) * rows;
    const holderAt = (i, j) => chosenHolder(operand.holders(x + i, state.kBlock * columns + j));
    return { name: state.operand, modes: operand.modes, x, y: state.kBlock * columns, rows, columns, holderAt, sums: false };
  }
  const result = operands.c;
  const rows = Math.min(ACCUMULATOR_ROWS, result.tile[0]);
  const columns = Math.min(ACCUMULATOR_ROWS, result.tile[1]);
  const [m, n] = { a: [state.x, 0], b: [0, state.x], c: [state.x, state.y] }[state.operand];
  const [x, y] = [Math.floor(m / rows) * rows, Math.floor(n / columns) * columns];
  return { name: "c", modes: ["m", "n"], x, y, rows, columns, holderAt: (i, j) => result.holder(x + i, y + j), sums: true };
}

function fragmentGeometry(width) {
  const shown = fragmentWindow();
  const grid = cells(44, 26, (width - 48) / shown.columns, clamp(620 / shown.rows, 6, 20));
  return { shown, grid, height: grid.y(shown.rows) + 6 };
}

function fragmentView() {
  const view = new View({
    id: "fragment",
    title: "Registers: which thread holds each element",
    note: "",
    on: ["all", "operand", "kBlock", "x", "y", "thread"],
    draw(painter, width) {
      const { shown, grid, height } = fragmentGeometry(width);
      numbered(painter, grid, shown.rows, shown.columns, {
        rowStep: grid.height < 12 ? 4 : 1, columnStep: 1, rowName: shown.modes[0], columnName: shown.modes[1],
        firstRow: shown.x, firstColumn: shown.y,
      });
      const size = clamp(grid.width / (grid.width > WIDEST_LABELED ? 5.2 : 3.4), 7, 11);
      for (let i = 0; i < shown.rows; i += 1) {
        for (let j = 0; j < shown.columns; j += 1) {
          const { thread, value } = shown.holderAt(i, j);
          const isMarked = thread === state.thread;
          const fill = isMarked ? palette.thread : hue(warpOf(thread), thread % 4, 4);
          painter.rect(grid.x(j), grid.y(i), grid.width - 1, grid.height - 1, { fill });
          if (grid.height < 9) continue;
          const label = grid.width > WIDEST_LABELED ? `t${thread} v${value}` : `t${thread}`;
          painter.text(grid.x(j + 0.5), grid.y(i + 0.5), label, {
            size, align: "middle", fill: isMarked ? palette.paper : palette.ink,
          });
        }
      }
      return height;
    },
    mark(painter, width) {
      const { shown, grid } = fragmentGeometry(width);
      const [i, j] = [state.x - shown.x, state.y - shown.y];
      if (shown.name === state.operand && within(i, shown.rows) && within(j, shown.columns)) {
        framed(painter, grid.x(j), grid.y(i), grid.width - 1, grid.height - 1, 2.5);
      } else if (state.operand === "a") {
        framed(painter, grid.x(0), grid.y(i), shown.columns * grid.width - 1, grid.height - 1, 2);
      } else if (state.operand === "b") {
        framed(painter, grid.x(state.x - shown.y), grid.y(0), grid.width - 1, shown.rows * grid.height - 1, 2);
      }
    },
    at(px, py, width) {
      const { shown, grid } = fragmentGeometry(width);
      const [i, j] = grid.at(px, py);
      if (!within(i, shown.rows) || !within(j, shown.columns)) return null;
      return [shown.name, shown.x + i, shown.y + j];
    },
    words() {
      const shown = fragmentWindow();
      const operand = followed();
      const [down, right] = shown.modes;
      const colors = `Hue: warp. Shade: lane mod 4. Solid: t${state.thread}.`;
      const stays = !operand.inPlace ? "" : `${operand.name} is not in registers: the tensor core reads it through a descriptor. `;
      view.root.querySelector(".note").textContent = shown.sums
        ? `${stays}Accumulators of C (${down} down, ${right} to the right), by thread. ${colors}`
        : `One tile of the tiled MMA, ${shown.rows} × ${shown.columns} of ${operand.name} (${down} down, ${right} to the right): the thread that holds each element. ${colors}${packedWords(operand)}`;
      return shown.sums ? sumsOf(shown) : registersOf(operand);
    },
  });
}

/** Say how values narrower than a register lie in one. */
function packedWords({ bits }) {
  return bits < 32 ? ` Registers below list ${32 / bits} elements each, the one in the lowest ${bits} bits first.` : "";
}

/** List the registers of the marked thread in this k-block, one fact each. */
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
      isLit = isLit || (at[0] === state.x && at[1] === state.y);
    }
    rows.push([`R${value / perRegister}`, `R${value / perRegister}`, held.map((at) => `(${at.join(",")})`).join(" "), isLit]);
  }
  return rows.slice(0, 32);
}

/** List the accumulators of the marked thread in the window, one fact each. */
function sumsOf(shown) {
  const rows = [];
  for (let i = 0; i < shown.rows; i += 1) {
    for (let j = 0; j < shown.columns; j += 1) {
      const { thread, value } = shown.holderAt(i, j);
      const [m, n] = [shown.x + i, shown.y + j];
      const isLit = state.operand === "c" && m === state.x && n === state.y;
      if (thread === state.thread) rows.push([`sum-${value}`, `value ${value}`, `(${m},${n})`, isLit]);
    }
  }
  return rows.slice(0, 32);
}
