// The panel of a run: links to its record, its image, the command that repeats it, and its reservations.
const panel = document.getElementById('panel');
const [RECORD, FOLDER, FACTS, REASONS] = [0, 1, 2, 3];

/** Show a run; `runs` are all runs of the same point. */
function openPanel(runs, run) {
  const of = values.runs.panels[run];
  document.getElementById('panel-title').textContent = runCell(RUN, run);
  const facts = make('dl', {});
  values.runs.columns.forEach((name, column) => {
    const text = runCell(column, run);
    if (column !== RUN && text !== ABSENT) facts.append(make('dt', {}, name), make('dd', {}, text));
  });
  for (const [name, value, command] of of[FACTS]) {
    const text = values.strings[value];
    facts.append(make('dt', {}, values.strings[name]), make('dd', {}, ...(command ? [make('code', {}, text), ' ', copy(text)] : [text])));
  }
  const others = runs.filter((other) => other !== run);
  document.getElementById('panel-body').replaceChildren(
    make('p', {}, make('a', { href: of[RECORD] }, 'record.json'), ' · ', make('a', { href: of[FOLDER] }, 'run directory'), ' · ',
      make('a', { href: `${of[FOLDER]}plan.json` }, 'command lines of its containers')),
    ...of[REASONS].map((reason) => make('p', { class: 'note' }, values.strings[reason])),
    facts,
    others.length ? make('p', {}, 'Other runs of this point: ', ...others.slice(0, 40).flatMap((other) => [make('button', {
      type: 'button', class: 'run', onclick: () => openPanel(runs, other) }, runCell(RUN, other)), ' '])) : '');
  history.replaceState(null, '', `#run=${encodeURIComponent(runCell(RUN, run))}`);
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
}

function copy(text) {
  // Not every browser gives pages from files a clipboard: select the text instead.
  return make('button', { type: 'button', 'aria-label': `copy: ${text}`, onclick: async (event) => {
    const button = event.target;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
    }
  } }, 'Copy');
}

document.getElementById('panel-close').addEventListener('click', () => panel.close());
panel.addEventListener('close', () => history.replaceState(null, '', location.pathname + location.search));
panel.addEventListener('click', (event) => event.target === panel && panel.close());

/** Open the run that the link names: `report.html#run=<id>`. */
function openNamed() {
  const named = /^#run=(.+)$/.exec(location.hash);
  const run = named && runNamed.get(decodeURIComponent(named[1]));
  if (run !== undefined && run !== null) openPanel([run], run);
}
