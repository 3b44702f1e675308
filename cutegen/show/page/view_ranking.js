// Tables of the layouts that were compared, with their costs, and of the plan's decisions, with their reasons.

function table(caption, header, rows) {
  const head = element("tr", {}, ...header.map((name) => element("th", { scope: "col" }, name)));
  return element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...rows));
}

function rankingView() {
  const holder = element("div", { class: "scroll" });
  const view = new View({
    id: "ranking",
    title: "Layouts compared",
    note: "Wavefronts to write and read one tile once, counted by the library: relative to the minimum, and the number. Select a layout to see it in shared memory.",
    controls: holder,
    words() {
      const tile = followed().sharedTile;
      const name = state.operand;
      if (!tile) {
        holder.replaceChildren(element("p", { class: "note" }, notShared()));
        holder.dataset.shown = name;
        return [];
      }
      const rows = tile.layouts.map((row, i) => {
        const use = element("button", { type: "button", "aria-pressed": String(state.layouts[name] === i) }, row.name);
        use.addEventListener("click", () => update({ layouts: { ...state.layouts, [name]: i } }));
        const cost = [row.write, row.lines, row.read].map((pair) =>
          pair ? element("td", {}, ways(pair), element("small", {}, thousands(pair[0]))) : element("td", {}, "–"),
        );
        const texts = [...cost, element("td", {}, thousands(row.bytes))];
        return element("tr", { class: i === 0 ? "used" : null }, element("th", { scope: "row" }, use), ...texts);
      });
      const caption = `${tile.name}: the first is in use`;
      const made = table(caption, ["layout", "writes", "writes by line", "reads", "bytes"], rows);
      if (holder.dataset.shown !== `${name}${state.layouts[name]}`) holder.replaceChildren(made);
      holder.dataset.shown = `${name}${state.layouts[name]}`;
      return [];
    },
  });
  view.list.remove();
}

function decisionsView() {
  const { overview } = data;
  const rows = overview.decisions.map(([key, chosen, why]) =>
    element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, chosen), element("td", {}, why)),
  );
  const view = new View({
    id: "decisions",
    title: "Decisions and reasons",
    note: "`cutegen plan` also shows the rejected alternatives.",
    wide: true,
    controls: element("div", { class: "scroll" }, table("Decisions", ["key", "chosen", "reason"], rows)),
  });
  view.list.remove();
}
