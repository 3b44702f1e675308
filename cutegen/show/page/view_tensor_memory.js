// Tensor memory: which columns and lanes hold the buffers of sums and the factors, and what the marked thread loads.

const QUARTER_GAP = 6;

/** Return the lane and column, in the first buffer, of the sum of an element of C's tile. */
function placeOfSum(x, y) {
  const { places, lanes } = data.tmem;
  const place = places[x][y];
  return { lane: place % lanes, column: Math.floor(place / lanes) };
}

function tensorMemoryView() {
  const memory = data.tmem;
  if (!memory) return;
  const quarters = memory.lanes / memory.warp_lanes;
  const left = 96;
  const top = 26;
  const tall = 2;
  const columnWidth = (width) => (width - left - 8) / memory.columns;
  const lineOf = (lane) => top + lane * tall + Math.floor(lane / memory.warp_lanes) * QUARTER_GAP;
  const height = lineOf(memory.lanes - 1) + tall + 8;
  const result = operands.c;
  const sumsOfThread = () => {
    const found = [];
    for (let m = 0; m < result.tile[0]; m += 1) {
      for (let n = 0; n < result.tile[1]; n += 1) {
        if (result.holder(m, n).thread === state.thread) found.push(placeOfSum(m, n));
      }
    }
    return found;
  };
  new View({
    id: "tensor-memory",
    title: "Tensor memory: sums and factors",
    note: `Columns to the right, lanes downwards: each warp that loads reaches ${memory.warp_lanes} of them. Shades: buffers of sums, and stages of factors. Dark: what the marked thread loads of the first buffer.`,
    wide: true,
    on: ["all", "thread"],
    draw(painter, width) {
      const step = columnWidth(width);
      for (let quarter = 0; quarter < quarters; quarter += 1) {
        const first = quarter * memory.warp_lanes;
        const y = lineOf(first);
        painter.rect(left, y, step * memory.columns, memory.warp_lanes * tall, { fill: palette.empty });
        painter.text(left - 8, y + (memory.warp_lanes * tall) / 2, `lanes ${first}–${first + memory.warp_lanes - 1}`, { align: "end", size: 10 });
      }
      for (let column = 0; column <= memory.columns; column += 64) {
        painter.text(left + column * step, 14, `${column}`, { align: "middle", size: 9, fill: palette.soft });
      }
      memory.used.forEach((each) => {
        each.lanes.forEach(([lane, count]) => {
          painter.rect(left + each.first * step, lineOf(lane), each.count * step - 0.5, count * tall, { fill: hue(each.hue, each.number % 2, 2) });
        });
        const [lane, count] = each.lanes[0];
        const label = each.title;
        if (each.count * step > label.length * 6.5) {
          painter.text(left + (each.first + each.count / 2) * step, lineOf(lane) + (count * tall) / 2, label, { align: "middle", size: 10 });
        }
      });
      sumsOfThread().forEach(({ lane, column }) => {
        painter.rect(left + column * step, lineOf(lane), step, tall, { fill: palette.thread });
      });
      return height;
    },
    mark(painter, width) {
      if (state.operand !== "c") return;
      const { lane, column } = placeOfSum(state.x, state.y);
      const step = columnWidth(width);
      framed(painter, left + column * step - 2, lineOf(lane) - 2, step + 4, tall + 4, 2);
    },
    words() {
      const lines = memory.used
        .filter((each) => each.number === 0)
        .map((each) => [`columns-${each.title}`, each.title, `columns ${each.first} to ${each.first + each.count - 1}`]);
      if (state.operand !== "c") return [["load", "loaded by", memory.load], ...lines];
      const { lane, column } = placeOfSum(state.x, state.y);
      return [
        ["sum", "the sum", `lane ${lane}, column ${column} of the tile's buffer`, true],
        ["load", "loaded by", `thread ${result.holder(state.x, state.y).thread}: ${memory.load}`],
        ...lines,
      ];
    },
  });
}
