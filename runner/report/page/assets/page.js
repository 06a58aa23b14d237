// Assembles the page: theme, blocks open initially, the table of all runs, printing.
const isDark = () => document.documentElement.dataset.theme === 'dark';
const toggle = document.getElementById('theme');
const preferred = matchMedia('(prefers-color-scheme: dark)');

function theme(name) {
  document.documentElement.dataset.theme = name;
  toggle.textContent = name === 'dark' ? 'Light colours' : 'Dark colours';
  redraw();
}

/** The reader's saved choice; not every browser has storage for pages from files. */
function chosen(value) {
  try {
    if (value) localStorage.setItem('dlscale-theme', value);
    return localStorage.getItem('dlscale-theme');
  } catch {
    return null;
  }
}

theme(chosen() ?? (preferred.matches ? 'dark' : 'light'));
preferred.addEventListener('change', (event) => chosen() ?? theme(event.matches ? 'dark' : 'light'));
toggle.addEventListener('click', () => theme(chosen(isDark() ? 'light' : 'dark') ?? (isDark() ? 'light' : 'dark')));
toggle.hidden = false;

const NOTES = 3; // shown above figures; if there are more, all are folded

function notesOf(block) {
  const notes = block.notes.map((note) => make('p', { class: 'note' }, note));
  return notes.length > NOTES ? [make('details', { class: 'folded' }, make('summary', {}, `${notes.length} notes on these figures`), ...notes)] : notes;
}

/** Fill a block when it is first shown. */
function fill(body) {
  const block = values.blocks[body.dataset.block];
  if (!block || body.children.length) return;
  body.append(...block.lines.map((line) => make('p', { class: 'lines' }, ...unbroken(line))), ...notesOf(block));
  if (block.figures.length) body.append(make('div', { class: 'figures' }, ...block.figures.map(figureElement)));
  if (block.empty) body.append(make('p', { class: 'empty' }, block.empty));
  for (const table of block.tables) {
    const parts = [dataTable({ caption: table.title, columns: table.columns, count: table.rows.length,
      cell: (line, column) => table.rows[line][column] || ABSENT }), table.legend ? make('p', { class: 'legend' }, ...unbroken(table.legend)) : ''];
    body.append(...(table.folded ? [make('details', { class: 'folded' }, make('summary', {}, table.title), ...parts)] : parts));
  }
  if (block.runs.length) body.append(make('p', { class: 'lines' }, `runs (${block.runs.length}): `, runButtons(block.runs)));
}

for (const body of document.querySelectorAll('.body[data-block]')) {
  const block = body.closest('details');
  if (!block || block.open) fill(body);
  block?.addEventListener('toggle', () => block.open && fill(body));
}

document.getElementById('all-runs').append(dataTable({ caption: 'All runs', columns: values.runs.columns, count: runCount,
  cell: (line, column) => runCell(column, line), filtered: values.runs.filtered, wide: true, shown: values.runs.shown }));

for (const said of document.querySelectorAll('.made, h2, h3, .lead')) said.replaceChildren(...unbroken(said.textContent));

function openLinked() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let one = target; one; one = one.parentElement) if (one.tagName === 'DETAILS') one.open = true;
  if (target) target.scrollIntoView();
  openNamed();
}
addEventListener('hashchange', openLinked);
openLinked();

// Print in light colours, including figures that were not scrolled to.
let kept;
addEventListener('beforeprint', () => {
  kept ??= document.documentElement.dataset.theme;
  theme('light');
  if (window.Plotly) {
    for (const plot of document.querySelectorAll('.plot')) if (!drawn.has(plot)) draw(window.Plotly, plot, waiting.get(plot));
  }
});
addEventListener('afterprint', () => {
  if (kept) theme(kept);
  kept = undefined;
});
