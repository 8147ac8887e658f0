// Used by the other scripts: the data, the current selection, and the format of values.
// All numbers were computed when the page was written; the scripts only look them up.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const slider = byId("target");
let printing = false; // Charts are drawn for the width of the paper while the page is printed.
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

// Show a value as text, and store all of its digits in an attribute.
function show(id, value, text) {
  byId(id).textContent = text;
  byId(id).dataset.value = String(value);
}

// The dash pattern of a line. Colors repeat after eight methods, dash patterns after 24.
const dash = (i) => Math.floor(i / 8) % 3;

const pointOf = (method, target) => {
  const at = method.at[target];
  return at < 0 ? null : method.points[at];
};
