// The page's own behaviour: tables that filter and sort, lines that wait, links into what is folded, colours. All of it is
// readable without.
(() => {
  'use strict';

  // Colours: as the system says, or as chosen; the choice belongs to this page and is nowhere else.
  const names = {auto: 'as the system', light: 'light', dark: 'dark'};
  const order = Object.keys(names);
  const button = document.getElementById('theme');
  const use = theme => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Colours: ${names[theme]}`;
  };
  let theme = history.state && names[history.state.theme] ? history.state.theme : 'auto';
  button.hidden = false;
  use(theme);
  button.addEventListener('click', () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    use(theme);
    history.replaceState({...history.state, theme}, '');
  });

  // Tables.
  const collator = new Intl.Collator('en', {numeric: true, sensitivity: 'base'});
  const valueOf = cell => cell ? (cell.dataset.v ?? cell.textContent).trim() : '';
  const asNumber = words => words === '' ? NaN : Number(words.replace(/,/g, '').replace(/\s.*$/, ''));

  function compare(a, b) {
    const x = asNumber(a), y = asNumber(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if (a === '' || b === '') return a === b ? 0 : a === '' ? 1 : -1;
    return collator.compare(a, b);
  }

  for (const sheet of document.querySelectorAll('.sheet')) {
    const body = sheet.querySelector('tbody');
    const field = sheet.querySelector('.tools input');
    const told = sheet.querySelector('.tools output');

    const bringAll = () => {
      const waiting = sheet.querySelector('template');
      if (!waiting) return;
      body.append(waiting.content);
      waiting.remove();
      sheet.querySelector('.more').remove();
    };
    const filter = () => {
      bringAll();
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const said = row.textContent.toLowerCase();
        row.hidden = !words.every(word => said.includes(word));
        shown += !row.hidden;
      }
      const all = body.rows.length;
      told.textContent = words.length ? `${shown} of ${all} lines` : `${all} lines`;
    };
    if (field) field.addEventListener('input', filter);

    const all = sheet.querySelector('.show-all');
    if (all) {
      all.addEventListener('click', () => {
        bringAll();
        sheet.querySelector('.scroll').focus();
      });
    }

    for (const sorter of sheet.querySelectorAll('thead button')) {
      sorter.addEventListener('click', () => {
        bringAll();
        const head = sorter.closest('th');
        const down = head.getAttribute('aria-sort') === 'ascending';
        for (const other of sheet.querySelectorAll('thead th[aria-sort]')) other.setAttribute('aria-sort', 'none');
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        const column = head.cellIndex;
        const lines = [...body.rows].map(row => [valueOf(row.cells[column]), row]);
        lines.sort((a, b) => down ? compare(b[0], a[0]) : compare(a[0], b[0]));
        body.append(...lines.map(line => line[1]));
      });
    }
  }

  // A link into what is folded unfolds it.
  const reveal = () => {
    let name = '';
    try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    const target = name && document.getElementById(name);
    if (!target) return;
    for (let fold = target.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
})();
