"use strict";
// Colours of Okabe and Ito (jfly.uni-koeln.de/color), distinguishable under every kind of colour vision.
const COLOURS = { blue: "#56B4E9", orange: "#E69F00", pink: "#CC79A7", green: "#009E73", red: "#D55E00", deep: "#0072B2" };

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function look() {
  return { page: css("--page"), ink: css("--ink"), faint: css("--faint"), line: css("--line"), bubble: css("--bubble") };
}

function four(value) {
  return String(Number(value.toPrecision(4)));
}

function scaled(value, units) {
  const [size, unit] = units.find(([least]) => Math.abs(value) >= least) || units[units.length - 1];
  return `${four(value / size)} ${unit}`;
}

function seconds(value) {
  return value === 0 ? "0" : scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]]);
}

/** A time on an axis that shows this range: all labels in one unit, with as many decimals as tell them apart. */
function secondsAmong(value, [from, to]) {
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]].find(([least]) => to >= least) || [1e-9, "ns"];
  const decimals = Math.min(9, Math.max(0, Math.ceil(Math.log10(size / ((to - from) || size)) + 1.3)));
  return value === 0 ? "0" : `${Number((value / size).toFixed(decimals))} ${unit}`;
}

function bytes(value) {
  return value === 0 ? "0" : scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
}

function percent(value) {
  return `${four(100 * value)} %`;
}

function rate(value) {
  return `${four(value)} samples/s`;
}

/** How values are written, by their unit. */
const FORMATS = { seconds, bytes, rate, share: percent };

/** Diagonal lines, so that colour is not all that tells bars apart. */
function hatched(colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = "rgba(0, 0, 0, 0.55)";
  pen.lineWidth = 1.5;
  for (const from of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(from, 8);
    pen.lineTo(from + 8, 0);
    pen.stroke();
  }
  return { image: tile, repeat: "repeat" };
}

/** Running sums: the data hold steps. */
function sums(steps) {
  let sum = 0;
  return steps.map((step) => (sum += step));
}

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
