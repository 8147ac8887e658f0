// The parts of the page that depend on the slider: numbers, methods, classes and examples.

// Numbers

function showNumbers(method, point) {
  const asked = data.asked[state.target];
  show("asked", data.accuracies[state.target], asked);
  byId("of-method").textContent = method.name;
  if (!point) {
    for (const id of ["accuracy", "size", "single", "largest"]) show(id, "", "–");
    byId("error").textContent = "";
    const reached = method.size[state.target] !== null;
    byId("statement").textContent = reached
      ? `${asked} is not guaranteed. The sets are not stored for this many test rows; only the ` +
        "mean size that reaches this accuracy is known."
      : `The sets of ${method.name} do not reach ${asked} on the test rows.`;
    const what = reached ? "not guaranteed" : "not reached";
    slider.setAttribute("aria-valuetext", `${asked}: ${what}`);
    return;
  }
  const accuracy = point.hits / data.nTest;
  const size = point.labels / data.nTest;
  // One more hit and one more miss: without them, the error of 100% would be 0.
  const expected = (point.hits + 1) / (data.nTest + 2);
  const error = Math.sqrt((expected * (1 - expected)) / data.nTest);
  show("accuracy", accuracy, percent(accuracy, 2));
  byId("error").textContent = `± ${percent(error, 2)} standard error`;
  show("size", size, number(size));
  const ones = data.bins.findIndex(([low]) => low === 1);
  const single = point.counts[ones] / data.nTest;
  show("single", single, percent(single, 1));
  show("largest", point.largest, plural(point.largest, "label"));
  slider.setAttribute(
    "aria-valuetext",
    `${asked}: ${number(size)} labels on average with ${method.name}`
  );
  const rows = plural(data.nTest, "test row");
  byId("statement").textContent = point.guaranteed
    ? `${asked} is guaranteed ${method.guarantee}. The sets contain the true label for ` +
      `${percent(accuracy, 2)} of the ${rows}.`
    : (method.guarantee
        ? `${asked} cannot be guaranteed: there are too few calibration rows, or the largest ` +
          "sets miss too many true labels. "
        : `${method.name} has no guarantee. `) +
      `This page shows its smallest sets that reach ${asked} on the ${rows}.`;
}

// Methods

function buildMethods() {
  data.methods.forEach((method, i) => {
    const swatch = make(
      "svg",
      { class: "swatch", viewBox: "0 0 30 8", "aria-hidden": "true" },
      make("line", { x1: 0, x2: 30, y1: 4, y2: 4, class: `line c${i % 8} d${dash(i)}` })
    );
    const radio = make("input", { type: "radio", name: "method", value: i, id: `m${i}` });
    radio.addEventListener("change", () => {
      state.method = i;
      update();
    });
    byId("methods").append(
      make(
        "label",
        { for: `m${i}` },
        radio,
        swatch,
        make("bdi", { class: "name" }, method.name),
        make("output", { id: `s${i}`, class: "number" })
      )
    );
  });
}

function showMethods() {
  byId("at-asked").textContent = data.asked[state.target];
  data.methods.forEach((method, i) => {
    byId(`m${i}`).checked = i === state.method;
    const size = method.size[state.target];
    show(`s${i}`, size === null ? "" : size, size === null ? "–" : number(size));
  });
}

// Classes

const FEW = 10;

function showClasses(point) {
  const list = byId("classes");
  const more = byId("more");
  if (!point) {
    list.replaceChildren();
    more.hidden = true;
    return;
  }
  const rows = data.classes.map((label, k) => {
    const of = data.classRows[k];
    const hits = of - point.missed[k];
    return { name: data.names[label], hits, of, share: hits / of };
  });
  rows.sort((a, b) => a.share - b.share || b.of - a.of);
  const shown = state.all ? rows : rows.slice(0, FEW);
  const others = data.classRows.length - 1;
  if (data.classRows[others]) {
    const of = data.classRows[others];
    const hits = of - point.missed[others];
    shown.push({ name: data.others, hits, of, share: hits / of });
  }
  const asked = data.accuracies[state.target];
  const color = `c${state.method % 8}`;
  const longest = Math.max(...shown.map((row) => row.name.length));
  list.style.setProperty("--name", `${Math.min(9, 0.6 * longest + 0.4)}rem`);
  list.replaceChildren(
    ...shown.map((row) =>
      make(
        "li",
        {},
        make("bdi", { class: "name" }, row.name),
        make(
          "span",
          { class: "track", "aria-hidden": "true" },
          make("span", { class: `fill ${color}`, style: `width:${100 * row.share}%` }),
          make("span", { class: "mark", style: `left:${100 * asked}%` })
        ),
        make(
          "span",
          { class: "number", "data-hits": row.hits, "data-of": row.of },
          `${percent(row.share, 1)} `,
          make("small", {}, `${count(row.hits)} of ${count(row.of)}`)
        )
      )
    )
  );
  more.hidden = rows.length <= FEW;
  more.textContent = state.all ? "Show fewer" : `Show all ${count(rows.length)}`;
  more.setAttribute("aria-expanded", String(state.all));
}

// Examples

function showExamples(method, point) {
  const cards = data.examples.map(([name, label], e) => {
    const head = make("h3", {}, make("bdi", {}, name));
    const known = point && (point.sets || method.order);
    if (!known) return make("li", {}, head, make("p", { class: "none" }, "The set is not known."));
    const size = point.sizes[e];
    const labels = point.sets ? point.sets[e] : method.order[e].slice(0, size);
    const chips = labels.map((k) =>
      k === label
        ? make("li", { class: "right" }, make("bdi", {}, data.names[k]), " ✓")
        : make("li", {}, make("bdi", {}, data.names[k]))
    );
    if (size > labels.length)
      chips.push(make("li", { class: "rest" }, `and ${count(size - labels.length)} more`));
    const truth = make("p", {}, "true label: ", make("bdi", {}, data.names[label]));
    if (!point.contained[e]) truth.append(make("strong", { class: "miss" }, " ✗ not in the set"));
    else if (!labels.includes(label)) truth.append(" ✓ in the set, not shown");
    return make(
      "li",
      { "data-size": size },
      head,
      truth,
      make("ol", { class: "chips", "aria-label": plural(size, "label") }, ...chips)
    );
  });
  byId("examples").replaceChildren(...cards);
}

// The whole page

function update() {
  const method = data.methods[state.method];
  const point = pointOf(method, state.target);
  showNumbers(method, point);
  showMethods();
  showClasses(point);
  showExamples(method, point);
  draw();
}

function draw() {
  drawCurves();
  drawSizes(pointOf(data.methods[state.method], state.target));
}

function buildTicks() {
  const last = data.accuracies.length - 1;
  for (const a of [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999]) {
    const at = data.accuracies.indexOf(a);
    if (at < 0) continue;
    const tick = make("span", {}, data.asked[at]);
    tick.style.left = `${(100 * at) / last}%`;
    byId("ticks").append(tick);
  }
}

slider.max = data.accuracies.length - 1;
slider.value = state.target;
slider.addEventListener("input", () => {
  state.target = Number(slider.value);
  update();
});
byId("more").addEventListener("click", () => {
  state.all = !state.all;
  showClasses(pointOf(data.methods[state.method], state.target));
});
buildMethods();
buildTicks();
document.documentElement.classList.add("ready");
update();
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) {
    width = window.innerWidth;
    draw();
  }
});
for (const [event, on] of [["beforeprint", true], ["afterprint", false]])
  window.addEventListener(event, () => {
    printing = on;
    draw();
  });
