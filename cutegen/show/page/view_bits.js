// Swizzle<B, M, S> bit by bit: the offset of the followed element in binary, the bits that are read and those that change.

const BIT = 30;

/** Draw rows of bits: the offset before the swizzle, the XOR mask, and the offset after. */
function bitRows(painter, swizzle, before, width, top = 0) {
  const moved = swizzled(swizzle, before);
  const needed = Math.max(10, before.toString(2).length, swizzle ? swizzle[0] + swizzle[1] + Math.abs(swizzle[2]) : 0);
  const left = 78;
  const size = Math.min(BIT, (width - left - 60) / needed);
  const grid = cells(left, top + 20, size, 30);
  const rows = [
    ["before", before, moved.source, moved.target],
    ["XOR", moved.mask, 0, moved.target],
    ["after", moved.offset, 0, moved.target],
  ];
  for (let i = 0; i < needed; i += 1) {
    const bit = needed - 1 - i;
    painter.text(grid.x(i + 0.5), grid.y(0) - 9, bit, { size: 9, fill: palette.soft, align: "middle" });
    rows.forEach(([, value, source, target], row) => {
      const one = 1 << bit;
      const fill = source & one ? hue(1) : target & one ? hue(0) : palette.empty;
      painter.rect(grid.x(i) + 1, grid.y(row) + 2, grid.width - 2, grid.height - 4, { fill });
      const changed = row === 2 && moved.mask & one;
      const shown = row === 1 && !(target & one) ? "·" : value & one ? "1" : "0";
      painter.text(grid.x(i + 0.5), grid.y(row + 0.5), shown, {
        size: 13, align: "middle", bold: Boolean(changed), fill: changed ? palette.accent : palette.ink,
      });
    });
  }
  rows.forEach(([name, value], row) => {
    painter.text(left - 8, grid.y(row + 0.5), name, { align: "end", fill: palette.soft });
    painter.text(grid.x(needed) + 8, grid.y(row + 0.5), value, { bold: true, fill: row === 2 ? palette.accent : palette.ink });
  });
  return grid.y(3) + 6;
}

function explainSwizzle(swizzle) {
  if (!swizzle) return "This layout has no swizzle: the strides give the offset.";
  const [bits, base, shift] = swizzle;
  const high = base + Math.max(0, shift);
  const low = base - Math.min(0, shift);
  const range = (from) => (bits === 1 ? `bit ${from}` : `bits ${from}–${from + bits - 1}`);
  return `Swizzle<${bits},${base},${shift}> XORs ${range(high)} of the offset into ${range(low)}. The ${base} lowest bits do not change: groups of ${1 << base} elements stay contiguous.`;
}

function bitsView(placeNow, on = ["all", "operand", "layouts", "x", "y", "stage"]) {
  const view = new View({
    id: "bits",
    title: "Swizzle, bit by bit",
    note: "",
    on,
    draw(painter, width) {
      const place = placeNow();
      if (!place) return 0;
      const { swizzle, before } = place;
      return bitRows(painter, swizzle, before, width);
    },
    words() {
      const place = placeNow();
      view.root.querySelector(".note").textContent = place ? explainSwizzle(place.swizzle) : notShared();
      if (!place) return [];
      const { swizzle, before, bytes } = place;
      const moved = swizzled(swizzle, before);
      return [
        ["bits-before", "offset before", before],
        ["bits-xor", "XOR", moved.mask],
        ["bits-after", "offset after", moved.offset],
        ["bits-bank", "bank before", bankOf(before * bytes)],
        ["bits-bank-after", "bank after", bankOf(moved.offset * bytes), true],
      ];
    },
  });
}

/** Return the swizzle of the followed element's tile and its offset before the swizzle; null outside shared memory. */
function placeForBits() {
  const shared = sharedNow();
  if (!shared) return null;
  const { tile, layout, x, y, slot } = shared;
  return { swizzle: tile.layouts[layout].swizzle, before: tile.place(x, y, layout, slot).before, bytes: tile.bytes };
}
