// What the rest of the script shares: the data, what is chosen, and how things are written.
// All numbers were computed before the page was written; here they are only looked up.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const slider = byId("target");
let printing = false; // then charts are drawn for paper, whatever the window's width
const state = { target: data.start, method: data.main, all: false };

const percent = (share, digits) => `${(100 * share).toFixed(digits)}%`;
const number = (x) => (x < 9.995 ? x.toFixed(2) : x < 99.95 ? x.toFixed(1) : x.toFixed(0));
const count = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

function make(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "circle", "rect", "text", "title"].includes(tag);
  const node = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A value as it is shown, with all of its digits beside it.
function show(id, value, text) {
  byId(id).textContent = text;
  byId(id).dataset.value = String(value);
}

// The dashes of a line, where colours come round again.
const dash = (i) => Math.floor(i / 8) % 3;

const pointOf = (method, target) => {
  const at = method.at[target];
  return at < 0 ? null : method.points[at];
};
