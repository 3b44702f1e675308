// Accesses that are served together: the lanes of a load's phase, or the rows of a core matrix, and their banks.

/** Return the access that the sliders select, its bytes and each phase's pieces with their elements and byte; or null. */
function accessOf() {
  const shared = sharedNow();
  if (!shared) return null;
  const { tile, layout, slot } = shared;
  const placed = ([x, y]) => tile.place(x, y, layout, slot).byte;
  const piece = (label, elements) => ({ label, element: elements[0], elements, byte: placed(elements[0]) });
  const lanes = lanesShown();
  if (!lanes) return followed().inPlace ? coreMatrices(piece) : null;
  const index = state[indexShown()];
  const bytes = lanes.bytes(index);
  const warp = mod(warpOf(state.thread), lanes.warps);
  const phases = phasesOfWarp(lanes.lanes, bytes, (lane) => piece(`lane ${lane}`, lanes.moved(index, warp, lane)));
  const torn = ({ elements, byte }) => byte % bytes || elements.some((at, i) => placed(at) !== byte + i * tile.bytes);
  // Whether the layout splits or misaligns some lane's bytes, so that the kernel would use another access.
  const isTorn = phases.some(({ pieces }) => pieces.some(torn));
  return { tile, bytes, phases, title: `${lanes.word} ${index}, warp ${warp}`, torn: isTorn };
}

/** Return the core matrices of the block that wgmma reads through one descriptor. */
function coreMatrices(piece) {
  const operand = followed();
  const blocksX = operand.tile[0] / operand.loads.rows;
  const [block, blockK] = [state.load % blocksX, Math.floor(state.load / blocksX)];
  const [down, along] = operand.cores;
  const rowOf = (at, row) => piece(`row ${row}`, operand.neighbors(at, CHUNK_BYTES / operand.bytes));
  const phases = [];
  for (let j = 0; j < along; j += 1) {
    for (let i = 0; i < down; i += 1) {
      phases.push({ title: `core ${i}, ${j}`, pieces: operand.coreRows(block, blockK, i, j).map(rowOf) });
    }
  }
  return { tile: operand, bytes: CHUNK_BYTES, phases, title: `block ${block}, k-block ${blockK}`, torn: false };
}

/** Group the lanes of a warp into phases. */
function phasesOfWarp(lanes, bytes, pieceOf) {
  const together = Math.min(lanes, lanesOfPhase(bytes));
  const phases = [];
  for (let first = 0; first < lanes; first += together) {
    const pieces = Array.from({ length: together }, (_, i) => pieceOf(first + i));
    phases.push({ title: `phase ${phases.length}: lanes ${first}–${first + together - 1}`, pieces });
  }
  return phases;
}

const OTHERWISE = "This layout splits or misaligns a lane's bytes. The kernel would use another access; the counts are for that one.";

function accessGeometry(width) {
  const access = accessOf();
  if (!access || access.torn) return null;
  const { pieces } = access.phases[clamp(state.phase, 0, access.phases.length - 1)];
  const grid = cells(126, 42, (width - 126 - 4) / BANKS, clamp(400 / pieces.length, 14, 26));
  return { access, pieces, grid, height: grid.y(pieces.length) + 8 };
}

/** Return for each piece how many other words its bank serves first. */
function turnsOf(pieces, bytes) {
  const unit = Math.max(bytes, BANK_BYTES);
  const groups = LINE_BYTES / unit;
  const asked = new Map();
  return pieces.map(({ byte }) => {
    const number = Math.floor(byte / unit);
    const group = mod(number, groups);
    if (!asked.has(group)) asked.set(group, []);
    const words = asked.get(group);
    if (!words.includes(number)) words.push(number);
    return words.indexOf(number);
  });
}

/** Build the buttons `reads` and `writes`; a side that no lane accesses, but TMA does, is disabled. */
function sideSwitch() {
  const buttons = ["reads", "writes"].map((side) => {
    const button = element("button", { type: "button", id: `side-${side}` }, side);
    button.addEventListener("click", () => {
      state.sides = { ...state.sides, [state.operand]: side };
      settle();
      update({});
      watchers.forEach((watch) => watch(new Set(["all"])));
    });
    return button;
  });
  const group = element("div", { class: "switch", role: "group", "aria-label": "Reads or writes" }, ...buttons);
  const refreshed = () => {
    const [reads, writes] = buttons;
    const operand = followed();
    reads.disabled = !operand.reads && !operand.inPlace;
    writes.disabled = !operand.writes;
    reads.title = reads.disabled ? "No lane reads them here" : "Reads of one warp from shared memory";
    writes.title = writes.disabled ? "Boxes are written by TMA, not by lanes" : "Writes of one warp into shared memory";
    reads.setAttribute("aria-pressed", String(!reads.disabled && !writesShown()));
    writes.setAttribute("aria-pressed", String(writesShown()));
  };
  return { group, refreshed };
}

const HATCHED = "Hatched: lanes that wait for their bank.";

