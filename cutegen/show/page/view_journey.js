// The path of the followed element as a row of stations, from global memory to its accumulators.

/** Return which bits of a 32-bit register a narrower value has, as text. */
const bitsOf = (part, bits) => (bits < 32 ? `, bits ${part * bits}–${(part + 1) * bits - 1}` : "");

/** Return the fact which bytes of its bank's 4-byte word a narrower element has. */
function inWord({ byte }, bytes) {
  const first = mod(byte, BANK_BYTES);
  return bytes < BANK_BYTES && ["word-bytes", "of its 4-byte word", bytes === 1 ? `byte ${first}` : `bytes ${first}–${first + bytes - 1}`];
}

const nameOf = (found) => `${found.name}(${state.x}, ${state.y})`;

function stationsOfOperand(found) {
  const { operand, global, copy, shared } = found;
  const [x] = operand.modes;
  const where = operand.major === 1 ? `row ${x} ${global.row}` : `row ${operand.modes[1]} ${global.row}`;
  return [
    [
      "Global tile",
      [
        ["global-row", "location", where],
        ["global-byte", "byte (in row)", `${global.byte} (${global.inRow})`],
        ["global-sector", "sector (in row)", `${global.sector} (${global.sectorInRow})`],
      ],
    ],
    operand.copiers
      ? [
          operand.copy.op === "universal" ? "ld.global, st.shared" : operand.copy.op,
          [
            ["copy-thread", "thread", `t${copy.thread}`],
            ["copy-step", "step", `${copy.step + 1} of ${operand.copiers.steps}`],
            ["copy-element", "in its vector", `element ${copy.element} of ${operand.copiers.elements}`],
          ],
        ]
      : [
          "TMA box",
          [
            ["copy-box", "box", `${copy.box + 1} of ${operand.copy.boxes}`],
            ["copy-row", "row in the box", copy.row % operand.copy.box[1]],
            ["copy-column", "column", copy.column],
            operand.copy.shares > 1 && ["copy-rank", "copied by CTA", `${copy.rank} of ${operand.copy.shares}`],
          ],
        ],
    [
      "Shared memory",
      [
        ["stage", "stage", state.stage],
        ["offset", "offset", `${shared.offset} elements`],
        ["byte", "byte", shared.address],
        ["bank", "bank", shared.bank],
        inWord(shared, operand.bytes),
      ],
    ],
    [
      "Swizzle",
      operand.layouts[state.layouts[found.name]].swizzle
        ? [
            ["before", "before", shared.before],
            ["xor", "XOR", shared.mask],
            ["after", "after", shared.offset],
          ]
        : [["before", "offset", shared.before], ["xor", "XOR", "none"]],
    ],
    ...(operand.copied ? stationsOfLoad(found) : stationsOfDescriptor(found)),
  ];
}

function stationsOfLoad(found) {
  const { operand, holder, holders, register, lane, phase } = found;
  const others = holders.filter((other) => other.thread !== holder.thread).map((other) => other.thread);
  return [
    [
      operand.loads.ldmatrix ? `ldmatrix${operand.loads.transpose ? ".trans" : ""}` : "ld.shared",
      [
        ["load", "load", `${holder.load} of ${operand.count}, warp ${holder.warp}`],
        ["phase", "phase", phase],
        ["lane", "addressed by", `lane ${lane}`],
      ],
    ],
    [
      "Register",
      [
        ["thread", "thread", `t${holder.thread}`],
        [
          "register",
          `tCr${operand.name}`,
          `R${register.register}${bitsOf(register.part, operand.bits)}`,
        ],
        ["value", "value", holder.value],
        others.length > 0 && ["others", "also in", span(others).split(", ").map((run) => `t${run}`).join(" ")],
      ],
    ],
    accumulatorStation(found, holder.thread),
  ];
}

