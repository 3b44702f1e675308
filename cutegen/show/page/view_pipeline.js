// The main loop, slot by slot: the instructions issued, and the k-tile in each stage. It can be played.

const PLAY_MS = 700;

function pipelineView() {
  const loop = data.pipeline;
  if (!loop) return;
  const actions = Object.keys(loop.words);
  const rows = [...actions.map((action) => loop.words[action][0]), ...(loop.passing.length ? ["registers"] : [])];
  const stages = Array.from({ length: loop.stages }, (_, stage) => `stage ${stage}`);
  const count = loop.slots.length;
  const grid = (width) => cells(190, 40, (width - 194) / count, 22);
  const stageGrid = (width) => {
    const above = grid(width);
    return cells(190, above.y(rows.length) + 14, above.width, 22);
  };
  const bar = (painter, at, row, first, last, fill, label) => {
    const width = (last - first) * at.width - 2;
    painter.rect(at.x(first) + 1, at.y(row) + 1, width, at.height - 2, { fill });
    if (width > label.length * 6) painter.text(at.x(first) + 1 + width / 2, at.y(row + 0.5), label, { align: "middle", size: 10 });
  };
  const { group, tick } = playControls(count);
  const view = new View({
    id: "pipeline",
    title: "Pipeline",
    note: "Time runs to the right; each column is the time between two MMAs, each hue a k-tile. A stage is filled (pale), then read, then free.",
    wide: true,
    controls: group,
    on: ["all"],
    draw(painter, width) {
      const [top, below] = [grid(width), stageGrid(width)];
      [...rows].forEach((name, row) => painter.text(182, top.y(row + 0.5), name, { align: "end", size: 10 }));
      stages.forEach((name, row) => painter.text(182, below.y(row + 0.5), name, { align: "end", size: 10 }));
      loop.slots.forEach((slot, i) => {
        painter.text(top.x(i + 0.5), top.y(0) - 9, slot.name === "prologue" ? "pro" : slot.name, { size: 9, align: "middle", fill: palette.soft });
        slot.steps.forEach(([action, kTile, kBlock, pending]) => {
          const row = actions.indexOf(action);
          if (row < 0) return;
          const label = pending !== null ? `≤${pending}` : kBlock === null ? `${kTile}` : `${kTile}.${kBlock}`;
          bar(painter, top, row, i, i + 1, pending !== null ? palette.empty : hue(kTile), label);
        });
      });
      loop.passing.forEach(([kTile, first, last]) => {
        bar(painter, top, actions.length, first, last === null ? count : last, hue(kTile, 1, 2), `k-tile ${kTile}`);
      });
      loop.stays.forEach(([kTile, stage, fetched, landed, lastRead]) => {
        const arrives = landed === null ? count : landed;
        if (arrives > fetched) bar(painter, below, stage, fetched, arrives, hue(kTile, 2, 2), `‹ ${kTile}`);
        if (landed !== null) bar(painter, below, stage, landed, lastRead === null ? count : lastRead + 1, hue(kTile), `${kTile}`);
      });
      painter.text(190, 12, "k-tile.k-block of the MMA", { size: 10, fill: palette.soft });
      return below.y(stages.length) + 8;
    },
    mark(painter, width) {
      const [top, below] = [grid(width), stageGrid(width)];
      const height = below.y(stages.length) - top.y(0) + 20;
      framed(painter, top.x(state.slot), top.y(0) - 18, top.width, height, 2);
      painter.rect(below.x(0) - 2, below.y(state.stage), count * below.width + 4, below.height, { stroke: palette.thread, dash: [4, 3] });
    },
    words() {
      tick();
      const slot = loop.slots[state.slot];
      const issued = slot.steps.map(([action, kTile, kBlock, pending]) => {
        if (pending !== null) return `${action} ${pending}`;
        return `${action} of k-tile ${kTile}${kBlock === null ? "" : `, block ${kBlock}`}`;
      });
      const holds = stages.map((_, stage) => {
        const stay = loop.stays.find(
          ([, at, fetched, , lastRead]) => at === stage && fetched <= state.slot && (lastRead === null || state.slot <= lastRead),
        );
        if (!stay) return "free";
        const inFlight = stay[3] === null || state.slot < stay[3];
        return inFlight ? `k-tile ${stay[0]} in flight` : `k-tile ${stay[0]}`;
      });
      return [
        ["slot", "slot", `${state.slot + 1} of ${count}: ${slot.name}`],
        ["issued", "issued, in order", issued.join("; ") || "nothing"],
        ...holds.map((held, stage) => [`holds-${stage}`, `stage ${stage}`, held, stage === state.stage]),
      ];
    },
  });
  view.over.classList.add("live");
  view.over.addEventListener("click", (event) => {
    const [, slot] = grid(view.width).at(event.clientX - view.over.getBoundingClientRect().left, 0);
    if (within(slot, count)) update({ slot });
  });
}

/** Build the buttons for play, step back and step forward. */
function playControls(count) {
  let timer = null;
  const step = (by) => update({ slot: mod(state.slot + by, count) });
  const play = element("button", { type: "button", id: "play", "aria-pressed": "false" }, "▶ Play");
  const back = element("button", { type: "button", id: "step-back", "aria-label": "One slot back" }, "◀ Step");
  const on = element("button", { type: "button", id: "step", "aria-label": "One slot forward" }, "Step ▶");
  const stop = () => {
    clearInterval(timer);
    timer = null;
  };
  play.addEventListener("click", () => {
    if (timer) stop();
    else timer = setInterval(() => step(1), PLAY_MS);
    tick();
  });
  back.addEventListener("click", () => step(-1));
  on.addEventListener("click", () => step(1));
  const tick = () => {
    play.textContent = timer ? "❚❚ Pause" : "▶ Play";
    play.setAttribute("aria-pressed", String(Boolean(timer)));
  };
  return { group: element("div", { class: "switch", role: "group", "aria-label": "Pipeline" }, play, back, on), tick };
}
