// Draw everything, and anew whenever colours or widths change.

const CHARTS = { memory: memoryChart, search: searchChart };

function drawAll(data, drawn) {
  for (const chart of Object.values(drawn)) chart.dispose();
  const draw = (name, chart) => {
    const place = document.getElementById(`${name}-chart`);
    if (place) drawn[name] = chart(place);
  };
  for (const [name, bars] of Object.entries(data.bars)) draw(name, (place) => rows(place, bars));
  for (const [name, chart] of Object.entries(CHARTS)) draw(name, (place) => chart(data, place));
  drawn.gantt = gantt(data, document.getElementById("gantt-chart"), (start, end) => {
    drawn.memory?.dispatchAction({ type: "dataZoom", start, end });
  });
}

function isDark() {
  const own = document.documentElement.dataset.scheme;
  return own ? own === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

async function main() {
  const data = await unpacked(JSON.parse(document.getElementById("data").textContent));
  const drawn = {}, scheme = document.getElementById("scheme");
  const redraw = () => {
    scheme.textContent = isDark() ? "Light" : "Dark";
    scheme.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    drawAll(data, drawn);
  };
  scheme.onclick = () => {
    document.documentElement.dataset.scheme = isDark() ? "light" : "dark";
    redraw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = document.body.clientWidth, waiting = 0;
  addEventListener("resize", () => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
  redraw();
  document.documentElement.dataset.drawn = "true";
}

main();
