// Evaluates the library's tables (sums of a few lists) and layouts (modes of (extent, stride) with a swizzle).

const mod = (value, by) => ((value % by) + by) % by;

/** Unpack a table of `packed` in cutegen/show/packed.py: return its extents and all its values, last axis fastest. */
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

/** Return the offset of coordinate `index` in one mode. Its leaves take the digits of the index, the first leaf fastest. */
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

/** Return the offset given by a layout's strides, before its swizzle. `extra` is added, such as the start of a stage. */
function affine(layout, coordinates, extra = 0) {
  return coordinates.reduce((sum, index, i) => sum + ofMode(layout.modes[i], index), layout.offset + extra);
}

/** Apply Swizzle<bits, base, shift> to an offset: return the new offset, and the bits that are read and changed. */
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

/** Count the wavefronts of lanes that are served together: the most distinct words requested from one bank. */
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

/** Format integers compactly: a run with a constant step is written as its first and last value. */
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
