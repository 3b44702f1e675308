// The page's state: the followed element and the sliders. `update` and `follow` change it and notify every view.

const state = {
  operand: "a",
  x: 0,
  y: 0,
  thread: 0,
  stage: 0,
  kBlock: 0,
  load: 0,
  step: 0,
  // The side shown of shared memory: loads of A and B, and writes of sums, so that C's thread is that of its sum.
  sides: { a: "reads", b: "reads", c: "writes" },
  phase: 0,
  slot: 0,
  layouts: { a: 0, b: 0, c: 0 },
};
/** The values that a hover may change, saved when the pointer enters a picture; null while it is over none. */
let resting = null;
const HOVERED = ["operand", "x", "y", "thread", "load", "phase", "kBlock", "step"];
const rest = () => Object.fromEntries(HOVERED.map((key) => [key, state[key]]));
const watchers = [];

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

const warpOf = (thread) => Math.floor(thread / WARP);

/** Return the followed operand: A, B or C. */
const followed = () => operands[state.operand];

/** Return the followed operand's tile in shared memory with the element's place in it; null if it has none. */
function sharedNow() {
  const tile = followed().sharedTile;
  return tile && { tile, layout: state.layouts[state.operand], ...followed().inShared(state.x, state.y, state.stage) };
}

/** Return the extents of an operand's tile. */
const tileOf = (name) => operands[name].tile;

const kBlocks = () => data.overview.cta[2] / data.mma.tile[2];

/** Choose which holder of an element to show: the marked thread, else one in its warp, else the first. */
function chosenHolder(holders) {
  return (
    holders.find((holder) => holder.thread === state.thread) ||
    holders.find((holder) => warpOf(holder.thread) === warpOf(state.thread)) ||
    holders[0]
  );
}

/** Set the sliders to the followed element: its k-block, access and phase, and a thread that moves it. */
function settle() {
  if (!isPlan) return;
  const operand = followed();
  const { x, y } = state;
  if (operand !== operands.c) state.kBlock = Math.floor(y / data.mma.tile[2]);
  else state.thread = operand.holder(x, y).thread;
  const lanes = lanesShown();
  if (lanes) {
    const { thread, index, lane } = writesShown() ? operand.writeOf(x, y) : operand.readOf(x, y);
    Object.assign(state, { thread, [indexShown()]: index });
    state.phase = Math.floor(lane / lanesOfPhase(lanes.bytes(index)));
  } else if (operand.inPlace) {
    const place = operand.described(x, y, state.stage);
    const [down] = operand.cores;
    state.phase = place.coreDown + down * place.coreAlong;
    state.load = place.block + (operand.tile[0] / operand.loads.rows) * place.blockK;
  }
}

/** Return the accesses to shared memory by lanes that are shown; null for descriptors, and where no lane has any. */
function lanesShown() {
  const { reads, writes, inPlace } = followed();
  if (state.sides[state.operand] === "writes" && writes) return writes;
  return reads || (inPlace ? null : writes);
}

/** Return whether writes of shared memory are shown instead of reads. TMA boxes have no accesses by threads. */
const writesShown = () => Boolean(lanesShown()) && lanesShown() === followed().writes;

/** Return the key of the state that numbers the shown accesses. */
const indexShown = () => (writesShown() ? "step" : "load");

const phasesShown = (lanes) => Math.max(1, lanes.lanes / lanesOfPhase(lanes.bytes(state[indexShown()])));

/** Clamp every number to its valid range. */
function bounded() {
  const [x, y] = tileOf(state.operand);
  state.x = clamp(state.x, 0, x - 1);
  state.y = clamp(state.y, 0, y - 1);
  if (!isPlan) return;
  state.thread = clamp(state.thread, 0, data.mma.threads - 1);
  state.stage = clamp(state.stage, 0, data.overview.stages - 1);
  state.kBlock = clamp(state.kBlock, 0, kBlocks() - 1);
  const lanes = lanesShown();
  const operand = followed();
  if (lanes) {
    state[indexShown()] = clamp(state[indexShown()], 0, lanes.count - 1);
    state.phase = clamp(state.phase, 0, phasesShown(lanes) - 1);
  } else if (operand.inPlace) {
    const [down, along] = operand.cores;
    const blocks = (operand.tile[0] / operand.loads.rows) * (operand.tile[1] / operand.loads.k);
    state.load = clamp(state.load, 0, blocks - 1);
    state.phase = clamp(state.phase, 0, down * along - 1);
  } else {
    state.phase = 0;
  }
}

/** Change part of the state and tell every view which keys changed. */
function update(patch) {
  const before = { ...state };
  Object.assign(state, patch);
  bounded();
  const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
  watchers.forEach((watch) => watch(changed));
}

/** Follow an element. With `keep`, it stays followed after the pointer leaves. */
function follow(operand, x, y, keep = false, thread = state.thread) {
  const before = { ...state };
  Object.assign(state, { operand, x, y, thread });
  bounded();
  settle();
  bounded();
  if (keep && resting) resting = rest();
  const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
  if (changed.size) watchers.forEach((watch) => watch(changed));
}

/** Save the state when the pointer enters a picture. */
function hover() {
  if (!resting) resting = rest();
}

/** Restore the followed element and the sliders from before the hover. */
function release() {
  if (!resting) return;
  const before = resting;
  resting = null;
  update(before);
}

/** Return the location in global memory of an element of the first tile, with the row pitch of the page's problem. */
function globalPlace(name, bytes, row, column) {
  const inRow = column * bytes;
  const byte = row * data.open.leading[name] * bytes + inRow;
  return { row, inRow, byte, sectorInRow: Math.floor(inRow / SECTOR_BYTES), sector: Math.floor(byte / SECTOR_BYTES) };
}

/** Return everything known about the followed element: one record, shared by all views. */
function way() {
  const { operand: name, x, y, stage } = state;
  if (name === "c") return wayOfResult(x, y);
  const operand = operands[name];
  const coordinate = operand.coordinate(x, y);
  const [row, column] = operand.cell(x, y);
  const found = {
    name,
    operand,
    coordinate,
    global: globalPlace(name, operand.bytes, row, column),
    copy: operand.copiers ? operand.copiers.of(coordinate) : inBox(operand.copy, operand, x, y),
    shared: operand.place(x, y, state.layouts[name], stage),
    kBlock: Math.floor(y / data.mma.tile[2]),
  };
  if (operand.copied) {
    const holders = operand.holders(x, y);
    const holder = chosenHolder(holders);
    const lane = operand.addressingLane(holder.load, holder.warp, x, y);
    const phase = Math.floor(lane / lanesOfPhase(operand.loads.access));
    Object.assign(found, { holders, holder, lane, phase, register: operand.register(holder.value) });
  } else {
    found.described = operand.described(x, y, stage);
  }
  return found;
}

function wayOfResult(m, n) {
  const result = operands.c;
  const holder = result.holder(m, n);
  const found = { name: "c", operand: result, holder };
  if (!result.epilogue) return found;
  const tile = result.globalTile;
  found.global = globalPlace("c", tile.bytes, ...tile.cell(...result.inGlobal(m, n)));
  if (result.sharedTile) {
    const { x, y, part, slot } = result.inPart(m, n);
    const shared = result.sharedTile;
    found.part = { x, y, part, slot };
    found.shared = shared.place(x, y, state.layouts.c, slot);
    found.writer = result.writer(x, y);
    const { store } = result.epilogue.shared;
    found.store = result.copiers ? result.copiers.of(shared.coordinate(x, y)) : inBox(store, shared, x, y);
  }
  return found;
}