function stationsOfDescriptor(found) {
  const { operand, described } = found;
  return [
    [
      "Matrix descriptor",
      [
        ["descriptor", "64 bits", described.descriptor],
        ["block", "block", `${described.block}, k-block ${described.blockK}`],
        ["offsets", "LBO, SBO", `${operand.loads.lbo}, ${operand.loads.sbo} bytes`],
      ],
    ],
    [
      "Core matrix",
      [
        ["core", "down, along", `${described.coreDown}, ${described.coreAlong}`],
        ["core-row", "16-byte row", described.row],
        ["core-byte", "byte", described.byte],
      ],
    ],
    accumulatorStation(found, null),
  ];
}

/** Build the station of the accumulators that an element of A or B contributes to: a row or column of C, and its threads. */
function accumulatorStation(found, thread) {
  const result = operands.c;
  const [m, n] = result.tile;
  const isA = found.name === "a";
  const threads = [];
  const values = [];
  for (let i = 0; i < (isA ? n : m); i += 1) {
    const holder = isA ? result.holder(state.x, i) : result.holder(i, state.x);
    threads.push(holder.thread);
    if (holder.thread === thread) values.push(holder.value);
  }
  return [
    "Accumulators",
    [
      ["accumulators", "of C", isA ? `row m ${state.x}` : `column n ${state.x}`],
      ["accumulator-threads", "threads", span(threads)],
      thread !== null && ["accumulator-values", `in t${thread}`, values.length > 6 ? `${values.length}: ${values.slice(0, 4).join(" ")} …` : values.join(" ") || "none"],
    ],
  ];
}

function stationsOfResult(found) {
  const { operand, holder } = found;
  const first = [
    "Accumulator",
    [
      ["thread", "thread", `t${holder.thread}`],
      ["value", "tCrC value", `${holder.value} of ${operand.values}`],
    ],
  ];
  if (!operand.epilogue) return [first];
  const { global } = found;
  const row = operand.major === 1 ? "m" : "n";
  const last = [
    "Global tile",
    [
      ["global-row", "location", `row ${row} ${global.row}`],
      ["global-byte", "byte (in row)", `${global.byte} (${global.inRow})`],
      ["global-sector", "sector (in row)", `${global.sector} (${global.sectorInRow})`],
    ],
  ];
  if (!operand.sharedTile) return [first, ["Store", [["way", "path", "directly from registers"]]], last];
  const { part, shared, writer, store } = found;
  return [
    first,
    operand.epilogue.shared.parts && [
      "Part",
      [
        ["part", "in its warpgroup", part.part],
        ["slot-of-part", "buffer", part.slot],
        ["in-part", "in the part", `(${part.x}, ${part.y})`],
      ],
    ],
    [
      operand.epilogue.shared.by.replace(/\.sync.*/, ""),
      [["write", "write", `${writer.write}, warp ${writer.warp}`], ["write-lane", "addressed by", `lane ${writer.lane}`]],
    ],
    [
      "Shared memory",
      [
        ["offset", "offset", `${shared.offset} elements`],
        ["byte", "byte", shared.address],
        ["bank", "bank", shared.bank],
        inWord(shared, operand.sharedTile.bytes),
        ["xor", "XOR", operand.sharedTile.layouts[state.layouts.c].swizzle ? shared.mask : "none"],
      ],
    ],
    operand.copiers
      ? [
          `Store of ${operand.epilogue.shared.store.bits / 8} bytes`,
          [["store-thread", "thread", `t${store.thread}`], ["store-step", "step", `${store.step + 1} of ${operand.copiers.steps}`]],
        ]
      : ["TMA box", [["store-box", "box", `${store.box + 1} of ${operand.epilogue.shared.store.boxes}`]]],
    last,
  ];
}

const journey = isPlan ? element("ol", { id: "journey", "aria-label": "Path of the followed element" }) : null;

function sayJourney() {
  const found = way();
  const stations = (found.name === "c" ? stationsOfResult(found) : stationsOfOperand(found)).filter(Boolean);
  journey.replaceChildren(
    ...stations.map(([title, rows]) => {
      const list = element("dl", {});
      facts(list, rows);
      return element("li", {}, element("h3", {}, title), list);
    }),
  );
  document.getElementById("followed").textContent = nameOf(found);
}
