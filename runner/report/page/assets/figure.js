// Figures, drawn by Plotly when they first become visible. Plotly itself is decompressed for the first one.
const DARK_FOR = { '#000000': '#f0f0f0', '#0072B2': '#4aa3df' };
const SYMBOLS = ['circle', 'square', 'diamond', 'triangle-up', 'cross', 'x', 'star'];
let unpacked;

/** Plotly, decompressed from its source in this page. */
function library() {
  unpacked ??= (async () => {
    // It is at the end of the page, which may still be loading when the first figure becomes visible.
    if (document.readyState === 'loading') await new Promise((ready) => document.addEventListener('DOMContentLoaded', ready));
    const packed = Uint8Array.from(atob(document.getElementById('plotly').textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    document.head.append(make('script', {}, await new Response(stream).text()));
    return window.Plotly;
  })();
  return unpacked;
}

const drawn = new Map(); // plot element → its figure
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    const figure = waiting.get(entry.target);
    library().then((plotly) => draw(plotly, entry.target, figure));
  }
}, { rootMargin: '300px' });
const waiting = new WeakMap();

/** A figure with its caption, its values as a table, and its files. */
function figureElement(figure) {
  const plot = make('div', { class: 'plot', role: 'img', 'aria-label': `${figure.title}. ${figure.summary}` });
  plot.style.minHeight = `${heightOf(figure)}px`; // so that nothing shifts when it is drawn
  waiting.set(plot, figure);
  seen.observe(plot);
  const table = make('details', { ontoggle: (event) => event.target.open && event.target.children.length === 1
    && event.target.append(pointTable(figure)) }, make('summary', {}, 'Values as a table, with their runs'));
  const file = `${values.beside}/${encodeURIComponent(figure.name)}`;
  const caption = make('figcaption', {}, make('h4', {}, ...unbroken(figure.title)), make('p', { class: 'summary' }, figure.summary),
    figure.interval ? make('p', {}, `error bars: ${figure.interval}`) : '', ...(figure.notes ?? []).map((note) => make('p', {}, ...unbroken(note))));
  return make('figure', {}, caption, plot, table, make('p', { class: 'links' },
    ...(values.pictures ? [make('a', { href: `${file}.png` }, 'PNG')] : []), make('a', { href: `${file}.csv` }, 'CSV')));
}

const runsAt = (series, at) => (series.alike ? series.runs : series.runs?.[at]) ?? [];

/** A figure's values as a table, one row per point. */
function pointTable(figure) {
  const points = figure.series.filter((series) => series.kind !== 'ideal')
    .flatMap((series) => series.x.map((_, at) => [series, at])).filter(([series, at]) => series.y[at] !== null);
  const cells = [([series]) => (series.kind === 'published' ? `${series.name}, published` : series.name),
    ([series, at]) => written(series.x[at]), ([series, at]) => written(series.y[at]),
    ([series, at]) => written(series.low?.[at]), ([series, at]) => written(series.high?.[at])];
  const columns = ['series', figure.x, figure.y, 'from', 'to'];
  const shown = points.some(([series]) => series.low) ? columns.length : 3;
  return dataTable({ caption: figure.title, columns: columns.slice(0, shown), count: points.length,
    cell: (line, column) => cells[column](points[line]), runs: (line) => runsAt(...points[line]) });
}

/** A point as a sentence, with its unit: "2 GPUs: throughput is 713.2 images/s, 704 to 722 (95 % interval), from 3 runs." */
function sentence(figure, series, at) {
  const [, named, unit, rest] = /^(.*?) ?\(([^()]+)\)(.*)$/.exec(figure.y) ?? (figure.y.endsWith('/s') ? [0, 'throughput', figure.y, ''] : [0, figure.y, '', '']);
  const short = (number) => number.toLocaleString('en', { maximumSignificantDigits: 4 });
  const place = series.x[at];
  const where = typeof place === 'string' ? place : /s\b/.test(figure.x.split(' of ')[0])
    ? `${short(place)} ${place === 1 ? figure.x.replace(/s$/, '') : figure.x}` : `${figure.x} ${short(place)}`;
  const who = series.kind === 'measured' && figure.series.length < 3 ? '' : `${series.name}${series.kind === 'published' ? ', published' : ''}: `;
  const ends = series.low?.[at] == null ? '' : `, ${short(series.low[at])} to ${short(series.high[at])} (95 % interval)`;
  const count = series.alike ? 0 : runsAt(series, at).length;
  const from = count ? `, from ${count} run${count > 1 ? 's' : ''}` : '';
  if (series.y[at] == null) return '';
  const words = `${who}${where}: ${named} is ${short(series.y[at])}${unit && ` ${unit}`}${rest}${ends}${from}${series.degraded?.[at] ? '; degraded' : ''}.`;
  return words.replace(/</g, '&lt;').replace(/(.{40,60}?) /g, '$1<br>');
}

