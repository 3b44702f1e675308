// What is followed and what the sliders say: one value, changed by `update` alone, which tells every view.

const state = {
  operand: "a",
  x: 0,
  y: 0,
  thread: 0,
  stage: 0,
  kBlock: 0,
  load: 0,
  step: 0,
  side: "reads",
  phase: 0,
  slot: 0,
  layouts: { a: 0, b: 0, c: 0 },
};
/** What a hover may change, as it was before the pointer came over a picture; null while it is over none. */
let resting = null;
const HOVERED = ["operand", "x", "y", "thread", "load", "phase", "kBlock", "step"];
const rest = () => Object.fromEntries(HOVERED.map((key) => [key, state[key]]));
const watchers = [];

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

const warpOf = (thread) => Math.floor(thread / WARP);

/** A or B, whichever is followed; C's way begins with its accumulators, and then A is shown beside it. */
const followed = () => operands[state.operand === "c" ? "a" : state.operand];

/** The extents of the tile that the followed element is of. */
const tileOf = (name) => operands[name].tile;

const kBlocks = () => data.overview.cta[2] / data.mma.tile[2];

/** The thread among those that hold an element which is shown: the marked one, else its warp's, else the first. */
function chosenHolder(holders) {
  return (
    holders.find((holder) => holder.thread === state.thread) ||
    holders.find((holder) => warpOf(holder.thread) === warpOf(state.thread)) ||
    holders[0]
  );
}

/** Bring the sliders to where the followed element is: its k-block, load and phase, and a thread that holds it. */
function settle() {
  if (!isPlan) return;
  if (state.operand === "c") {
    state.thread = operands.c.holder(state.x, state.y).thread;
    return;
  }
  const operand = operands[state.operand];
  state.kBlock = Math.floor(state.y / data.mma.tile[2]);
  if (operand.copied) {
    const holder = chosenHolder(operand.holders(state.x, state.y));
    const lane = operand.addressingLane(holder.load, holder.warp, state.x, state.y);
    state.thread = holder.thread;
    state.load = holder.load;
    state.phase = Math.floor(lane / lanesOfPhase(operand.loads.access));
    if (writesShown()) {
      const copy = operand.copiers.of(operand.coordinate(state.x, state.y));
      Object.assign(state, { thread: copy.thread, step: copy.access });
      state.phase = Math.floor((copy.thread % WARP) / lanesOfPhase(accessBytes()));
    }
  } else {
    const place = operand.described(state.x, state.y, state.stage);
    const [down] = operand.cores;
    state.phase = place.coreDown + down * place.coreAlong;
    state.load = place.block + (operand.tile[0] / operand.loads.rows) * place.blockK;
  }
}

/** Whether the copies into shared memory are shown instead of the reads: those of threads, that is; boxes have none. */
const writesShown = () => state.side === "writes" && Boolean(followed().copiers);

const accessBytes = () => (writesShown() ? followed().copiers.bytes(state.step) : followed().loads.access);

/** Keep every number where it can be. */
function bounded() {
  const [x, y] = tileOf(state.operand);
  state.x = clamp(state.x, 0, x - 1);
  state.y = clamp(state.y, 0, y - 1);
  if (!isPlan) return;
  state.thread = clamp(state.thread, 0, data.mma.threads - 1);
  state.stage = clamp(state.stage, 0, data.overview.stages - 1);
  state.kBlock = clamp(state.kBlock, 0, kBlocks() - 1);
  const operand = followed();
  if (operand.copied) {
    state.load = clamp(state.load, 0, operand.count - 1);
    state.phase = clamp(state.phase, 0, phasesOf(accessBytes()) - 1);
  } else if (writesShown()) {
    state.phase = clamp(state.phase, 0, phasesOf(accessBytes()) - 1);
  } else {
    const [down, along] = operand.cores;
    const blocks = (operand.tile[0] / operand.loads.rows) * (operand.tile[1] / operand.loads.k);
    state.load = clamp(state.load, 0, blocks - 1);
    state.phase = clamp(state.phase, 0, down * along - 1);
  }
}

/** Change some of the state; every view is told which keys differ. */
function update(patch) {
  const before = { ...state };
  Object.assign(state, patch);
  bounded();
  const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
  watchers.forEach((watch) => watch(changed));
}

/** Follow an element; with `keep` it stays when the pointer goes away. */
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

/** The pointer comes over a picture. */
function hover() {
  if (!resting) resting = rest();
}

/** Follow again what was followed before the pointer came, with the sliders as they were. */
function release() {
  if (!resting) return;
  const before = resting;
  resting = null;
  update(before);
}

/** Where an element of the first tile lies in the matrix of the page's problem, rows as far apart as they must be. */
function globalPlace(name, bytes, row, column) {
  const inRow = column * bytes;
  const byte = row * data.open.leading[name] * bytes + inRow;
  return { row, inRow, byte, sectorInRow: Math.floor(inRow / SECTOR_BYTES), sector: Math.floor(byte / SECTOR_BYTES) };
}

/** All that is known of the followed element, the same record for every view. */
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
  const [row, column] = result.major === 1 ? [m, n] : [n, m];
  found.global = globalPlace("c", result.bytes, row, column);
  if (result.shared) {
    const { x, y, part, slot } = result.inPart(m, n);
    const { shared } = result;
    found.part = { x, y, part, slot };
    found.shared = shared.place(x, y, state.layouts.c, slot);
    found.writer = result.writer(x, y);
    const store = result.epilogue.shared.store;
    found.store = result.copiers ? result.copiers.of(shared.coordinate(x, y)) : inBox(store, shared, x, y);
  }
  return found;
}
