// Tables and layouts as the library sends them: sums of a few lists, and modes of (extent, stride) with a swizzle.

const mod = (value, by) => ((value % by) + by) % by;

/** The table of `packed` in cutegen/show/packed.py: its extents, and all values, the last axis fastest. */
function unpacked(node) {
  if (Array.isArray(node)) return { shape: [node.length], values: Int32Array.from(node) };
  const parts = (node.each || [node.of]).map(unpacked);
  const inner = parts[0];
  const size = inner.values.length;
  const count = node.by ? node.by.length : parts.length;
  const values = new Int32Array(count * size);
  for (let i = 0; i < count; i += 1) {
    const from = node.by ? inner.values : parts[i].values;
    const moved = node.by ? node.by[i] : 0;
    for (let j = 0; j < size; j += 1) values[i * size + j] = from[j] + moved;
  }
  return { shape: [count, ...inner.shape], values };
}

/** The offset of coordinate `index` of one mode: its leaves take the digits of the index, the first one fastest. */
function ofMode(leaves, index) {
  let offset = 0;
  let rest = index;
  for (const [extent, stride] of leaves) {
    offset += (rest % extent) * stride;
    rest = Math.floor(rest / extent);
  }
  return offset;
}

const sizeOfMode = (leaves) => leaves.reduce((size, [extent]) => size * extent, 1);

/** The offset that a layout's strides give, before its swizzle; `extra` is added, as a stage's beginning is. */
function affine(layout, coordinates, extra = 0) {
  return coordinates.reduce((sum, index, i) => sum + ofMode(layout.modes[i], index), layout.offset + extra);
}

/** What Swizzle<bits, base, shift> does to an offset: the bits it reads, and those that it changes. */
function swizzled(swizzle, offset) {
  if (!swizzle) return { offset, mask: 0, read: 0, source: 0, target: 0 };
  const [bits, base, shift] = swizzle;
  const ones = (1 << bits) - 1;
  const source = ones << (base + Math.max(0, shift));
  const target = ones << (base - Math.min(0, shift));
  const read = offset & source;
  const mask = shift >= 0 ? read >> shift : read << -shift;
  return { offset: offset ^ mask, mask, read, source, target };
}

const BANKS = 32;
const BANK_BYTES = 4;
const LINE_BYTES = BANKS * BANK_BYTES;
const SECTOR_BYTES = 32;
const CHUNK_BYTES = 16;
const WARP = 32;

const bankOf = (byte) => mod(Math.floor(byte / BANK_BYTES), BANKS);
const phasesOf = (accessBytes) => Math.max(1, accessBytes / BANK_BYTES);
const lanesOfPhase = (accessBytes) => WARP / phasesOf(accessBytes);

/** Wavefronts of lanes that are served together: the most different words that one bank is asked for. */
function wavefronts(bytes, accessBytes) {
  const unit = Math.max(accessBytes, BANK_BYTES);
  const groups = LINE_BYTES / unit;
  const asked = new Map();
  for (const byte of bytes) {
    const number = Math.floor(byte / unit);
    const group = mod(number, groups);
    if (!asked.has(group)) asked.set(group, new Set());
    asked.get(group).add(number);
  }
  return Math.max(0, ...[...asked.values()].map((found) => found.size));
}

/** Integers in few characters: runs of one step by their ends. */
function span(values) {
  const found = [...new Set(values)].sort((one, other) => one - other);
  const parts = [];
  for (let i = 0; i < found.length; ) {
    let end = i + 1;
    const step = found[end] - found[i];
    while (end + 1 < found.length && found[end + 1] - found[end] === step) end += 1;
    if (end - i >= 2) {
      parts.push(`${found[i]}–${found[end]}${step === 1 ? "" : ` by ${step}`}`);
      i = end + 1;
    } else {
      parts.push(`${found[i]}`);
      i += 1;
    }
  }
  return parts.join(", ");
}

const ways = (pair) => `${Number((pair[0] / pair[1]).toPrecision(3))}-way`;
const thousands = (value) => value.toLocaleString("en-US");
const plural = (count, word) => `${thousands(count)} ${word}${count === 1 ? "" : "s"}`;
