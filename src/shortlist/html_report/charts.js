// Charts: the curves of all methods, and the set sizes of the selected method.

// Curves. The axes are log(mean size) and -log10(1 - accuracy).

const CAP = 3.3;
const nines = (a) => Math.min(CAP, -Math.log10(Math.max(1 - a, 1e-9)));
const TICKS_Y = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 1];
const STEPS = [1, 1.5, 2, 3, 5, 7];
const FINE_STEPS = [1, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];

function drawCurves() {
  const box = byId("curves");
  const wide = printing ? 440 : Math.max(box.clientWidth, 260);
  const high = Math.round(Math.min(430, Math.max(300, wide * 0.62)));
  const pad = { left: 64, right: 14, top: 10, bottom: 42 };
  const lowest = Math.max(
    data.accuracies[0],
    Math.min(...data.methods.map((m) => m.curve[1][0])) - 0.01
  );
  const ends = data.methods.map((m) => {
    const reached = m.size.filter((s) => s !== null);
    return reached.length ? reached[reached.length - 1] : m.curve[0][m.curve[0].length - 1];
  });
  const starts = data.methods.map((m) => m.curve[0][0]);
  const from = Math.log(Math.min(...starts) * 0.98);
  const to = Math.max(Math.log(Math.max(...ends)), from + 0.05) * 1.01;
  const x = (size) =>
    pad.left + ((Math.log(size) - from) / (to - from)) * (wide - pad.left - pad.right);
  const y = (a) =>
    high - pad.bottom -
    ((nines(a) - nines(lowest)) / (CAP - nines(lowest))) * (high - pad.top - pad.bottom);
  const root = make("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img" });
  root.setAttribute("aria-labelledby", "curves-title");
  drawAxes(root, { x, y, wide, high, pad, lowest, from, to });
  const order = data.methods.map((_, i) => i).filter((i) => i !== state.method);
  order.push(state.method);
  for (const i of order) drawBand(root, i, x, y, lowest, wide - pad.right);
  for (const i of order) drawLine(root, i, x, y, wide - pad.right, high - pad.bottom);
  const level = y(data.accuracies[state.target]);
  root.append(
    make("line", { x1: pad.left, x2: wide - pad.right, y1: level, y2: level, class: "level" })
  );
  for (const i of order) {
    const size = data.methods[i].size[state.target];
    if (size === null || x(size) > wide - pad.right + 1) continue;
    const mine = i === state.method;
    root.append(
      make("circle", { cx: x(size), cy: level, r: mine ? 6 : 3.5, class: `dot c${i % 8}` })
    );
  }
  const point = pointOf(data.methods[state.method], state.target);
  if (point && point.guaranteed) {
    const px = x(Math.max(point.labels / data.nTest, 1e-9));
    const py = y(point.hits / data.nTest);
    if (px >= pad.left - 1 && px <= wide - pad.right + 1 && py <= high - pad.bottom + 1)
      root.append(
        make("path", {
          d: `M${px - 7},${py}L${px},${py - 7}L${px + 7},${py}L${px},${py + 7}Z`,
          class: `diamond c${state.method % 8}`,
        })
      );
  }
  box.replaceChildren(root);
}

function drawAxes(root, { x, y, wide, high, pad, lowest, from, to }) {
  const bottom = high - pad.bottom;
  let last = Infinity;
  for (const a of TICKS_Y) {
    if (a < lowest || last - y(a) < 16) continue;
    last = y(a);
    root.append(
      make("line", { x1: pad.left, x2: wide - pad.right, y1: y(a), y2: y(a), class: "grid" }),
      make("text", { x: pad.left - 6, y: y(a) + 4, class: "tick end" },
        `${+(100 * a).toFixed(1)}%`)
    );
  }
  let place = -Infinity;
  const room = Math.min(52, wide / 8);
  const steps = to - from > Math.log(12) ? STEPS : FINE_STEPS;
  for (let power = 1; power < 1e7; power *= 10)
    for (const step of steps) {
      const size = +(power * step).toPrecision(3);
      if (Math.log(size) > to) break;
      if (x(size) < pad.left - 1 || x(size) - place < room) continue;
      place = x(size);
      root.append(
        make("line", { x1: place, x2: place, y1: pad.top, y2: bottom, class: "grid" }),
        make("text", { x: place, y: bottom + 16, class: "tick middle" }, count(size))
      );
    }
  root.append(
    make("text", { x: (pad.left + wide) / 2, y: high - 6, class: "tick middle" },
      "mean set size"),
    make("text", { x: -(pad.top + bottom) / 2, y: 12, class: "tick middle",
      transform: "rotate(-90)" }, "accuracy"),
    make("line", { x1: pad.left, x2: wide - pad.right, y1: bottom, y2: bottom, class: "axis" })
  );
}

