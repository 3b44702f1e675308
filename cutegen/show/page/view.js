// A view: a heading, a picture in two layers (the base and the marks), facts as text, and SVG export.

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

/** Show names and values as text. Tests and screen readers find each by its name. */
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
   * `draw(painter, width)` draws the base layer and returns its height; `mark(painter, width)` draws the marks.
   * `at(x, y, width)` returns the [operand, x, y] under a point. `on` lists the state keys that `draw` depends on.
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

  /** Size a canvas to `height` pixels at the screen's resolution, and return its painter. */
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
    // Drawing determines the height, so draw once without output.
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

/** Update the text at once and the pictures in the next frame; redraw only the base layers that changed. */
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

/** Return the geometry of a grid that begins at (left, top): `x` and `y` of a cell, and the inverse `at`. */
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

/** Paint the cells of a grid; adjacent cells of a row with the same color form one box. */
function painted(painter, grid, rows, columns, color) {
  for (let row = 0; row < rows; row += 1) {
    let begin = 0;
    let current = color(row, 0);
    for (let column = 1; column <= columns; column += 1) {
      const next = column < columns ? color(row, column) : null;
      if (next === current) continue;
      if (current) {
        // Round to pixels, so that no seam shows between neighbors.
        const [left, top] = [Math.round(grid.x(begin)), Math.round(grid.y(row))];
        painter.rect(left, top, Math.round(grid.x(column)) - left, Math.round(grid.y(row + 1)) - top, { fill: current });
      }
      begin = column;
      current = next;
    }
  }
}

/** Number every `rowStep`-th row on the left and every `columnStep`-th column above the grid. */
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