function accessNote(bytes, lanes) {
  const operand = followed();
  const each = `${bytes} bytes per lane, ${plural(lanes, "lane")} at a time.`;
  if (state.operand === "c") return resultNote(operand, each);
  if (writesShown()) {
    const by = operand.copy.op === "universal" ? "st.shared" : operand.copy.op;
    const lines = by === "cp.async.cg" ? " It bypasses L1, so it is also written line by line; the counts “by line” show that." : "";
    return `Written by ${by}: ${each} ${HATCHED}${lines}`;
  }
  const { instruction } = operand.loads;
  return operand.copied
    ? `Read by ${instruction}: ${each}${operand.loads.ldmatrix ? " A lane addresses a row for other lanes." : ""} ${HATCHED}`
    : `Read through ${instruction}: the tensor core reads core matrices of 8 rows of 16 bytes; lanes supply no addresses. Hatched: rows that conflict in a bank.`;
}

function resultNote(result, each) {
  const { by } = result.epilogue.shared;
  if (!writesShown()) return `Read by threads, which then store to global memory: ${each} ${HATCHED}`;
  const rows = by.startsWith("stmatrix") ? " A lane addresses a row for other lanes." : "";
  return `Written by ${by}: ${each}${rows}${result.reads ? "" : " TMA reads them."} ${HATCHED}`;
}

function accessView() {
  const { group, refreshed } = sideSwitch();
  const say = (note) => {
    view.root.querySelector(".note").textContent = note;
  };
  const view = new View({
    id: "access",
    title: "Banks, phase by phase",
    note: "",
    controls: group,
    on: ["step", "sides", "all", "operand", "layouts", "load", "phase", "stage", "thread", "x", "y"],
    draw(painter, width) {
      const shown = accessGeometry(width);
      if (!shown) return 0;
      const { access, pieces, grid, height } = shown;
      const { bytes, title } = access;
      const turns = turnsOf(pieces, bytes);
      const phase = access.phases[state.phase];
      painter.text(8, 10, `${title}, ${phase.title}`, { size: 12, bold: true });
      for (let bank = 0; bank < BANKS; bank += 1) {
        if (bank % 4 === 0) painter.text(grid.x(bank), grid.y(0) - 9, bank, { size: 10, fill: palette.soft });
      }
      pieces.forEach(({ label, element: at, byte }, row) => {
        painter.text(118, grid.y(row + 0.5), `${label} (${at.join(", ")})`, { size: 10, align: "end" });
        painter.rect(grid.x(0), grid.y(row) + 1, BANKS * grid.width, grid.height - 2, { fill: palette.empty });
        const first = bankOf(byte);
        const count = Math.max(1, bytes / BANK_BYTES);
        const [x, y, width_, height_] = [grid.x(first), grid.y(row) + 1, count * grid.width, grid.height - 2];
        if (turns[row] > 0) hatched(painter, x, y, width_, height_);
        else painter.rect(x, y, width_, height_, { fill: hue(Math.floor(first / 4)) });
        const text = turns[row] > 0 ? `waits ${turns[row]}` : count * grid.width > 30 ? `${byte}` : "";
        const waits = turns[row] > 0;
        const isRight = first > BANKS / 2;
        const beside = waits ? (isRight ? x - 6 : x + width_ + 6) : x + width_ / 2;
        painter.text(beside, y + height_ / 2, text, { size: 10, align: waits ? (isRight ? "end" : "start") : "middle" });
      });
      return height;
    },
    mark(painter, width) {
      const shown = accessGeometry(width);
      if (!shown) return;
      const { access, pieces, grid } = shown;
      const place = sharedNow();
      pieces.forEach((piece, i) => {
        if (!piece.elements.some(([x, y]) => x === place.x && y === place.y)) return;
        const count = Math.max(1, access.bytes / BANK_BYTES);
        framed(painter, grid.x(bankOf(piece.byte)), grid.y(i) + 1, count * grid.width, grid.height - 2, 2.5);
      });
    },
    at(px, py, width) {
      const shown = accessGeometry(width);
      if (!shown) return null;
      const { access, pieces, grid } = shown;
      const [row, bank] = grid.at(px, py);
      if (!within(row, pieces.length) || !within(bank, BANKS)) return null;
      const { elements, byte } = pieces[row];
      const after = clamp(((bank - bankOf(byte)) * BANK_BYTES) / access.tile.bytes, 0, elements.length - 1);
      return [state.operand, ...followed().fromShared(...elements[Math.floor(after)])];
    },
    words() {
      refreshed();
      const access = accessOf();
      if (!access) {
        say(notShared());
        return [];
      }
      const { bytes, phases } = access;
      const phase = phases[state.phase];
      if (access.torn) {
        say(OTHERWISE);
        return [["access", "shown", `${access.title}, ${phase.title}`], ["torn", "accesses", "would differ"]];
      }
      const turns = wavefronts(phase.pieces.map((piece) => piece.byte), bytes);
      const all = phases.reduce((sum, { pieces }) => sum + wavefronts(pieces.map((piece) => piece.byte), bytes), 0);
      say(accessNote(bytes, phase.pieces.length));
      return [
        ["access", "shown", `${access.title}, ${phase.title}`],
        ["phase-wavefronts", "this phase", plural(turns, "wavefront"), turns > 1 ? "waits" : false],
        ["access-wavefronts", `the ${lanesShown()?.word || "block"}`, plural(all, "wavefront")],
        ["first-banks", "first banks", phase.pieces.map((piece) => bankOf(piece.byte)).join(" ")],
      ];
    },
  });
}
