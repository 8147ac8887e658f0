// What follows the slider: numbers, methods, classes and examples.

// Numbers

function showNumbers(method, point) {
  const asked = data.asked[state.target];
  show("asked", data.accuracies[state.target], asked);
  byId("of-method").textContent = method.name;
  if (!point) {
    for (const id of ["kept", "size", "single", "longest"]) show(id, "", "–");
    byId("error").textContent = "";
    const reached = method.size[state.target] !== null;
    byId("told").textContent = reached
      ? `${asked} is not guaranteed. With so many test rows, only the mean size that reaches it ` +
        "on them is known, not the lists."
      : `No lists of ${method.name} reach ${asked} on the test rows.`;
    const what = reached ? "not guaranteed" : "not reached";
    slider.setAttribute("aria-valuetext", `${asked}: ${what}`);
    return;
  }
  const kept = point.hits / data.rows;
  const size = point.labels / data.rows;
  const error = Math.sqrt((kept * (1 - kept)) / data.rows);
  show("kept", kept, percent(kept, 2));
  byId("error").textContent = `± ${percent(error, 2)} standard error`;
  show("size", size, number(size));
  const ones = data.bins.findIndex(([low]) => low === 1);
  const single = point.counts[ones] / data.rows;
  show("single", single, percent(single, 1));
  show("longest", point.longest, plural(point.longest, "label"));
  slider.setAttribute(
    "aria-valuetext",
    `${asked}: ${number(size)} labels on average with ${method.name}`
  );
  const rows = `of the ${plural(data.rows, "test row")}`;
  byId("told").textContent = point.guaranteed
    ? `${asked} is guaranteed ${method.guarantee}. The lists held the right label in ` +
      `${percent(kept, 2)} ${rows}.`
    : (method.guarantee
        ? `${asked} cannot be guaranteed: there are too few calibration rows, or the largest ` +
          "lists miss too many labels. "
        : `${method.name} guarantees nothing. `) +
      `Shown are its shortest lists that reach ${asked} ${rows}.`;
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
    const held = of - point.missed[k];
    return { name: data.names[label], held, of, share: held / of };
  });
  rows.sort((a, b) => a.share - b.share || b.of - a.of);
  const shown = state.all ? rows : rows.slice(0, FEW);
  const others = data.classRows.length - 1;
  if (data.classRows[others]) {
    const of = data.classRows[others];
    const held = of - point.missed[others];
    shown.push({ name: data.others, held, of, share: held / of });
  }
  const asked = data.accuracies[state.target];
  const colour = `c${state.method % 8}`;
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
          make("span", { class: `fill ${colour}`, style: `width:${100 * row.share}%` }),
          make("span", { class: "mark", style: `left:${100 * asked}%` })
        ),
        make(
          "span",
          { class: "number", "data-held": row.held, "data-of": row.of },
          `${percent(row.share, 1)} `,
          make("small", {}, `${count(row.held)} of ${count(row.of)}`)
        )
      )
    )
  );
  more.hidden = rows.length <= FEW;
  more.textContent = state.all ? "Show only the hardest" : `Show all ${count(rows.length)}`;
  more.setAttribute("aria-expanded", String(state.all));
}

// Examples

function showExamples(method, point) {
  const cards = data.examples.map(([name, label], e) => {
    const right = data.names[label];
    const head = make("h3", {}, make("bdi", {}, name));
    const known = point && (point.lists || method.order);
    if (!known) return make("li", {}, head, make("p", { class: "none" }, "No list to show."));
    const size = point.sizes[e];
    const listed = point.lists ? point.lists[e] : method.order[e].slice(0, size);
    const chips = listed.map((k) =>
      k === label
        ? make("li", { class: "right" }, make("bdi", {}, data.names[k]), " ✓")
        : make("li", {}, make("bdi", {}, data.names[k]))
    );
    if (size > listed.length)
      chips.push(make("li", { class: "rest" }, `and ${count(size - listed.length)} more`));
    const words = make("p", {}, "right: ", make("bdi", {}, right));
    if (!point.held[e]) words.append(make("strong", { class: "miss" }, " ✗ not on the list"));
    else if (!listed.includes(label)) words.append(" ✓ further down");
    return make(
      "li",
      { "data-size": size },
      head,
      words,
      make("ol", { class: "chips", "aria-label": plural(size, "label") }, ...chips)
    );
  });
  byId("examples").replaceChildren(...cards);
}

// All of it

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
