// The library's data about the kernel, indexed by element, so that the views can follow an element's path.

/** A tile of a matrix: its extents, its contiguous mode and the size of an element. */
class Tile {
  constructor(told) {
    Object.assign(this, told);
    this.bytes = told.bits / 8;
    this.rows = told.tile[1 - told.major];
    this.columns = told.tile[told.major];
  }

  coordinate(x, y) {
    return x + y * this.tile[0];
  }

  element(coordinate) {
    return [coordinate % this.tile[0], Math.floor(coordinate / this.tile[0])];
  }

  /** Return [row, column] of an element, with the contiguous mode to the right. */
  cell(x, y) {
    return this.major === 1 ? [x, y] : [y, x];
  }

  /** Return `count` neighbors along the contiguous mode, from (x, y) on. */
  neighbors([x, y], count) {
    return Array.from({ length: count }, (_, i) => (this.major === 1 ? [x, y + i] : [x + i, y]));
  }
}

/** Maps the coordinates of a tile to locations in shared memory, in any of its layouts. */
class SharedTile extends Tile {
  /** Return the location of an element: offsets in elements before and after the swizzle, and the byte across all stages. */
  place(x, y, layout, stage = 0) {
    const row = this.layouts[layout];
    const before = affine(row, [x, y], stage * row.stage);
    const moved = swizzled(row.swizzle, before);
    const byte = moved.offset * this.bytes;
    return {
      before,
      ...moved,
      byte,
      address: this.begins + byte,
      bank: bankOf(byte),
      line: Math.floor(byte / LINE_BYTES),
      chunk: Math.floor((byte % LINE_BYTES) / CHUNK_BYTES),
    };
  }

  /** Return the coordinate stored at each offset of a stage as an Int32Array, with -1 for padding. */
  contents(layout) {
    const row = this.layouts[layout];
    const found = new Int32Array(row.stage).fill(-1);
    for (let y = 0; y < this.tile[1]; y += 1) {
      for (let x = 0; x < this.tile[0]; x += 1) {
        found[swizzled(row.swizzle, affine(row, [x, y])).offset] = this.coordinate(x, y);
      }
    }
    return found;
  }
}

/** Index a copy by coordinate: the step, thread and element that move it. Return null for TMA boxes. */
function copiersOf(copy, size) {
  if (copy.kind !== "vectors") return null;
  const { shape, values } = unpacked(copy.vectors);
  const [steps, threads, elements] = shape;
  // The steps of each access to shared memory: several where the compiler merges stores.
  const accesses = copy.accesses ?? Array.from({ length: steps }, (_, step) => [step]);
  const found = { steps, threads, elements, values, accesses, index: new Int32Array(size) };
  found.bytes = (access) => (accesses[Math.min(access, accesses.length - 1)].length * copy.bits) / 8;
  values.forEach((coordinate, i) => {
    found.index[coordinate] = i;
  });
  found.of = (coordinate) => {
    const i = found.index[coordinate];
    const step = Math.floor(i / (threads * elements));
    return {
      step,
      access: accesses.findIndex((each) => each.includes(step)),
      thread: Math.floor(i / elements) % threads,
      element: i % elements,
      first: values[i - (i % elements)],
    };
  };
  return found;
}

/** Accesses of a warp's lanes to a tile: in access i a lane moves the elements `moved(i, warp, lane)`, of `bytes(i)`. */
function accessesByVectors(word, tile, { accesses, threads, elements, values, bytes }) {
  const vector = (first) => Array.from(values.subarray(first, first + elements), (at) => tile.element(at));
  const moved = (i, warp, lane) =>
    accesses[i].flatMap((step) => vector((step * threads + warp * WARP + lane) * elements));
  return { word, count: accesses.length, warps: threads / WARP, lanes: WARP, bytes, moved };
}

/** The same where each lane addresses `access` contiguous bytes from the coordinate `first(i, warp, lane)` on. */
function accessesByRows(word, tile, access, [count, warps, lanes], first) {
  const moved = (i, warp, lane) => tile.neighbors(tile.element(first(i, warp, lane)), access / tile.bytes);
  return { word, count, warps, lanes, bytes: () => access, moved };
}

/** Return the TMA box that holds an element. Boxes are adjacent along the contiguous mode. */
function inBox(copy, tile, x, y) {
  const [row, column] = tile.cell(x, y);
  return { box: Math.floor(column / copy.box[0]), row, column: column % copy.box[0], rank: Math.floor(row / copy.box[1]) };
}

