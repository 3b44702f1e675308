const input = document.getElementById("thread");
const held = document.getElementById("held");
const cells = [...document.querySelectorAll("td[data-of]")].map((cell) => ({
  cell,
  row: cell.parentElement.rowIndex - 1,
  column: cell.cellIndex - 1,
  of: cell.dataset.of.split(" ").map((pair) => pair.split(":").map(Number)),
}));

function follow(thread) {
  const found = [];
  for (const each of cells) {
    const pair = each.of.find(([of]) => of === thread);
    each.cell.classList.toggle("held", pair !== undefined);
    if (pair !== undefined) found.push([pair[1], each]);
  }
  found.sort(([a], [b]) => a - b);
  held.textContent = found.map(([value, { row, column }]) => `V${value} (${row}, ${column})`).join("  ");
}

function choose(event) {
  const cell = event.target.closest("td[data-of]");
  if (cell === null) return;
  input.value = cell.dataset.of.split(":")[0];
  follow(Number(input.value));
}

input.addEventListener("input", () => follow(Number(input.value)));
document.getElementById("tile").addEventListener("click", choose);
document.getElementById("tile").addEventListener("focusin", choose);
follow(Number(input.value));
