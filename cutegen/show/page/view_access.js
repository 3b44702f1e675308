// Accesses that are served together: the lanes of a load's phase, or the rows of a core matrix, and their banks.

/** Return the access that the sliders select: its bytes, and each phase's pieces with their element and byte offset. */
function accessOf() {
  const operand = followed();
  const name = operand.name.toLowerCase();
  const layout = state.layouts[name];
  const piece = (label, at) => ({ label, element: at, byte: operand.place(at[0], at[1], layout, state.stage).byte });
  if (writesShown()) return writesOf(operand, layout, piece);
  if (!operand.copied) {
    const blocksX = operand.tile[0] / operand.loads.rows;
    const [block, blockK] = [state.load % blocksX, Math.floor(state.load / blocksX)];
    const [down, along] = operand.cores;
    const phases = [];
    for (let j = 0; j < along; j += 1) {
      for (let i = 0; i < down; i += 1) {
        const rows = operand.coreRows(block, blockK, i, j);
        phases.push({ title: `core ${i}, ${j}`, pieces: rows.map((at, row) => piece(`row ${row}`, at)) });
      }
    }
    return { operand, bytes: CHUNK_BYTES, phases, title: `block ${block}, k-block ${blockK}` };
  }
  const bytes = operand.loads.access;
  const warp = Math.min(warpOf(state.thread), operand.warps - 1);
  const at = (lane) => operand.addressOf(state.load, warp, lane);
  const phases = phasesOfWarp(operand.addressed.shape[2], bytes, (lane) => piece(`lane ${lane}`, operand.element(at(lane))));
  return { operand, bytes, phases, title: `load ${state.load}, warp ${warp}`, torn: isTorn(operand, layout, bytes, phases) };
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

/** Return the copies of a warp into shared memory in one step. */
function writesOf(operand, layout, piece) {
  const { accesses, threads, elements, values } = operand.copiers;
  const bytes = accessBytes();
  const step = Math.min(state.step, accesses.length - 1);
  const warp = Math.min(warpOf(state.thread), threads / WARP - 1);
  const vector = (lane, first = lane * elements) => Array.from(values.subarray(first, first + elements), (at) => operand.element(at));
  const moved = (lane) => accesses[step].flatMap((i) => vector(i * threads + warp * WARP + lane));
  const phases = phasesOfWarp(WARP, bytes, (lane) => ({ ...piece(`lane ${lane}`, moved(lane)[0]), elements: moved(lane) }));
  return { operand, bytes, phases, title: `copy ${step}, warp ${warp}`, torn: isTorn(operand, layout, bytes, phases) };
}

/** Return the elements of a piece: those that it moves, or neighbors along the contiguous mode. */
function elementsOf(operand, { element: [x, y], elements }, bytes) {
  const along = (i) => (operand.major === 1 ? [x, y + i] : [x + i, y]);
  return elements ?? Array.from({ length: bytes / operand.bytes }, (_, i) => along(i));
}

/** Return whether a layout splits or misaligns some lane's bytes, so that the kernel would use another access. */
function isTorn(operand, layout, bytes, phases) {
  const placed = (at) => operand.place(...at, layout, state.stage).byte;
  const torn = (piece) => elementsOf(operand, piece, bytes).some((at, i) => placed(at) !== piece.byte + i * operand.bytes);
  return phases.some(({ pieces }) => pieces.some((piece) => piece.byte % bytes || torn(piece)));
}

const OTHERWISE = "This layout splits or misaligns a lane's bytes. The kernel would use another access; the counts are for that one.";

function accessGeometry(width) {
  const access = accessOf();
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

/** Build the buttons `reads` and `writes`; `writes` is disabled for TMA boxes, which no lane writes. */
function sideSwitch() {
  const buttons = ["reads", "writes"].map((side) => {
    const button = element("button", { type: "button", id: `side-${side}` }, side);
    button.addEventListener("click", () => {
      state.side = side;
      settle();
      update({});
      watchers.forEach((watch) => watch(new Set(["all"])));
    });
    return button;
  });
  const group = element("div", { class: "switch", role: "group", "aria-label": "Reads or writes" }, ...buttons);
  const refreshed = () => {
    const [reads, writes] = buttons;
    writes.disabled = !followed().copiers;
    writes.title = writes.disabled ? "Boxes are written by TMA, not by lanes" : "Copies of one warp into shared memory";
    reads.setAttribute("aria-pressed", String(!writesShown()));
    writes.setAttribute("aria-pressed", String(writesShown()));
  };
  return { group, refreshed };
}

function accessNote(operand, bytes, lanes) {
  if (writesShown()) {
    const by = operand.copy.op === "universal" ? "st.shared" : operand.copy.op;
    const lines = by === "cp.async.cg" ? " It bypasses L1, so it is also written line by line; the counts “by line” show that." : "";
    return `Written by ${by}: ${bytes} bytes per lane, ${plural(lanes, "lane")} at a time. Hatched: lanes that wait for their bank.${lines}`;
  }
  const { instruction } = operand.loads;
  return operand.copied
    ? `Read by ${instruction}: ${bytes} bytes per lane, ${plural(lanes, "lane")} at a time.${operand.loads.ldmatrix ? " A lane addresses a row for other lanes." : ""} Hatched: lanes that wait for their bank.`
    : `Read through ${instruction}: the tensor core reads core matrices of 8 rows of 16 bytes; lanes supply no addresses. Hatched: rows that conflict in a bank.`;
}

function accessView() {
  const { group, refreshed } = sideSwitch();
  const view = new View({
    id: "access",
    title: "Banks, phase by phase",
    note: "",
    controls: group,
    on: ["step", "side", "all", "operand", "layouts", "load", "phase", "stage", "thread"],
    draw(painter, width) {
      const { access, pieces, grid, height } = accessGeometry(width);
      const { bytes, title } = access;
      if (access.torn) return 0;
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
      const { access, pieces, grid } = accessGeometry(width);
      if (state.operand === "c" || access.torn) return;
      const { operand, bytes } = access;
      pieces.forEach((piece, i) => {
        if (!elementsOf(operand, piece, bytes).some(([x, y]) => x === state.x && y === state.y)) return;
        const count = Math.max(1, bytes / BANK_BYTES);
        framed(painter, grid.x(bankOf(piece.byte)), grid.y(i) + 1, count * grid.width, grid.height - 2, 2.5);
      });
    },
    at(px, py, width) {
      const { access, pieces, grid } = accessGeometry(width);
      const [row, bank] = grid.at(px, py);
      if (!within(row, pieces.length) || !within(bank, BANKS)) return null;
      const { operand } = access;
      const elements = elementsOf(operand, pieces[row], access.bytes);
      const after = clamp(((bank - bankOf(pieces[row].byte)) * BANK_BYTES) / operand.bytes, 0, elements.length - 1);
      const [x, y] = elements[Math.floor(after)];
      return [operand.name.toLowerCase(), x, y];
    },
    words() {
      refreshed();
      const access = accessOf();
      const { operand, bytes, phases } = access;
      const phase = phases[state.phase];
      if (access.torn) {
        view.root.querySelector(".note").textContent = OTHERWISE;
        return [["access", "shown", `${access.title}, ${phase.title}`], ["torn", "reads", "would differ"]];
      }
      const turns = wavefronts(phase.pieces.map((piece) => piece.byte), bytes);
      const all = phases.reduce((sum, { pieces }) => sum + wavefronts(pieces.map((piece) => piece.byte), bytes), 0);
      view.root.querySelector(".note").textContent = accessNote(operand, bytes, phase.pieces.length);
      return [
        ["access", "shown", `${access.title}, ${phase.title}`],
        ["phase-wavefronts", "this phase", plural(turns, "wavefront"), turns > 1 ? "waits" : false],
        ["access-wavefronts", writesShown() ? "the copy" : operand.copied ? "the load" : "the block", plural(all, "wavefront")],
        ["first-banks", "first banks", phase.pieces.map((piece) => bankOf(piece.byte)).join(" ")],
      ];
    },
  });
}
