// Tables that sort, filter and page. Only the rows of the current page are elements, however many there are.
const LINES = 50;
const FILTER_FROM = 13; // rows; a shorter table needs no filter
const LONG = 60; // characters from which a cell gets a minimum width
const MANY = 10; // columns from which that width and the gaps are smaller
let tables = 0;

/**
 * A table with its controls.
 * @param {object} of - caption, columns (names), count (rows), cell(line, column) → text, filtered (columns with a choice of values), wide
 *   (rows never wrap), shown (number of columns shown at first), runs(line) → indices of runs, shown in a last column; undefined for no such column.
 */
function dataTable(of) {
  const id = `t${++tables}`;
  const state = { column: -1, up: true, page: 0, query: '', chosen: new Map() };
  const numeric = of.columns.map((_, column) => isNumeric(of, column));
  const filters = of.wide || of.count >= FILTER_FROM;
  let lines = Array.from({ length: of.count }, (_, line) => line);
  const body = make('tbody');
  const heads = of.columns.map((name, column) => make('th', { scope: 'col', class: classOf(column), 'aria-sort': 'none' },
    make('button', { type: 'button', onclick: () => sortBy(column) }, name || ' ')));
  if (of.runs) heads.push(make('th', { scope: 'col' }, make('span', { class: 'plain' }, 'runs')));
  const said = make('span', { role: 'status', 'aria-live': 'polite', class: 'said' });
  const before = make('button', { type: 'button', onclick: () => turn(-1) }, 'Previous');
  const after = make('button', { type: 'button', onclick: () => turn(1) }, 'Next');
  const pages = make('div', { class: 'pages' }, said, before, after);

  function classOf(column, words = '') {
    return [numeric[column] ? 'figure' : words, column >= (of.shown ?? Infinity) ? 'more' : ''].filter(Boolean).join(' ') || undefined;
  }

  function arrange() {
    const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    lines = [];
    for (let line = 0; line < of.count; line++) {
      let kept = true;
      for (const [column, value] of state.chosen) kept &&= of.cell(line, column) === value;
      if (kept && words.length) {
        const text = of.columns.map((_, column) => of.cell(line, column)).join(' ').toLowerCase();
        kept = words.every((word) => text.includes(word));
      }
      if (kept) lines.push(line);
    }
    if (state.column >= 0) lines.sort(compare);
    state.page = 0;
    show();
  }

  function compare(one, other) {
    const [a, b] = [of.cell(one, state.column), of.cell(other, state.column)];
    if ((a === ABSENT) !== (b === ABSENT)) return a === ABSENT ? 1 : -1; // unknown values come last in either order
    const order = numeric[state.column] ? numberIn(a) - numberIn(b) : a.localeCompare(b, 'en', { numeric: true });
    return (state.up ? order : -order) || one - other;
  }

  function show() {
    const most = Math.max(0, Math.ceil(lines.length / LINES) - 1);
    state.page = Math.min(Math.max(state.page, 0), most);
    const from = state.page * LINES;
    const none = make('tr', {}, make('td', { colspan: heads.length }, 'No line has all of that: shorten the filter, or choose “all”.'));
    body.replaceChildren(...(lines.length || !of.count ? lines.slice(from, from + LINES).map(row) : [none]));
    const paged = lines.length > LINES;
    said.textContent = paged ? `${from + 1}–${Math.min(from + LINES, lines.length)} of ${lines.length.toLocaleString('en')}`
      : `${lines.length.toLocaleString('en')} of ${of.count.toLocaleString('en')}`;
    before.hidden = after.hidden = !paged;
    before.disabled = state.page === 0;
    after.disabled = state.page === most;
    pages.hidden = !filters;
  }

  function row(line) {
    const cells = of.columns.map((_, column) => {
      const text = of.cell(line, column);
      const words = /^[a-z ]+$/.test(text) ? text.replace(/ /g, '-') : false; // "does not hold" has its own colour
      const told = linked(text, of.wide);
      const long = text.length > LONG && typeof told[0] === 'string' ? 'long' : words;
      const absent = text === ABSENT ? ' absent' : '';
      return make('td', { role: 'cell', class: `${classOf(column, long || '') ?? ''}${absent}`.trim() || undefined, 'data-column': of.columns[column] },
        ...told);
    });
    if (of.runs) cells.push(make('td', { role: 'cell', 'data-column': 'runs' }, runButtons(of.runs(line))));
    return make('tr', { role: 'row' }, ...cells);
  }

  function sortBy(column) {
    state.up = state.column === column ? !state.up : !numeric[column]; // figures start with the largest
    state.column = column;
    heads.forEach((head, at) => at < of.columns.length
      && head.setAttribute('aria-sort', at !== column ? 'none' : state.up ? 'ascending' : 'descending'));
    arrange();
  }

  function turn(by) {
    state.page += by;
    show();
  }

  const controls = make('div', { class: 'controls' });
  if (filters) {
    controls.append(make('label', {}, 'Filter', make('input', { type: 'search', id: `${id}-filter`, autocomplete: 'off',
      oninput: (event) => { state.query = event.target.value; arrange(); } })));
    for (const column of of.filtered ?? []) controls.append(choice(column));
  }
  if (of.shown) {
    controls.append(make('button', { type: 'button', 'aria-pressed': 'false', onclick: (event) => {
      event.target.setAttribute('aria-pressed', String(table.classList.toggle('all')));
    } }, `All ${of.columns.length} columns`));
  }

  function choice(column) {
    const found = new Set(Array.from({ length: of.count }, (_, line) => of.cell(line, column)));
    if (found.size < 2) return '';
    const options = [...found].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    return make('label', {}, of.columns[column], make('select', {
      onchange: (event) => {
        const value = event.target.selectedOptions[0];
        if (value.index === 0) state.chosen.delete(column);
        else state.chosen.set(column, value.value);
        arrange();
      } }, make('option', { value: '' }, 'all'), ...options.map((value) => make('option', { value }, value))));
  }

  show();
  // Explicit roles, because a narrow window shows a row of many columns as a card, which a browser does not treat as a table.
  const table = make('table', { role: 'table', class: of.wide ? 'wide' : heads.length > 3 && `cards${heads.length < MANY ? '' : ' many'}` }, make('caption', {}, ...unbroken(of.caption)), make('thead', {}, make('tr', {}, ...heads)), body);
  // Focusable, so that keyboard users can scroll it.
  const scroll = make('div', { class: 'scroll', role: 'region', 'aria-label': of.caption, tabindex: '0' }, table);
  return make('div', { class: 'data', id }, controls, scroll, pages);
}

function isNumeric(of, column) {
  let known = 0;
  for (let line = 0; line < Math.min(of.count, 200); line++) {
    const text = of.cell(line, column);
    if (text === ABSENT || text === '') continue;
    if (Number.isNaN(numberIn(text))) return false;
    known++;
  }
  return known > 0;
}

/** A cell that is a run id, or a list of them, becomes buttons that open their panels; `long` writes the ids out. */
function linked(text, long) {
  const names = text.split(' ');
  return names.every((name) => runNamed.has(name)) ? [runButtons(names.map((name) => runNamed.get(name)), long)] : unbroken(text);
}

/** Buttons for the first three runs; the panel links to the others. */
function runButtons(runs, long = false) {
  const line = make('span', { class: 'runs' });
  runs.slice(0, 3).forEach((run, at) => line.append(at ? ' ' : '', make('button', {
    type: 'button', class: 'run', onclick: () => openPanel(runs, run), 'aria-label': long ? undefined : `run ${runCell(RUN, run)}`,
  }, long ? runCell(RUN, run) : `${at + 1}`)));
  if (runs.length > 3) line.append(` of ${runs.length}`);
  return line;
}
