"use strict";
// A click on a column sorts its table: numbers first, missing values last.
for (const table of document.querySelectorAll("table.sortable")) {
  const columns = [...table.tHead.rows[0].cells];
  columns.forEach((column, index) => column.firstElementChild.addEventListener("click", () => {
    const current = column.getAttribute("aria-sort");
    const descending = current === "none" ? index > 0 : current === "ascending";
    const body = table.tBodies[0];
    const key = (row) => index ? row.cells[index].dataset.value : row.cells[0].textContent;
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = index ? x - y : x.localeCompare(y);
      return descending ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
    columns.forEach((other) => other.setAttribute("aria-sort", "none"));
    column.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }));
}
// A cell of a heat map shows a tooltip when the pointer or the arrow keys reach it.
const tip = document.getElementById("tip");
const WITH_VALUE = "tbody td[class^=h]";
let at = null;
function showTip(cell) {
  if (at) at.classList.remove("at");
  at = cell && cell.closest(WITH_VALUE);
  tip.hidden = !at;
  if (!at) return;
  if (at.title) { at.dataset.exact = at.title; at.removeAttribute("title"); }  // or the browser shows it as well
  const map = at.closest("table");
  const names = { row: at.parentNode.cells[0].textContent, column: map.tHead.rows[0].cells[at.cellIndex].textContent };
  tip.textContent = map.dataset.sentence.replace(/\{(row|column)\}/g, (_, name) => names[name]) + ": " + (at.dataset.exact ?? at.textContent.replace("±", " ± "));
  at.classList.add("at");
  placeTip();
}
function placeTip() {
  const box = at.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = (box.top > tip.offsetHeight + 8 ? box.top - tip.offsetHeight - 5 : box.bottom + 5) + "px";
}
function next(rows, from, [down, right]) {  // skips empty cells
  let [row, column] = [from.parentNode.sectionRowIndex, from.cellIndex], cell;
  do cell = rows[row += down]?.cells[column += right];
  while (cell ? !cell.matches(WITH_VALUE) : down && rows[row]);  // a row ends with its last value
  return cell;
}
const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
for (const map of document.querySelectorAll("table.heat")) {
  map.addEventListener("pointerover", (event) => showTip(event.target));
  map.addEventListener("pointerleave", () => showTip(null));
  map.addEventListener("blur", () => showTip(null));
  map.addEventListener("keydown", (event) => {
    if (event.key === "Escape") showTip(null);
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const cell = at && map.contains(at) ? next(map.tBodies[0].rows, at, step) : map.querySelector(WITH_VALUE);
    if (cell) { cell.scrollIntoView({ block: "nearest", inline: "nearest" }); showTip(cell); }
  });
}
addEventListener("scroll", () => at && placeTip(), { passive: true, capture: true });
// A part that is wider than the screen says so, and fades at the side where it goes on.
function hint(part) {
  const hidden = part.scrollWidth - part.clientWidth;
  if (hidden <= 1) part.removeAttribute("data-hint");
  else part.dataset.hint = part.scrollLeft < hidden - 1 ? "more" : "end";
}
const resized = new ResizeObserver((entries) => entries.forEach((entry) => hint(entry.target)));
for (const part of document.querySelectorAll(".scroll")) {
  resized.observe(part);
  part.addEventListener("scroll", () => hint(part), { passive: true });
}
// Pointing at a name in a legend dims the other series.
for (const button of document.querySelectorAll(".legend button")) {
  const chart = button.closest("figure");
  const pick = (on) => {
    chart.classList.toggle("pick", on);
    for (const part of chart.querySelectorAll(`[data-series="${button.dataset.for}"], [data-spread="${button.dataset.for}"]`)) part.classList.toggle("on", on);
  };
  for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => pick(true));
  for (const name of ["pointerleave", "blur"]) button.addEventListener(name, () => pick(false));
}
// The filter hides the benchmarks and methods that are not checked.
const filter = document.getElementById("filter");
function applyFilter() {
  const hidden = new Set([...filter.elements].filter((box) => box.name && !box.checked).map((box) => `${box.name} ${box.value}`));
  for (const name of ["benchmark", "method"]) {
    for (const part of document.querySelectorAll(`[data-${name}]`)) part.toggleAttribute("data-away", hidden.has(`${name} ${part.dataset[name]}`));
  }
  for (const button of document.querySelectorAll(".legend button")) {
    const away = button.parentNode.hasAttribute("data-away");
    for (const part of button.closest("figure").querySelectorAll(`[data-series="${button.dataset.for}"], [data-spread="${button.dataset.for}"]`)) part.toggleAttribute("data-away", away);
  }
}
if (filter) filter.addEventListener("change", applyFilter);
// A link to a folded section unfolds it.
function unfold() {
  const fold = document.getElementById(location.hash.slice(1))?.querySelector(":scope > details.fold");
  if (fold) fold.open = true;
}
addEventListener("hashchange", unfold);
unfold();
// Everything is unfolded for printing.
const folded = document.querySelectorAll("details.method, details.fold");
addEventListener("beforeprint", () => folded.forEach((part) => { part.dataset.was = part.open ? "open" : ""; part.open = true; }));
addEventListener("afterprint", () => folded.forEach((part) => { part.open = part.dataset.was === "open"; }));
if (innerWidth < 1100) document.getElementById("contents").open = false;