function drawBand(root, i, x, y, lowest, right) {
  const { low, high } = data.methods[i];
  const left = [];
  const back = [];
  data.accuracies.forEach((a, k) => {
    if (a < lowest || low[k] === null) return;
    left.push(`${Math.min(x(low[k]), right).toFixed(1)},${y(a).toFixed(1)}`);
    const end = high[k] === null ? right : Math.min(x(high[k]), right);
    back.unshift(`${end.toFixed(1)},${y(a).toFixed(1)}`);
  });
  if (left.length < 2) return;
  const mine = i === state.method ? " mine" : "";
  root.append(
    make("path", { d: `M${[...left, ...back].join("L")}Z`, class: `band c${i % 8}${mine}` })
  );
}

function drawLine(root, i, x, y, right, bottom) {
  const [sizes, accuracies] = data.methods[i].curve;
  const path = [];
  let above = false; // The rest of the curve is above the chart.
  const add = (size, a) => {
    if (above) return;
    path.push(`${Math.min(x(size), right).toFixed(1)},${Math.min(y(a), bottom).toFixed(1)}`);
    above = nines(a) >= CAP;
  };
  for (let k = 0; k < sizes.length; k++) {
    // Between two points, a curve is linear in size and accuracy, but not on these axes.
    const across = k && x(sizes[k]) - x(sizes[k - 1]);
    const far = Math.hypot(across, k && y(accuracies[k]) - y(accuracies[k - 1]));
    for (let part = 8 / far; part < 1; part += 8 / far)
      add(
        sizes[k - 1] + part * (sizes[k] - sizes[k - 1]),
        accuracies[k - 1] + part * (accuracies[k] - accuracies[k - 1])
      );
    add(sizes[k], accuracies[k]);
  }
  const mine = i === state.method ? " mine" : "";
  root.append(
    make(
      "path",
      { d: `M${path.join("L")}`, class: `line c${i % 8} d${dash(i)}${mine}` },
      make("title", {}, data.methods[i].name)
    )
  );
}

// Set sizes

const binName = ([low, high]) => (low === high ? count(low) : `${count(low)}–${count(high)}`);

function drawSizes(point) {
  const box = byId("sizes");
  const wide = printing ? 320 : Math.max(box.clientWidth, 240);
  const high = 230;
  const pad = { left: 8, right: 8, top: 22, bottom: 42 };
  const root = make("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img" });
  if (!point) {
    box.replaceChildren(make("p", { class: "none" }, "The sets are not known."));
    return;
  }
  const shares = point.counts.map((n) => n / data.nTest);
  const top = Math.max(...shares);
  const step = (wide - pad.left - pad.right) / shares.length;
  let named = -Infinity;
  const spoken = [];
  shares.forEach((share, k) => {
    const tall = (share / top) * (high - pad.top - pad.bottom);
    const left = pad.left + k * step;
    const middle = left + step / 2;
    root.append(
      make("rect", {
        x: left + step * 0.08,
        y: high - pad.bottom - tall,
        width: step * 0.84,
        height: tall,
        class: `bar c${state.method % 8}`,
        "data-rows": point.counts[k],
      })
    );
    if (step >= 34 && point.counts[k])
      root.append(
        make("text", { x: middle, y: high - pad.bottom - tall - 5, class: "tick middle" },
          share < 0.0005 ? "<0.1%" : percent(share, share < 0.0995 ? 1 : 0))
      );
    const name = binName(data.bins[k]);
    if (middle - named >= 5 + 7 * name.length) {
      named = middle;
      root.append(make("text", { x: middle, y: high - 24, class: "tick middle" }, name));
    }
    if (point.counts[k]) spoken.push(`${name}: ${percent(share, 1)}`);
  });
  root.append(
    make("text", { x: wide / 2, y: high - 4, class: "tick middle" }, "set size"),
    make("line", {
      x1: pad.left, x2: wide - pad.right, y1: high - pad.bottom, y2: high - pad.bottom,
      class: "axis",
    })
  );
  root.setAttribute("aria-label", `Share of sets by size. ${spoken.join(", ")}`);
  box.replaceChildren(root);
}