/** Hover texts of a series' points. */
const hover = (figure, series) => ({ hoverinfo: 'text', hovertext: series.x.map((_, at) => sentence(figure, series, at)) });

function tone(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colour(number) {
  const own = values.colours[number % values.colours.length];
  return isDark() ? DARK_FOR[own] ?? own : own;
}

/** Published and measured series of the same name have the same colour. */
function traces(figure) {
  const names = [...new Set(figure.series.filter((series) => series.kind !== 'ideal').map((series) => series.name))];
  const both = new Set(figure.series.map((series) => series.kind)).has('published');
  const needed = figure.series.filter((series) => series.kind === 'ideal');
  return figure.series.map((series) => {
    const number = names.indexOf(series.name);
    const own = figure.shape === 'lying' && both ? (series.kind === 'published' ? 1 : 0) : Math.max(number, 0);
    return series.kind === 'ideal' ? idealTrace(figure, series, needed.indexOf(series)) : figure.shape === undefined ? curveTrace(figure, series, own, both)
      : barTrace(figure, series, own);
  });
}

/** For lying bars, a mark across each: a line; a second series gets diamonds. Otherwise a dashed line. */
function idealTrace(figure, series, number) {
  const lying = figure.shape === 'lying';
  return { type: 'scatter', name: series.name, x: lying ? series.y : series.x, y: lying ? places(series) : series.y, ...hover(figure, series),
    mode: lying ? 'markers' : 'lines', line: { color: tone('--quiet'), dash: 'dash', width: 1.5 },
    marker: number ? { symbol: 'diamond-tall-open', size: 16, line: { width: 2, color: tone('--ink') }, color: tone('--ink') }
      : { symbol: 'line-ns-open', size: 20, line: { width: 3 }, color: tone('--ink') } };
}

function curveTrace(figure, series, number, both) {
  const long = series.x.length > 60;
  const published = series.kind === 'published';
  return { type: 'scatter', name: both ? `${series.name}, ${series.kind}` : series.name, x: series.x, y: series.y, connectgaps: false, ...hover(figure, series),
    mode: long ? 'lines' : 'lines+markers', customdata: series.x.map((_, at) => runsAt(series, at)), error_y: bars(series),
    line: { color: colour(number), width: long ? 1.2 : 1.8, dash: published ? 'dot' : 'solid' },
    marker: { color: colour(number), size: 9, symbol: series.x.map((_, at) =>
      `${published ? 'diamond' : SYMBOLS[number % SYMBOLS.length]}${published || series.degraded?.[at] ? '-open' : ''}`) } };
}

function barTrace(figure, series, number) {
  const lying = figure.shape === 'lying';
  const hollow = series.x.map((_, at) => Boolean(series.degraded?.[at]));
  const shape = series.x.map((place) => (`${place}`.includes('emulated') ? '/' : series.kind === 'published' ? '.' : ''));
  const filled = !hollow.some(Boolean); // hollow bars have an outline and no pattern
  const pattern = filled && shape.some(Boolean) ? { shape, fgcolor: tone('--paper'), fillmode: 'overlay', fgopacity: 0.45 } : undefined;
  return { type: 'bar', name: series.name, ...hover(figure, series), orientation: lying ? 'h' : 'v', [lying ? 'y' : 'x']: places(series), [lying ? 'x' : 'y']: series.y,
    customdata: series.x.map((_, at) => runsAt(series, at)), [lying ? 'error_x' : 'error_y']: bars(series),
    text: series.y.map((value) => (value === null ? '' : value.toLocaleString('en', { maximumSignificantDigits: 4 }))), textangle: 0,
    textposition: series.low ? 'inside' : 'auto', insidetextanchor: 'start', 
    insidetextfont: { color: filled ? tone('--paper') : hollow.map((one) => tone(one ? '--ink' : '--paper')) },
    marker: { color: filled ? colour(number) : hollow.map((one) => (one ? tone('--paper') : colour(number))), line: { color: colour(number), width: 1.5 }, pattern } };
}

/** Names of bars, with line breaks in long ones. */
const places = (series) => series.x.map((place) => `${place}`.replace(/(.{18,30}?[ ,])\s*/g, '$1<br>').replace(/<br>$/, ''));

function bars(series) {
  if (!series.low) return undefined;
  // The ends are rounded separately from the value, and an error bar cannot have a negative length.
  const reach = (ends, sign) => series.y.map((value, at) => (ends[at] == null || value == null ? 0 : Math.max(0, sign * (ends[at] - value))));
  return { type: 'data', symmetric: false, array: reach(series.high, 1), arrayminus: reach(series.low, -1), color: tone('--ink'), thickness: 1.4, width: 5 };
}

function heightOf(figure) {
  const rows = Math.max(...figure.series.map((series) => series.x.length));
  const lines = Math.max(...figure.series.flatMap(places).map((place) => place.split('<br>').length));
  return figure.shape === 'lying' ? Math.max(170, 100 + rows * Math.max(42 * (figure.series.length > 1 ? 1.3 : 1), 8 + 16 * lines))
    : 350 + (figure.series.length > 1 ? 22 * Math.ceil(figure.series.length / 2) : 0);
}

function layout(figure) {
  const lying = figure.shape === 'lying';
  const axis = { gridcolor: tone('--line'), zerolinecolor: tone('--line'), linecolor: tone('--quiet'), automargin: true };
  const value = { ...axis, title: { text: lying ? '' : figure.y }, rangemode: 'tozero', ...(figure.percent && fitsPercent(figure) ? { range: [0, 105] } : {}) };
  const along = { ...axis, title: { text: lying ? '' : figure.x }, showgrid: false, ...(figure.shape ? { type: 'category' } : ticks(figure)) };
  // On two logarithmic axes the ideal stays a straight line.
  if (figure.log && figure.series.some((series) => series.kind === 'ideal')) Object.assign(value, { type: 'log', ...powers(figure) });
  if (lying) along.autorange = 'reversed';
  const several = figure.series.length > 1;
  return { xaxis: lying ? value : along, yaxis: lying ? along : value, showlegend: several, barmode: 'group',
    legend: { orientation: 'h', y: lying ? -62 / (heightOf(figure) - 90) : -0.24, yanchor: 'top', x: 0 }, height: heightOf(figure),
    margin: { l: 56, r: 12, t: 10, b: 48 }, paper_bgcolor: tone('--paper'), plot_bgcolor: tone('--paper'), hovermode: 'closest', uniformtext: { mode: 'hide', minsize: 10 },
    font: { family: 'system-ui, "Liberation Sans", Arial, sans-serif', size: 12.5, color: tone('--ink') },
    hoverlabel: { font: { family: 'system-ui, "Liberation Sans", Arial, sans-serif' } },
    // Long names leave little room for the axis title: it is right-aligned, and may start to the left of the bars.
    annotations: lying ? [{ text: figure.y, x: 1, xref: 'paper', xanchor: 'right', y: 0, yref: 'paper', yanchor: 'top', yshift: -22, showarrow: false }] : [],
    shapes: (figure.shade ?? []).map(([x0, x1]) => ({ type: 'rect', yref: 'paper', y0: 0, y1: 1, x0, x1, line: { width: 0 },
      fillcolor: tone('--quiet'), opacity: 0.14, layer: 'below' })) };
}

const fitsPercent = (figure) => figure.series.every((series) => series.y.every((value) => value === null || value <= 105));

/** Ticks at every measured x, if there are few enough to tell apart. */
function ticks(figure) {
  const found = [...new Set(figure.series.filter((series) => series.kind !== 'ideal').flatMap((series) => series.x))].sort((a, b) => a - b);
  return { type: figure.log ? 'log' : 'linear', ...(found.length < 14 ? { tickvals: found, ticktext: found.map(written) } : {}) };
}

/** The powers of two around the measured values as ticks: Plotly's own labels between powers of ten overlap. */
function powers(figure) {
  const found = figure.series.flatMap((series) => series.y).filter((value) => value > 0).map(Math.log2);
  const from = Math.floor(Math.min(...found));
  const tickvals = Array.from({ length: Math.ceil(Math.max(...found)) - from + 1 }, (_, at) => 2 ** (from + at));
  return { tickvals, ticktext: tickvals.map(written) };
}

function draw(plotly, plot, figure) {
  const again = drawn.has(plot);
  drawn.set(plot, figure);
  plotly.react(plot, traces(figure), layout(figure), { displayModeBar: false, responsive: true });
  if (!again) {
    plot.on('plotly_click', (event) => {
      const runs = event.points[0].customdata ?? [];
      if (runs.length) openPanel(runs, runs[0]);
    });
  }
}

/** Redraw every drawn figure in the colours of the current theme. */
function redraw() {
  for (const [plot, figure] of drawn) draw(window.Plotly, plot, figure);
}