/** Return [row, column, rows, columns] of a box within its tile. */
const extentOfBox = ([wide, tall], { box, rank }) => [rank * tall, box * wide, tall, wide];

/**
 * Operand A or B: its tile, its copies, and its loads or descriptors.
 *
 * A, B and C answer the views alike: `globalTile` and `sharedTile` (null if there is none) with `inGlobal` and
 * `inShared` to find the followed element there; `writes` and `reads` of shared memory by lanes (null if there are
 * none), with `writeOf` and `readOf` to find the element's; and `moverOf` and `movedBy` for global memory.
 */
class Operand extends SharedTile {
  constructor(smem, copy, loads) {
    super(smem);
    this.copy = copy;
    this.loads = loads;
    this.copiers = copiersOf(copy, this.tile[0] * this.tile[1]);
    this.globalTile = this;
    this.sharedTile = this;
    this.writes = this.copiers && accessesByVectors("copy", this, this.copiers);
    this.reads = null;
    if (this.copied) this.indexLoads();
  }

  get copied() {
    return this.loads.kind === "copied";
  }

  /** Return whether wgmma reads the operand in shared memory, through descriptors. */
  get inPlace() {
    return !this.copied;
  }

  indexLoads() {
    const size = this.tile[0] * this.tile[1];
    this.addressed = unpacked(this.loads.addressed);
    this.received = unpacked(this.loads.received);
    this.held = unpacked(this.loads.held);
    this.receivers = Array.from({ length: size }, () => []);
    this.received.values.forEach((coordinate, i) => this.receivers[coordinate].push(i));
    this.values = this.held.shape[1];
    [this.count, this.warps] = this.received.shape;
    const first = (load, warp, lane) => this.addressOf(load, warp, lane);
    this.reads = accessesByRows("load", this, this.loads.access, this.addressed.shape, first);
  }

  inGlobal(x, y) {
    return [x, y];
  }

  inShared(x, y, stage) {
    return { x, y, slot: stage };
  }

  /** Return the element to follow for a place in the tile in shared memory. */
  fromShared(x, y) {
    return [x, y];
  }

  writeOf(x, y) {
    const { thread, access } = this.copiers.of(this.coordinate(x, y));
    return { thread, index: access, lane: thread % WARP };
  }

  readOf(x, y) {
    const { thread, load, warp } = chosenHolder(this.holders(x, y));
    return { thread, index: load, lane: this.addressingLane(load, warp, x, y) };
  }

  /** Return who copies an element: a thread, or a box as [row, column, rows, columns]; with its hue and shade. */
  moverOf(x, y) {
    if (!this.copiers) {
      const place = inBox(this.copy, this, x, y);
      return { box: extentOfBox(this.copy.box, place), hue: place.box, shade: (Math.floor(place.row / 8) % 2) * 2 };
    }
    const { thread } = this.copiers.of(this.coordinate(x, y));
    return { thread, hue: warpOf(thread), shade: Math.floor((thread % WARP) / 8) };
  }

  /** Return the vectors that a thread copies, each as its first element and its length. */
  movedBy(thread) {
    return vectorsOf(this.copiers, this, thread);
  }

  /** Return the coordinate of the first element that a lane addresses. */
  addressOf(load, warp, lane) {
    const lanes = this.addressed.shape[2];
    return this.addressed.values[(load * this.warps + warp) * lanes + lane];
  }

  /** Return the loads of one k-block. */
  loadsOf(kBlock, blockK) {
    const found = [];
    for (let load = 0; load < this.count; load += 1) {
      const begin = load * this.warps * this.received.shape[2] * this.received.shape[3];
      const got = this.received.values.subarray(begin, begin + this.received.shape[3]);
      if (got.some((coordinate) => Math.floor(this.element(coordinate)[1] / blockK) === kBlock)) found.push(load);
    }
    return found.length ? found : [0];
  }

  /** Return every register that receives an element, sorted by thread. */
  holders(x, y) {
    const [, warps, lanes, values] = this.received.shape;
    const coordinate = this.coordinate(x, y);
    return this.receivers[coordinate].map((i) => {
      const lane = Math.floor(i / values) % lanes;
      const warp = Math.floor(i / (values * lanes)) % warps;
      const load = Math.floor(i / (values * lanes * warps));
      return { load, warp, lane, thread: warp * WARP + lane, value: this.valueOf(warp * WARP + lane, coordinate) };
    }).sort((one, other) => one.thread - other.thread);
  }

