// A view: a heading, a picture in two layers (what is there, and what is marked), what it says in words, and its export.

const views = [];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Names and values in words; tests and screen readers find each by its name. */
function facts(list, rows) {
  list.replaceChildren(
    ...rows.filter(Boolean).map(([name, label, value, accent]) =>
      element(
        "div",
        { "data-name": name, "data-value": String(value), class: accent === true ? "lit" : accent || null },
        element("dt", {}, label),
        element("dd", {}, String(value)),
      ),
    ),
  );
}

class View {
  /**
   * `draw(painter, width)` draws what is there and answers the height, `mark(painter, width)` what is marked;
   * `at(x, y, width)` answers the [operand, x, y] under a point. `on` are the keys of the state that `draw` asks for.
   */
  constructor({ id, title, note, on = [], draw, mark, at, words, wide = false, controls = null }) {
    Object.assign(this, { id, title, on, draw, mark, at, words, wide });
    this.base = element("canvas", { class: "base", "aria-hidden": true });
    this.over = element("canvas", { class: "over", role: "img", "aria-label": title });
    this.stack = element("div", { class: "stack" }, this.base, this.over);
    this.list = element("dl", { class: "facts" });
    const save = element("button", { type: "button", class: "save", title: `Save “${title}” as SVG` }, "SVG");
    save.addEventListener("click", () => this.save());
    this.root = element(
      "section",
      { id: `view-${id}`, class: wide ? "view wide" : "view", "aria-labelledby": `title-${id}` },
      element("header", {}, element("h2", { id: `title-${id}` }, title), save),
      element("p", { class: "note" }, note),
      ...(controls ? [controls] : []),
      ...(draw ? [this.stack] : []),
      this.list,
    );
    if (!draw) save.remove();
    if (at) this.listen();
    views.push(this);
  }

  listen() {
    const found = (event) => {
      const box = this.over.getBoundingClientRect();
      return this.at(event.clientX - box.left, event.clientY - box.top, this.width);
    };
    this.over.classList.add("live");
    this.over.addEventListener("pointermove", (event) => {
      const place = found(event);
      hover();
      if (place) follow(...place);
    });
    this.over.addEventListener("pointerleave", release);
    this.over.addEventListener("click", (event) => {
      const place = found(event);
      if (place) follow(...place, true);
    });
  }

  /** Room for `height` pixels, in the dots of the screen. */
  size(canvas, height) {
    const dots = window.devicePixelRatio || 1;
    canvas.width = Math.round(this.width * dots);
    canvas.height = Math.round(height * dots);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(dots, 0, 0, dots, 0, 0);
    return new CanvasPainter(context);
  }

  redraw() {
    if (!this.draw) return;
    this.width = this.stack.clientWidth;
    if (!this.width) return;
    // The height is known when it is drawn: once into nothing.
    const height = Math.ceil(this.draw({ rect() {}, text() {}, line() {} }, this.width));
    this.height = height;
    this.stack.style.height = `${height}px`;
    this.draw(this.size(this.base, height), this.width);
    this.overlay();
  }

  overlay() {
    if (!this.draw || !this.width) return;
    const painter = this.size(this.over, this.height);
    if (this.mark) this.mark(painter, this.width);
  }

  say() {
    if (this.words) facts(this.list, this.words());
  }

  svg() {
    const painter = new SvgPainter();
    const height = this.draw(painter, this.width);
    if (this.mark) this.mark(painter, this.width);
    return painter.document(this.width, height, `${document.title}: ${this.title}`);
  }

  save() {
    const link = element("a", {
      href: URL.createObjectURL(new Blob([this.svg()], { type: "image/svg+xml" })),
      download: `${document.title.replace(/[^\w.-]+/g, "_")}_${this.id}.svg`,
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

let waiting = null;

/** Words at once; pictures with the next frame, and of what is there only what has changed. */
function refresh(changed) {
  views.forEach((view) => view.say());
  if (!waiting) {
    waiting = new Set();
    requestAnimationFrame(() => {
      const keys = waiting;
      waiting = null;
      views.forEach((view) => (keys.has("all") || view.on.some((key) => keys.has(key)) ? view.redraw() : view.overlay()));
    });
  }
  changed.forEach((key) => waiting.add(key));
}

/** Where cells of a grid lie: `place(row, column)` and its inverse; the first row begins at (left, top). */
function cells(left, top, width, height) {
  return {
    x: (column) => left + column * width,
    y: (row) => top + row * height,
    at: (x, y) => [Math.floor((y - top) / height), Math.floor((x - left) / width)],
    width,
    height,
  };
}

const within = (value, count) => value >= 0 && value < count;

/** Cells by color, neighbors of one color in a row as one box. */
function painted(painter, grid, rows, columns, color) {
  for (let row = 0; row < rows; row += 1) {
    let begin = 0;
    let current = color(row, 0);
    for (let column = 1; column <= columns; column += 1) {
      const next = column < columns ? color(row, column) : null;
      if (next === current) continue;
      if (current) {
        // On whole dots, so that neighbors leave no seam.
        const [left, top] = [Math.round(grid.x(begin)), Math.round(grid.y(row))];
        painter.rect(left, top, Math.round(grid.x(column)) - left, Math.round(grid.y(row + 1)) - top, { fill: current });
      }
      begin = column;
      current = next;
    }
  }
}

/** Numbers beside rows and above columns, every `step`-th. */
function numbered(painter, grid, rows, columns, names) {
  const { rowStep, columnStep, rowName, columnName, firstRow = 0, firstColumn = 0 } = names;
  const soft = { size: 10, fill: palette.soft };
  for (let row = 0; row < rows; row += rowStep) {
    painter.text(grid.x(0) - 5, grid.y(row + 0.5) + (grid.height < 8 ? 3 : 0), firstRow + row, { ...soft, align: "end" });
  }
  for (let column = 0; column < columns; column += columnStep) {
    painter.text(grid.x(column) + (grid.width < 8 ? 0 : grid.width / 2), grid.y(0) - 8, firstColumn + column, {
      ...soft,
      align: grid.width < 8 ? "start" : "middle",
    });
  }
  painter.text(grid.x(0) - 5, grid.y(0) - 8, `${rowName}\\${columnName}`, { ...soft, align: "end", bold: true });
}
