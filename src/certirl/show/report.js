"use strict";
// Reads the numbers of a picture at the pointer, or by arrow keys. All words and numbers come from the page itself.
(() => {
  const readings = JSON.parse(document.getElementById("readings").textContent);
  const make = (parent, tag, name) => {
    const element = parent.appendChild(document.createElement(tag));
    element.className = name;
    return element;
  };
  const nearest = (places, share) =>
    places.reduce((best, place, at) => (Math.abs(place - share) < Math.abs(places[best] - share) ? at : best), 0);
  const percent = (share) => `${100 * share}%`;

  for (const [name, { head, rows, x, y, names, area }] of Object.entries(readings)) {
    const plot = document.getElementById(name);
    const isMap = y.length > 0;
    const at = { x: Math.floor(x.length / 2), y: Math.floor(y.length / 2) };
    const mark = make(plot, "div", isMap ? "spot" : "guide");
    const probe = make(plot, "div", "probe");
    const box = make(plot, "div", "readout");
    const [left, top, width, height] = area;
    Object.assign(probe.style, { left: percent(left), top: percent(top), width: percent(width), height: percent(height) });
    if (!isMap) Object.assign(mark.style, { top: percent(top), height: percent(height) });
    mark.hidden = box.hidden = true;
    box.setAttribute("aria-hidden", "true"); // its words are those of the slider
    for (const [key, value] of Object.entries({
      role: "slider", tabindex: "0", "aria-label": `Numbers of: ${plot.dataset.title}`,
      "aria-valuemin": "0", "aria-valuemax": String((isMap ? x.length * y.length : x.length) - 1),
    })) probe.setAttribute(key, value);

    const pairs = () => isMap
      ? [[head[0], names[0][at.x]], [head[1], names[1][at.y]], [head[2], rows[at.y][at.x]]]
      : head.map((word, column) => [word, rows[at.x][column]]).filter(([, words]) => words !== "" && words !== "–");
    const tell = () => {
      probe.setAttribute("aria-valuenow", String(isMap ? at.y * x.length + at.x : at.x));
      probe.setAttribute("aria-valuetext", pairs().map((pair) => pair.join(" ")).join("; "));
    };
    const show = () => {
      tell();
      box.replaceChildren();
      for (const [word, value] of pairs()) {
        const line = make(box, "span", "");
        line.append(`${word}: `);
        make(line, "b", "").textContent = value;
      }
      mark.hidden = box.hidden = false;
      mark.style.left = percent(x[at.x]);
      if (isMap) mark.style.top = percent(y[at.y]);
      const onRight = x[at.x] < 0.5;
      box.style.left = onRight ? `calc(${percent(x[at.x])} + 12px)` : "auto";
      box.style.right = onRight ? "auto" : `calc(${percent(1 - x[at.x])} + 12px)`;
      box.style.top = isMap && y[at.y] > 0.5 ? "auto" : percent(isMap ? y[at.y] : top + 0.02);
      box.style.bottom = isMap && y[at.y] > 0.5 ? percent(1 - y[at.y]) : "auto";
    };
    const hide = () => { mark.hidden = box.hidden = true; };

    tell();
    const follow = (event) => {
      const place = plot.getBoundingClientRect();
      at.x = nearest(x, (event.clientX - place.left) / place.width);
      if (isMap) at.y = nearest(y, (event.clientY - place.top) / place.height);
      show();
    };
    probe.addEventListener("pointermove", follow);
    probe.addEventListener("pointerdown", follow);
    probe.addEventListener("pointerleave", () => { if (document.activeElement !== probe) hide(); });
    probe.addEventListener("focus", () => { if (probe.matches(":focus-visible")) show(); });
    probe.addEventListener("blur", hide);
    probe.addEventListener("keydown", (event) => {
      const size = event.shiftKey ? 10 : 1;
      const steps = {
        ArrowLeft: [-size, 0], ArrowRight: [size, 0], ArrowUp: isMap ? [0, size] : [size, 0],
        ArrowDown: isMap ? [0, -size] : [-size, 0], PageUp: [10, 0], PageDown: [-10, 0],
        Home: [-x.length, 0], End: [x.length, 0],
      };
      if (event.key === "Escape") hide();
      if (!(event.key in steps)) return;
      event.preventDefault();
      const limit = (value, count) => Math.min(Math.max(value, 0), count - 1);
      at.x = limit(at.x + steps[event.key][0], x.length);
      if (isMap) at.y = limit(at.y + steps[event.key][1], y.length);
      show();
    });
  }
})();