  /** Return the index of a coordinate among a thread's values, in the order of tCrA or tCrB. */
  valueOf(thread, coordinate) {
    const begin = thread * this.values;
    return this.held.values.subarray(begin, begin + this.values).indexOf(coordinate);
  }

  register(value) {
    return { register: Math.floor((value * this.bits) / 32), part: Math.floor(((value * this.bits) % 32) / this.bits) };
  }

  /** Return the lane that addresses the row from which a load reads the element. */
  addressingLane(load, warp, x, y) {
    const [row, column] = this.cell(x, y);
    const elements = this.loads.access / this.bytes;
    for (let lane = 0; lane < this.addressed.shape[2]; lane += 1) {
      const [laneRow, laneColumn] = this.cell(...this.element(this.addressOf(load, warp, lane)));
      if (laneRow === row && column >= laneColumn && column < laneColumn + elements) return lane;
    }
    return null;
  }

  /** Return the descriptor and the core matrix (8 rows of 16 bytes) through which wgmma reads an element in place. */
  described(x, y, stage) {
    const { rows, k, descriptors } = this.loads;
    const [blocksX, blocksK] = [this.tile[0] / rows, this.tile[1] / k];
    const [i, j] = [Math.floor(x / rows), Math.floor(y / k)];
    const [inX, inK] = [x % rows, y % k];
    const kMajor = this.major === 1;
    const [down, along] = kMajor ? [inX, inK] : [inK, inX];
    return {
      block: i,
      blockK: j,
      descriptor: descriptors[i + blocksX * (j + blocksK * stage)],
      coreDown: Math.floor(down / 8),
      coreAlong: Math.floor((along * this.bytes) / CHUNK_BYTES),
      row: down % 8,
      byte: (along * this.bytes) % CHUNK_BYTES,
    };
  }

  /** Return the first element of each of the 8 rows of a block's core matrix. */
  coreRows(block, blockK, down, along) {
    const { rows, k } = this.loads;
    const elements = CHUNK_BYTES / this.bytes;
    return Array.from({ length: 8 }, (_, row) => {
      const [across, contiguous] = [8 * down + row, along * elements];
      return this.major === 1
        ? [block * rows + across, blockK * k + contiguous]
        : [block * rows + contiguous, blockK * k + across];
    });
  }

  /** Return the number of core matrices in a block, down and along. */
  get cores() {
    const { rows, k } = this.loads;
    const perChunk = CHUNK_BYTES / this.bytes;
    return this.major === 1 ? [rows / 8, k / perChunk] : [k / 8, rows / perChunk];
  }
}

/** Return the first element and the length of each vector that a thread moves. */
function vectorsOf(copiers, tile, thread) {
  if (!copiers || thread >= copiers.threads) return [];
  const { steps, threads, elements, values } = copiers;
  return Array.from({ length: steps }, (_, step) => [tile.element(values[(step * threads + thread) * elements]), elements]);
}

/** C: the thread that holds each accumulator, and the path through shared memory if the epilogue uses it. */
class Result {
  constructor(mma, epilogue, cta) {
    this.tile = [cta[0], cta[1]];
    this.modes = ["m", "n"];
    this.name = "C";
    this.mma = mma;
    const { shape, values } = unpacked(mma.accumulators);
    this.values = shape[1];
    this.index = new Int32Array(cta[0] * cta[1]);
    this.coordinates = values;
    values.forEach((coordinate, i) => {
      this.index[coordinate] = i;
    });
    this.epilogue = epilogue;
    Object.assign(this, { globalTile: null, sharedTile: null, writes: null, reads: null });
    if (!epilogue) return;
    const { bits, major, tile, dtype, shared } = epilogue;
    this.major = major;
    this.globalTile = new Tile({ name: "C", modes: this.modes, bits, major, tile, dtype });
    if (!shared) return;
    this.sharedTile = new SharedTile(shared);
    this.copiers = copiersOf(shared.store, this.sharedTile.tile[0] * this.sharedTile.tile[1]);
    this.written = unpacked(shared.written);
    const [, warps, lanes] = this.written.shape;
    const first = (i, warp, lane) => this.written.values[(i * warps + warp) * lanes + lane];
    this.writes = accessesByRows("write", this.sharedTile, shared.access, this.written.shape, first);
    this.reads = this.copiers && accessesByVectors("store", this.sharedTile, this.copiers);
  }

