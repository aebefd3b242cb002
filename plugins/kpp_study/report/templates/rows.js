"use strict";
// The table of explained rows: sort, search, and show the waterfall of a row. Without this script everything is there.
(() => {
  const table = document.querySelector("table.rows");
  if (!table) return;
  document.documentElement.classList.add("js");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headers = [...table.querySelectorAll("th.sort")];
  const status = document.querySelector(".rows-status");

  const text = (row, header) => row.cells[Number(header.dataset.column)].textContent.trim();
  const toNumber = (shown) => parseFloat(shown.replace(/\u2212/g, "-").replace(/,/g, ""));

  function compare(a, b, header, sign) {
    const [left, right] = [text(a, header), text(b, header)];
    if (!header.classList.contains("number")) return sign * left.localeCompare(right, undefined, { numeric: true });
    const [x, y] = [toNumber(left), toNumber(right)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (x - y);
  }

  function sortBy(header) {
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headers.forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    body.append(...rows.sort((a, b) => compare(a, b, header, sign)));
    status.textContent = `Sorted by ${header.textContent.trim()}, ${direction}.`;
  }

  for (const header of headers) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(header));
    header.append(button);
  }

  const search = document.querySelector("input.search");
  const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  search.addEventListener("input", () => {
    const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !terms.every((term) => words.get(row).includes(term));
    const found = rows.filter((row) => !row.hidden).length;
    status.textContent = terms.length ? `${found} of ${rows.length} predictions match.` : "";
  });
  search.closest("[hidden]").hidden = false;

  function show(link) {
    const box = document.getElementById(link.hash.slice(1)).closest("details");
    box.open = true;
    box.querySelector("summary").focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
  }
  const links = new Map();
  for (const link of table.querySelectorAll("a.show")) {
    links.set(document.getElementById(link.hash.slice(1)).closest("details"), link);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(link);
    });
  }

  // A waterfall that its reader closes disappears, so the focus goes back to its row, or to the search if that is hidden.
  for (const [box, link] of links) {
    box.querySelector("summary").addEventListener("click", () => {
      if (box.open) setTimeout(() => (link.closest("tr").hidden ? search : link).focus());
    });
  }
  const target = document.getElementById(location.hash.slice(1))?.closest("details");
  if (target) target.open = true;

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...links.keys()].filter((box) => !box.open);
    closed.forEach((box) => { box.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((box) => { box.open = false; }));
})();
