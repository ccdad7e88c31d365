// The timeline: a row of bars for each device group or stage, drawn as a few shapes, however many bars there are.

const BUTTON_STEP = 0.25; // part of what is shown by which a button moves it
const FINE = 2.5; // bars of fewer pixels on average are not hatched: the lines would hide the colours

const Bars = echarts.graphic.extendShape({
  shape: { boxes: [] },
  buildPath(pen, shape) {
    for (const [x, y, width, height] of shape.boxes) pen.rect(x, y, width, height);
  },
});
echarts.graphic.registerShape("bars", Bars);

/** The first bar that ends after that time. */
function firstAfter(lane, time) {
  let low = 0, high = lane.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.end[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}

function gantt(data, place, onZoom) {
  const style = look(), narrow = place.clientWidth < 600, total = data.total_s, tick = total / data.ticks;
  const lanes = data.gantt.map((lane) => {
    const start = sums(lane.step);
    return { ...lane, start: start.map((at) => at * tick), end: start.map((at, bar) => (at + lane.length[bar]) * tick) };
  });
  const plain = data.kinds.map(({ colour }) => colour);
  const fills = data.kinds.map((kind) => (kind.hatched ? hatched(kind.colour) : kind.colour));
  const names = narrow ? data.short_lanes : data.lanes;
  const laneHeight = lanes.length <= 12 ? 30 : lanes.length <= 32 ? 20 : 14;
  const left = Math.min(narrow ? 60 : 260, 24 + 7 * Math.max(...names.map((name) => name.length)));
  place.style.height = `${lanes.length * laneHeight + 100}px`;
  const chart = echarts.init(place, null, { renderer: "canvas" });
  let chosen = null;

  function renderLane(_, api) {
    const row = api.value(1), lane = lanes[row];
    const [from, middle] = api.coord([0, row]), [to] = api.coord([total, row]);
    const scale = (to - from) / (total || 1), at = (time) => from + time * scale;
    const height = Math.max(3, api.size([0, 1])[1] * 0.78), top = middle - height / 2;
    const fine = (total * scale) / lane.start.length < FINE;
    const shown = view(), boxes = data.kinds.map(() => []), critical = [], texts = [];
    for (let bar = firstAfter(lane, shown[0]); bar < lane.start.length && lane.start[bar] < shown[1]; bar++) {
      const x = Math.max(at(lane.start[bar]), at(shown[0])), end = Math.min(at(lane.end[bar]), at(shown[1]));
      const room = end - x, gap = room > 4 ? 1 : 0, own = boxes[lane.kind[bar]], last = own[own.length - 1];
      if (last && room < 1 && x - last[0] - last[2] < 0.1) last[2] = end - last[0];
      else own.push([x, top, Math.max(room - gap, 0.3), height]);
      if (lane.critical[bar]) critical.push([x, top + height, Math.max(room, 0.3), Math.max(1.5, height * 0.1)]);
      const number = String(Math.floor(lane.first[bar] / lane.samples[bar]));
      if (height > 10 && lane.kind[bar] < 2 && room > 8 + 7 * number.length) texts.push(label(number, x + room / 2, middle));
    }
    const idle = { type: "rect", shape: { x: at(shown[0]), y: top, width: at(shown[1]) - at(shown[0]), height }, style: { fill: style.bubble } };
    const shapes = boxes.map((own, kind) => ({ type: "bars", shape: { boxes: own }, style: { fill: (fine ? plain : fills)[kind] } }));
    const path = { type: "bars", shape: { boxes: critical }, style: { fill: style.ink } };
    const ends = lane.ends_s.filter((time) => time >= shown[0] && time <= shown[1]);
    const lines = { type: "bars", shape: { boxes: ends.map((time) => [at(time) - 0.75, middle - api.size([0, 1])[1] / 2, 1.5, api.size([0, 1])[1]]) }, style: { fill: style.ink } };
    return { type: "group", children: [idle, ...shapes, path, ...texts, lines, ...mark(row, lane, at, top, height)] };
  }

  function label(text, x, y) {
    return { type: "text", style: { text, x, y, align: "center", verticalAlign: "middle", fontSize: 10, fill: "#000", stroke: "#fff", lineWidth: 2 } };
  }

  function mark(row, lane, at, top, height) {
    if (!chosen || chosen.row !== row) return [];
    const x = at(lane.start[chosen.bar]), width = Math.max(2, at(lane.end[chosen.bar]) - x);
    return [{ type: "rect", shape: { x, y: top - 1, width, height: height + 2 }, style: { fill: "none", stroke: style.ink, lineWidth: 2.5 } }];
  }

  function view() {
    const zoom = chart.getOption().dataZoom[0];
    return [(zoom.start / 100) * total, (zoom.end / 100) * total];
  }

  chart.setOption({
    animation: false,
    grid: { left, right: 22, top: 8, bottom: 84 },
    xAxis: {
      type: "value", min: 0, max: total || 1, name: "time", nameLocation: "middle", nameGap: 26,
      nameTextStyle: { color: style.faint }, splitNumber: narrow ? 3 : 8,
      axisLabel: { color: style.faint, formatter: (value) => (value === total ? seconds(value) : secondsAmong(value, view())), hideOverlap: true, showMinLabel: true, showMaxLabel: true, alignMinLabel: "left", alignMaxLabel: "right" },
      axisLine: { lineStyle: { color: style.line } }, splitLine: { show: false },
    },
    yAxis: {
      type: "category", data: names, inverse: true, axisTick: { show: false }, axisLine: { show: false },
      axisLabel: { color: style.ink, fontSize: Math.min(12, laneHeight - 3), width: left - 14, overflow: "truncate", interval: 0 },
    },
    dataZoom: [
      { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, preventDefaultMouseMove: false, minSpan: 0.01 },
      { type: "slider", filterMode: "none", height: 26, bottom: 8, showDataShadow: false, labelFormatter: "", minSpan: 0.01, borderColor: style.line,
        fillerColor: "rgba(86, 180, 233, 0.25)" },
    ],
    series: [{ type: "custom", renderItem: renderLane, data: lanes.map((_, row) => [0, row]), silent: true, clip: true }],
  });

  function zoomTo(from, to) {
    const width = Math.min(100, Math.max(0.01, to - from)), start = Math.min(100 - width, Math.max(0, from));
    chart.dispatchAction({ type: "dataZoom", start, end: start + width });
  }
  function zoomBy(factor) {
    const { start, end } = chart.getOption().dataZoom[0], middle = chosen ? centre() : (start + end) / 2;
    zoomTo(middle - ((end - start) * factor) / 2, middle + ((end - start) * factor) / 2);
  }
  function moveBy(part) {
    const { start, end } = chart.getOption().dataZoom[0], step = (end - start) * part;
    zoomTo(start + step, end + step);
  }
  function centre() {
    const lane = lanes[chosen.row];
    return ((lane.start[chosen.bar] + lane.end[chosen.bar]) / 2 / total) * 100;
  }

  function tell(row, bar) {
    const lane = lanes[row], kind = lane.kind[bar], first = lane.first[bar], last = first + lane.samples[bar] - 1;
    const { name } = data.kinds[kind], { row: kindOfRow, unit } = data.words;
    const what = kind < 2 ? `${name} of ${unit}${last > first ? `s ${first} to ${last}` : ` ${first}`}` : name;
    const times = `${seconds(lane.end[bar] - lane.start[bar])}, from ${seconds(lane.start[bar])} to ${seconds(lane.end[bar])}`;
    const critical = lane.critical[bar] ? ", on the critical path" : "";
    const who = data.short_lanes[row].includes(",") ? `${lane.stage[bar]} (${data.lanes[row]})` : data.lanes[row];
    document.getElementById("gantt-readout").textContent = `${kindOfRow} ${who}: ${what}: ${times}${critical}`;
  }

  function choose(row, bar) {
    chosen = { row, bar };
    tell(row, bar);
    const [from, to] = view(), lane = lanes[row];
    if (lane.end[bar] < from || lane.start[bar] > to) {
      const half = ((to - from) / total) * 50;
      zoomTo(centre() - half, centre() + half);
    }
    redraw();
  }
  function redraw() {
    chart.setOption({ series: [{ data: lanes.map((_, row) => [0, row]) }] });
  }

  const key = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => change(1), ArrowUp: () => change(-1),
    "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoomTo(0, 100),
  };
  function step(by) {
    const { row, bar } = chosen || { row: 0, bar: firstAfter(lanes[0], view()[0]) - by };
    choose(row, Math.min(lanes[row].start.length - 1, Math.max(0, bar + by)));
  }
  function change(by) {
    const { row, bar } = chosen || { row: by > 0 ? -1 : 1, bar: null };
    const next = Math.min(lanes.length - 1, Math.max(0, row + by));
    const time = bar === null ? view()[0] : lanes[row].start[bar];
    choose(next, Math.min(lanes[next].start.length - 1, firstAfter(lanes[next], time)));
  }
  place.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !key[event.key]) return;
    event.preventDefault();
    key[event.key]();
  };
  chart.getZr().on("mousemove", (event) => {
    const [time, row] = chart.convertFromPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY]);
    const lane = lanes[row];
    if (!lane || time < 0 || time > total) return;
    const bar = firstAfter(lane, time);
    if (bar < lane.start.length && lane.start[bar] <= time) tell(row, bar);
    else document.getElementById("gantt-readout").textContent = `${data.words.row} ${data.lanes[row]}: ${data.words.idle} at ${seconds(time)}`;
  });
  chart.on("datazoom", () => {
    const { start, end } = chart.getOption().dataZoom[0];
    onZoom(start, end);
  });
  const buttons = {
    "zoom-in": () => zoomBy(0.5), "zoom-out": () => zoomBy(2), earlier: () => moveBy(-BUTTON_STEP), later: () => moveBy(BUTTON_STEP), whole: () => zoomTo(0, 100),
  };
  for (const [id, action] of Object.entries(buttons)) document.getElementById(id).onclick = action;
  ganttLegend(data);
  return chart;
}

function ganttLegend(data) {
  const striped = (colour) => `repeating-linear-gradient(135deg, ${colour} 0 4px, color-mix(in srgb, ${colour} 45%, black) 4px 5.5px)`;
  const used = new Set(data.gantt.flatMap((lane) => [...new Set(lane.kind)]));
  const entries = data.kinds.filter((_, kind) => used.has(kind)).map(({ name, colour, hatched: lines }) => [name, lines ? striped(colour) : colour]);
  entries.push([data.words.idle, "var(--bubble)"]);
  if (data.gantt.some((lane) => lane.critical.includes(1))) entries.push(["critical path", "linear-gradient(transparent 75%, var(--ink) 75%)"]);
  if (data.gantt.some((lane) => lane.ends_s.length)) entries.push(["end of a wave", "linear-gradient(90deg, transparent 45%, var(--ink) 45% 55%, transparent 55%)"]);
  const items = entries.map(([name, fill]) => {
    const item = document.createElement("li"), swatch = document.createElement("i");
    swatch.style.background = fill;
    item.append(swatch, name);
    return item;
  });
  document.getElementById("gantt-legend").replaceChildren(...items);
}
