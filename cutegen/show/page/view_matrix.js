// One matrix of ldmatrix, without and with .trans side by side: the same 8 rows, received by different lanes.

/** Return the row and column of the followed element within the matrix that its load reads, or null. */
function inMatrix() {
  if (state.operand === "c") return null;
  const operand = operands[state.operand];
  if (!operand.copied || !operand.loads.ldmatrix) return null;
  const found = way();
  const at = operand.element(operand.addressOf(found.holder.load, found.holder.warp, found.lane));
  const column = operand.major === 1 ? state.y - at[1] : state.x - at[0];
  const forms = data.matrix[state.operand];
  return { row: found.lane % forms[0].rows, column };
}

function matrixView() {
  const formsNow = () => data.matrix[followed().name.toLowerCase()] || Object.values(data.matrix)[0];
  const geometry = (width) => {
    const forms = formsNow();
    const room = (width - 36 - 24 * (forms.length - 1)) / forms.length;
    const grids = forms.map((form, i) => cells(30 + i * (room + 24), 40, (room - 4) / form.columns, clamp(300 / form.rows, 16, 30)));
    return { forms, grids, height: Math.max(...forms.map((form, i) => grids[i].y(form.rows))) + 8 };
  };
  new View({
    id: "matrix",
    title: "ldmatrix, N and T",
    note: "One matrix: lanes address its rows of 16 bytes; each cell shows the lane that receives the element. With .trans, a register holds neighbors in a column.",
    on: ["all", "operand"],
    draw(painter, width) {
      const { forms, grids, height } = geometry(width);
      forms.forEach((form, i) => {
        const grid = grids[i];
        const title = form.transpose ? "T: ldmatrix.trans" : "N: ldmatrix";
        painter.text(grid.x(0), 10, `${title}${form.used ? ", in use" : ""}`, { bold: true, size: 12 });
        for (let row = 0; row < form.rows; row += 1) {
          painter.text(grid.x(0) - 5, grid.y(row + 0.5), row, { size: 10, fill: palette.soft, align: "end" });
          for (let column = 0; column < form.columns; column += 1) {
            const lane = Math.floor(form.holder[row][column] / form.values);
            const value = form.holder[row][column] % form.values;
            painter.rect(grid.x(column), grid.y(row), grid.width - 1, grid.height - 1, { fill: hue(Math.floor(lane / 4), lane % 4, 4) });
            const label = grid.width > 34 ? `${lane}.${value}` : `${lane}`;
            painter.text(grid.x(column + 0.5), grid.y(row + 0.5), label, { size: clamp(grid.width / 4, 7, 11), align: "middle" });
          }
        }
        painter.text(grid.x(0), 27, "lane.value", { size: 10, fill: palette.soft });
      });
      return height;
    },
    mark(painter, width) {
      const place = inMatrix();
      if (!place) return;
      const { forms, grids } = geometry(width);
      forms.forEach((form, i) => {
        if (!within(place.row, form.rows) || !within(place.column, form.columns)) return;
        const grid = grids[i];
        framed(painter, grid.x(place.column), grid.y(place.row), grid.width - 1, grid.height - 1, 2.5);
      });
    },
    words() {
      const place = inMatrix();
      if (!place) return [];
      return [
        ["matrix-row", "row in the matrix", place.row],
        ["matrix-element", "element in the row", place.column],
        ...formsNow().map((form) => {
          const holder = form.holder[place.row][place.column];
          const name = form.transpose ? "matrix-t" : "matrix-n";
          const label = form.transpose ? "T loads it into" : "N loads it into";
          return [name, label, `lane ${Math.floor(holder / form.values)}, value ${holder % form.values}`];
        }),
      ];
    },
  });
}
