'use strict';
// The page's values, and helpers that all other scripts use. Text is always set as text, never parsed as markup.
const values = JSON.parse(document.getElementById('values').textContent);
const ABSENT = '–';

/** An element with its attributes and children; strings become text nodes. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children);
  return element;
}

/** Text whose dates never wrap, even in a narrow window. */
const unbroken = (text) => text.split(/\b(\d{4}-\d\d-\d\d)\b/).map((part, at) => (at % 2 ? make('span', { class: 'whole' }, part) : part));

const columnOf = (name) => values.runs.columns.indexOf(name);
/** The text of a cell of the table of all runs. */
const runCell = (column, run) => values.strings[values.runs.cells[column][run]];
const runCount = values.runs.panels.length;
const RUN = columnOf('run');
const runNamed = new Map(Array.from({ length: runCount }, (_, run) => [runCell(RUN, run), run]));

const FIGURE = /^[≈<>×]?[-−+]?[\d.,]+( ± [\d.,]+)?( \(.*\)| of [\d.]+| \S[^()±]*\/s)?$/;
/** A figure as formatted in a cell ("6,525 ± 12", "≈3.8", "91.2 (80–99)", "47.7 ± 2.3 images/s") as a number; NaN for words. */
function numberIn(text) {
  return FIGURE.test(text) ? parseFloat(text.replace(/^[≈<>×+]/, '').replace('−', '-').replace(/,/g, '')) : NaN;
}

const written = (value) => (typeof value === 'number' ? value.toLocaleString('en', { maximumSignificantDigits: 6 }) : value ?? ABSENT);