  holder(m, n) {
    const i = this.index[m + n * this.tile[0]];
    return { thread: Math.floor(i / this.values), value: i % this.values };
  }

  /** Return the element of C's tile that a sum becomes. With pairs each half of the sums has one of every pair. */
  element(m, n) {
    const [rows, columns] = this.epilogue.tile;
    return [m % rows, n % columns];
  }

  /** Return the part of C that holds the element of a sum, its buffer, and the coordinate within the part. */
  inPart(m, n) {
    const [rows, columns] = this.sharedTile.tile;
    const [i, j] = this.element(m, n);
    const at = [Math.floor(i / rows), Math.floor(j / columns)];
    const { parts } = this.epilogue.shared;
    const [part, slot] = parts ? parts[at[0]][at[1]] : [0, 0];
    return { x: i % rows, y: j % columns, at, part, slot };
  }

  inGlobal(m, n) {
    return this.element(m, n);
  }

  inShared(m, n) {
    return this.inPart(m, n);
  }

  /** Return the sum to follow for a place in shared memory: in the part and of the member of the pair that are followed. */
  fromShared(x, y) {
    const [m, n] = state.operand === "c" ? [state.x, state.y] : [0, 0];
    const { at } = this.inPart(m, n);
    const [rows, columns] = this.sharedTile.tile;
    const [i, j] = this.element(m, n);
    return [m - i + at[0] * rows + x, n - j + at[1] * columns + y];
  }

  writeOf(m, n) {
    const { x, y } = this.inPart(m, n);
    const { write, lane } = this.writer(x, y);
    return { thread: this.holder(m, n).thread, index: write, lane };
  }

  readOf(m, n) {
    const { x, y } = this.inPart(m, n);
    const { thread, access } = this.copiers.of(this.sharedTile.coordinate(x, y));
    return { thread, index: access, lane: thread % WARP };
  }

  /** Return who stores an element of C's tile. Without shared memory it is the thread that holds the accumulator. */
  moverOf(i, j) {
    if (!this.sharedTile) {
      const { thread } = this.holder(i, j);
      return { thread, hue: warpOf(thread), shade: thread % 4 };
    }
    const { x, y, at } = this.inPart(i, j);
    if (!this.copiers) {
      const { store, tile } = this.epilogue.shared;
      const place = inBox(store, this.sharedTile, x, y);
      const [row, column, tall, wide] = extentOfBox(store.box, place);
      const [top, left] = this.sharedTile.cell(at[0] * tile[0], at[1] * tile[1]);
      const number = at[0] + at[1] + place.box;
      return { box: [top + row, left + column, tall, wide], hue: number, shade: (Math.floor(place.row / 8) % 2) * 2 };
    }
    const { thread } = this.copiers.of(this.sharedTile.coordinate(x, y));
    return { thread, hue: warpOf(thread), shade: Math.floor((thread % WARP) / 8) };
  }

  movedBy(thread) {
    if (this.sharedTile) return vectorsOf(this.copiers, this.sharedTile, thread);
    const held = Array.from(this.coordinates.subarray(thread * this.values, (thread + 1) * this.values));
    return held.map((at) => [this.element(at % this.tile[0], Math.floor(at / this.tile[0])), 1]);
  }

  /** Return the write to shared memory that covers an element of the part, with its warp and lane. */
  writer(x, y) {
    const tile = this.sharedTile;
    const [row, column] = tile.cell(x, y);
    const elements = this.epilogue.shared.access / tile.bytes;
    const [, warps, lanes] = this.written.shape;
    for (let i = 0; i < this.written.values.length; i += 1) {
      const [atRow, atColumn] = tile.cell(...tile.element(this.written.values[i]));
      if (atRow === row && column >= atColumn && column < atColumn + elements) {
        return { write: Math.floor(i / (warps * lanes)), warp: Math.floor(i / lanes) % warps, lane: i % lanes };
      }
    }
    return null;
  }
}

const data = JSON.parse(document.getElementById("data").textContent);
const isPlan = data.kind === "plan";
const operands = {};
if (isPlan) {
  for (const name of ["a", "b"]) operands[name] = new Operand(data.smem[name], data.g2s[name], data.s2r[name]);
  operands.c = new Result(data.mma, data.epilogue, data.overview.cta);
} else {
  operands.layout = { tile: data.layout.shape };
}
