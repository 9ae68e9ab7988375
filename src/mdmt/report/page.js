"use strict";
// Tables are sorted by a click on a head: numbers first, what is missing last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "none" ? column > 0 : head.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const key = (row) => column ? row.cells[column].dataset.value : row.cells[0].textContent;
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const less = column ? x - y : x.localeCompare(y);
      return down ? -less : less;
    };
    body.append(...[...body.rows].sort(order));
    heads.forEach((h) => h.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
// A cell of a heat map tells its sentence when it is pointed at, touched, or reached with the arrow keys.
const tip = document.getElementById("tip");
const TOLD = "tbody td[style]";
let at = null;
function tell(cell) {
  if (at) at.classList.remove("at");
  at = cell && cell.closest(TOLD);
  tip.hidden = !at;
  if (!at) return;
  if (at.title) { at.dataset.exact = at.title; at.removeAttribute("title"); }  // else the browser shows it a second time
  const map = at.closest("table");
  const names = { row: at.parentNode.cells[0].textContent, column: map.tHead.rows[0].cells[at.cellIndex].textContent };
  tip.textContent = map.dataset.sentence.replace(/\{(row|column)\}/g, (_, name) => names[name]) + ": " + (at.dataset.exact ?? at.textContent);
  at.classList.add("at");
  place();
}
function place() {
  const box = at.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = (box.top > tip.offsetHeight + 8 ? box.top - tip.offsetHeight - 5 : box.bottom + 5) + "px";
}
function next(rows, from, [down, right]) {  // empty cells are passed over
  let [row, column] = [from.parentNode.sectionRowIndex, from.cellIndex], cell;
  do cell = rows[row += down]?.cells[column += right];
  while (cell && !cell.matches(TOLD));
  return cell;
}
const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
for (const map of document.querySelectorAll("table.heat")) {
  map.addEventListener("pointerover", (event) => tell(event.target));
  map.addEventListener("pointerleave", () => tell(null));
  map.addEventListener("blur", () => tell(null));
  map.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tell(null);
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const cell = at && map.contains(at) ? next(map.tBodies[0].rows, at, step) : map.querySelector(TOLD);
    if (cell) { cell.scrollIntoView({ block: "nearest", inline: "nearest" }); tell(cell); }
  });
}
addEventListener("scroll", () => at && place(), { passive: true, capture: true });
// Pointing at a name in a legend dims the other lines.
for (const button of document.querySelectorAll(".legend button")) {
  const chart = button.closest("figure");
  const pick = (on) => {
    chart.classList.toggle("pick", on);
    for (const part of chart.querySelectorAll(`[data-series="${button.dataset.for}"], [data-spread="${button.dataset.for}"]`)) part.classList.toggle("on", on);
  };
  for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => pick(true));
  for (const name of ["pointerleave", "blur"]) button.addEventListener(name, () => pick(false));
}
// The filter hides what belongs to a benchmark or a method that is not wanted.
const filter = document.getElementById("filter");
function sift() {
  const unwanted = new Set([...filter.elements].filter((box) => box.name && !box.checked).map((box) => `${box.name} ${box.value}`));
  for (const name of ["benchmark", "method"]) {
    for (const part of document.querySelectorAll(`[data-${name}]`)) part.toggleAttribute("data-away", unwanted.has(`${name} ${part.dataset[name]}`));
  }
  for (const button of document.querySelectorAll(".legend button")) {
    const away = button.parentNode.hasAttribute("data-away");
    for (const part of button.closest("figure").querySelectorAll(`[data-series="${button.dataset.for}"], [data-spread="${button.dataset.for}"]`)) part.toggleAttribute("data-away", away);
  }
}
if (filter) filter.addEventListener("change", sift);
// A link to something folded unfolds it.
function unfold() {
  const fold = document.getElementById(location.hash.slice(1))?.querySelector(":scope > details.fold");
  if (fold) fold.open = true;
}
addEventListener("hashchange", unfold);
unfold();
// On paper everything is unfolded.
const methods = document.querySelectorAll("details.method, details.fold");
addEventListener("beforeprint", () => methods.forEach((method) => { method.dataset.was = method.open ? "open" : ""; method.open = true; }));
addEventListener("afterprint", () => methods.forEach((method) => { method.open = method.dataset.was === "open"; }));
if (innerWidth < 1100) document.getElementById("contents").open = false;
