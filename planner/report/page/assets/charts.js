// The other charts. Each takes all data and the element that it fills, and returns its chart.

const LEGEND_LINE = 26;
const LETTER = 6.2, LABEL_LINE = 12; // pixels of a label of rows, of which long ones take several lines

function start(place, height) {
  place.style.height = `${height}px`;
  return echarts.init(place, null, { renderer: "canvas" });
}

function valueAxis(style, format, name) {
  return {
    type: "value", name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: style.faint }, splitNumber: 4,
    axisLabel: { color: style.faint, formatter: format, hideOverlap: true, alignMaxLabel: "right" },
    axisLine: { show: true, lineStyle: { color: style.line } }, splitLine: { lineStyle: { color: style.line, opacity: 0.6 } },
  };
}

function tip(style, format, trigger) {
  return {
    trigger, confine: true, backgroundColor: style.page, borderColor: style.line, textStyle: { color: style.ink },
    valueFormatter: (value) => (typeof value === "number" ? format(value) : "-"),
  };
}

function legend(style) {
  return { top: 0, left: 0, type: "plain", textStyle: { color: style.ink }, itemGap: 14 };
}

/** Horizontal bars, a row for each name; `marks` are drawn as lines across the rows, such as limits. */
function rows(place, { names, short_names: short, series, unit, stacked, marks, maximum, axis }) {
  const style = look(), narrow = place.clientWidth < 600, format = FORMATS[unit];
  if (marks && marks.values.every((value) => value === null)) marks = null;
  const shown = narrow ? short : names, labelWidth = narrow ? 110 : 240;
  const most = Math.max(0, ...shown.map((name) => Math.ceil((name.length * LETTER) / labelWidth)));
  const each = Math.max(22, LABEL_LINE * most + 6, 14 * (stacked ? 1 : series.length));
  const lines = series.length + (marks ? 1 : 0) > 1 ? Math.ceil((series.length + 1) / (narrow ? 2 : 6)) : 0;
  const chart = start(place, names.length * each + lines * LEGEND_LINE + 64);
  const bars = series.map(({ name, values, colour, hatched: lined }) => ({
    name, type: "bar", stack: stacked ? "all" : undefined, data: values, barMaxWidth: 18, barCategoryGap: "25%",
    itemStyle: { color: lined ? hatched(COLOURS[colour]) : COLOURS[colour] },
  }));
  if (marks) bars.push({
    name: marks.name, type: "scatter", data: marks.values, symbol: "rect", symbolSize: [3, Math.min(20, each - 3)], z: 5,
    itemStyle: { color: style.ink },
  });
  chart.setOption({
    animation: false, aria: { enabled: true },
    grid: { left: 4, right: narrow ? 28 : 40, top: lines * LEGEND_LINE + 6, bottom: 34, containLabel: true },
    legend: lines ? legend(style) : { show: false },
    tooltip: { ...tip(style, format, "axis"), axisPointer: { type: "shadow" } },
    xAxis: { ...valueAxis(style, format, axis), max: maximum ?? undefined, splitNumber: narrow ? 2 : 5 },
    yAxis: {
      type: "category", data: shown, inverse: true, axisTick: { show: false }, axisLine: { lineStyle: { color: style.line } },
      axisLabel: { color: style.ink, width: labelWidth, overflow: "break", interval: 0, fontSize: 11, ...(most > 1 && { lineHeight: LABEL_LINE }) },
    },
    series: bars,
  });
  return chart;
}

function memoryChart(data, place) {
  const style = look(), narrow = place.clientWidth < 600, choice = document.getElementById("lane");
  const total = data.total_s, chart = start(place, 300);
  if (!choice.options.length) {
    choice.append(...data.lanes.map((name, lane) => new Option(name, lane)));
    choice.value = data.fullest;
  }
  function view() {
    const zoom = (chart.getOption().dataZoom || [])[0] || { start: 0, end: 100 };
    return [(zoom.start / 100) * total, (zoom.end / 100) * total];
  }
  function show() {
    const lane = Number(choice.value), curve = data.memory[lane], limit = data.limits_bytes[lane];
    const points = sums(curve.step).map((tick, index) => [(tick / data.ticks) * total, curve.levels[curve.level[index]]]);
    points.push([total, points[points.length - 1][1]]);
    const line = { name: "memory", type: "line", step: "end", data: points, symbol: "none", lineStyle: { color: COLOURS.red, width: 1.5 },
      itemStyle: { color: COLOURS.red }, areaStyle: { color: COLOURS.red, opacity: 0.15 } };
    const top = limit === null ? null : { name: "limit", type: "line", data: [[0, limit], [total, limit]], symbol: "none",
      lineStyle: { color: style.ink, type: "dashed", width: 1.5 }, itemStyle: { color: style.ink } };
    chart.setOption({
      animation: false, aria: { enabled: true }, legend: legend(style),
      grid: { left: 4, right: 24, top: LEGEND_LINE + 8, bottom: 34, containLabel: true },
      tooltip: { ...tip(style, bytes, "axis"), axisPointer: { label: { formatter: ({ value }) => seconds(value) } } },
      xAxis: { ...valueAxis(style, seconds, "time, zoomed with the timeline"), min: 0, max: total || 1, splitNumber: narrow ? 3 : 8, splitLine: { show: false },
        axisLabel: { color: style.faint, formatter: (value) => (value === total ? seconds(value) : secondsAmong(value, view())), hideOverlap: true, showMaxLabel: true, alignMaxLabel: "right" } },
      yAxis: { ...valueAxis(style, bytes), min: 0 },
      dataZoom: [{ type: "inside", disabled: true, filterMode: "none" }],
      series: top ? [line, top] : [line],
    }, { replaceMerge: ["series"] });
  }
  choice.onchange = show;
  show();
  return chart;
}

function searchChart(data, place) {
  const style = look(), { seconds: at, best, bound, names, unit } = data.search, format = FORMATS[unit], chart = start(place, 320);
  const line = (name, values, colour, symbol) => ({
    name, type: "line", step: "end", data: values.map((value, index) => [at[index], value]), symbol, symbolSize: 7, showAllSymbol: true,
    lineStyle: { color: colour, width: 2 }, itemStyle: { color: colour },
  });
  const known = [...best, ...bound].filter((value) => value !== null), last = best[best.length - 1] ?? Math.max(...known);
  const lowest = Math.max(0, Math.min(...known.filter((value) => value >= last * 0.5), last));
  const highest = Math.max(...known.filter((value) => value <= last * 2)), room = Math.max(0.1 * (highest - lowest), 0.002 * highest);
  chart.setOption({
    animation: false, aria: { enabled: true }, legend: legend(style),
    grid: { left: 4, right: 24, top: LEGEND_LINE + 8, bottom: 34, containLabel: true },
    tooltip: { ...tip(style, format, "axis"), axisPointer: { label: { formatter: ({ value }) => seconds(value) } } },
    xAxis: { ...valueAxis(style, seconds, "of the search"), min: 0, max: at[at.length - 1] || 1, splitLine: { show: false },
      axisLabel: { color: style.faint, formatter: seconds, hideOverlap: true, alignMaxLabel: "right" } },
    yAxis: { ...valueAxis(style, format), min: Math.max(0, lowest - room), max: highest + room,
      axisLabel: { color: style.faint, formatter: format, showMinLabel: false, showMaxLabel: false } },
    series: [line(names[0], best, COLOURS.red, "circle"), line(names[1], bound, COLOURS.deep, "triangle")],
  });
  return chart;
}
