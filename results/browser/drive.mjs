// Opens pages from disk in headless Chromium and tries them as people would. Called by ./check:
//   node drive.mjs --chromium PATH --modules DIR [--shots DIR] PAGE.html…
import {createRequire} from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import {parseArgs} from 'node:util';
import {pathToFileURL} from 'node:url';

const {values: options, positionals: pages} = parseArgs({
  allowPositionals: true,
  options: {chromium: {type: 'string'}, modules: {type: 'string'}, shots: {type: 'string'}},
});
const require = createRequire(path.resolve(options.modules, 'package.json'));
const {chromium} = require('playwright-core');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const SERIOUS = new Set(['serious', 'critical']);
let failures = 0;
let checks = 0;

function check(held, what) {
  checks += 1;
  if (held) return;
  failures += 1;
  console.error(`FAILED: ${what}`);
}

const browser = await chromium.launch({
  executablePath: options.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});

// A page at both widths in both schemes: errors, sideways scroll, accessibility.
async function look(file) {
  const name = path.basename(file, '.html');
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, reducedMotion: 'reduce', offline: true});
  const page = await context.newPage();
  const said = [];
  page.on('console', message => { if (['error', 'warning'].includes(message.type())) said.push(message.text()); });
  page.on('pageerror', error => said.push(String(error)));
  page.on('request', request => { if (!request.url().startsWith('file:')) said.push(`asks for ${request.url()}`); });
  await page.goto(pathToFileURL(path.resolve(file)).href);
  const everyLook = async step => {
    for (const width of [1280, 390]) {
      await page.setViewportSize({width, height: 900});
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({colorScheme});
        await step(`${name}, ${width} px, ${colorScheme}`, `${width}-${colorScheme}`);
      }
    }
  };
  await everyLook(async (where, stem) => {
    await sideways(page, where);
    if (options.shots) await page.screenshot({path: path.join(options.shots, `${name}-${stem}.png`)});
  });
  // Unfolded: what is folded is neither laid out nor looked at.
  await page.evaluate(() => { for (const fold of document.querySelectorAll('details')) fold.open = true; });
  for (const width of [1280, 390]) {
    await page.setViewportSize({width, height: 900});
    await sideways(page, `${name}, ${width} px, unfolded`);
  }
  // Long tables and drawings are cut, which changes none of their kinds of cell: axe looks at every element.
  await page.evaluate(() => {
    for (const body of document.querySelectorAll('tbody')) for (const row of [...body.rows].slice(6)) row.remove();
    for (const svg of document.querySelectorAll('figure svg'))
      svg.replaceChildren(...svg.querySelectorAll(':scope > title, :scope > desc'));
  });
  await page.evaluate(axe);
  await everyLook(where => accessible(page, where));
  check(said.length === 0, `${name}: the console says ${said.slice(0, 3).join(' | ')}`);
  await context.close();
}

async function sideways(page, name) {
  const [wide, seen] = await page.evaluate(() => [document.scrollingElement.scrollWidth, innerWidth]);
  check(wide <= seen, `${name}: the page is ${wide} px wide`);
}

async function accessible(page, name) {
  const found = await page.evaluate(async () => {
    const {violations} = await axe.run(document, {resultTypes: ['violations']});
    return violations.map(({id, impact, nodes}) => ({
      id, impact, count: nodes.length, first: nodes[0].html.slice(0, 200), why: nodes[0].failureSummary,
    }));
  });
  for (const one of found) {
    if (!SERIOUS.has(one.impact)) console.log(`note: ${name}: ${one.impact} ${one.id} × ${one.count}: ${one.first}`);
  }
  const bad = found.filter(one => SERIOUS.has(one.impact));
  const words = bad.map(one => `${one.impact} ${one.id} × ${one.count} (${one.first}: ${one.why})`);
  check(bad.length === 0, `${name}: axe finds ${words.join('; ')}`);
}

// What one does with a page: links, filters, sorting by mouse and by keyboard, colours.
async function use(file) {
  const name = path.basename(file, '.html');
  const context = await browser.newContext({
    viewport: {width: 1280, height: 900}, colorScheme: 'light', reducedMotion: 'reduce', offline: true,
  });
  const page = await context.newPage();
  const said = [];
  page.on('pageerror', error => said.push(String(error)));
  await page.goto(pathToFileURL(path.resolve(file)).href);
  await structure(page, name);
  await links(page, name);
  await skipLink(page, name);
  await colours(page, name);
  const tables = await page.evaluate(() => {
    for (const fold of document.querySelectorAll('details')) fold.open = true;
    const count = sheet => sheet.querySelectorAll('tbody tr').length + (sheet.querySelector('template')?.content.children.length ?? 0);
    return [...document.querySelectorAll('.sheet')].map((sheet, index) => {
      sheet.dataset.index = index;
      const sorted = sheet.querySelectorAll('thead button').length;
      return {index, lines: count(sheet), tools: !!sheet.querySelector('.tools input'), sorted};
    });
  });
  const biggest = tables.filter(t => t.tools).sort((a, b) => b.lines - a.lines).slice(0, 2);
  for (const table of biggest) await filters(page, `${name}, table ${table.index}`, table);
  for (const table of tables.filter(t => t.sorted).slice(0, 3)) await sorts(page, `${name}, table ${table.index}`, table);
  check(said.length === 0, `${name}, used: ${said.join(' | ')}`);
  await context.close();
  return biggest.length;
}

async function structure(page, name) {
  const found = await page.evaluate(() => {
    const levels = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(h => Number(h.tagName[1]));
    const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
    return {
      levels, twice: ids.filter((id, i) => ids.indexOf(id) !== i).slice(0, 5),
      landmarks: ['header', 'main', 'footer'].filter(tag => document.querySelectorAll(`body > ${tag}`).length !== 1),
      unnamed: [...document.querySelectorAll('svg[role=img]')]
        .filter(s => !s.querySelector('title')?.textContent && !s.getAttribute('aria-label')).length,
      heads: [...document.querySelectorAll('th:not([scope])')].length,
    };
  });
  check(found.levels[0] === 1 && found.levels.filter(l => l === 1).length === 1, `${name}: headings ${found.levels.slice(0, 5)}`);
  check(found.levels.every((l, i) => i === 0 || l <= found.levels[i - 1] + 1), `${name}: heading levels are left out: ${found.levels}`);
  check(found.twice.length === 0, `${name}: ids that occur twice: ${found.twice}`);
  check(found.landmarks.length === 0, `${name}: not one each of ${found.landmarks}`);
  check(found.unnamed === 0, `${name}: ${found.unnamed} drawings without a title`);
  check(found.heads === 0, `${name}: ${found.heads} heads without scope`);
}

async function links(page, name) {
  const broken = await page.evaluate(() => [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))
    .filter(href => !href.startsWith('#') || !document.getElementById(decodeURIComponent(href.slice(1)))));
  check(broken.length === 0, `${name}: links to nothing: ${broken.slice(0, 5)}`);
  // A link to what is folded unfolds it.
  const inside = await page.evaluate(() => document.querySelector('details:not([open]) [id]')?.id);
  if (inside) {
    await page.evaluate(id => { location.hash = id; }, inside);
    await page.waitForFunction(id => !document.getElementById(id).closest('details:not([open])'), inside);
  }
}

async function skipLink(page, name) {
  await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  await page.reload();
  await page.evaluate(() => { history.replaceState(null, '', location.pathname); });
  await page.keyboard.press('Tab');
  const first = await page.evaluate(() => [document.activeElement.className, document.activeElement.getBoundingClientRect().left >= 0]);
  check(first[0] === 'leap' && first[1], `${name}: the first stop of the Tab key is ${first}`);
}

async function colours(page, name) {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const press = async () => { await page.focus('#theme'); await page.keyboard.press('Enter'); };
  const system = await paper();
  await press();
  check(await paper() === system, `${name}: light as the system is`);
  await press();
  const dark = await paper();
  check(dark !== system, `${name}: dark changes nothing`);
  await page.reload();
  check(await paper() === dark, `${name}: the choice of colours is lost when the page is loaded again`);
  await press();
  check(await paper() === system, `${name}: back to the system's colours`);
}

const visible = (page, index) => page.evaluate(
  i => [...document.querySelectorAll(`.sheet[data-index="${i}"] tbody tr`)].filter(r => !r.hidden).length, index);

async function filters(page, name, table) {
  const field = page.locator(`.sheet[data-index="${table.index}"] .tools input`);
  const before = await page.evaluate(i => {
    const sheet = document.querySelector(`.sheet[data-index="${i}"]`);
    return [...sheet.querySelectorAll('tbody tr'), ...(sheet.querySelector('template')?.content.children ?? [])].map(r => r.textContent);
  }, table.index);
  const word = before.at(-1).trim().split(/\s+/)[0].slice(0, 12).toLowerCase();
  await field.fill(word);
  const wanted = before.filter(line => line.toLowerCase().includes(word)).length;
  const shown = await visible(page, table.index);
  check(shown === wanted, `${name}: the filter "${word}" shows ${shown} of ${wanted}`);
  const told = await page.locator(`.sheet[data-index="${table.index}"] .tools output`).textContent();
  check(told.startsWith(`${wanted} of ${before.length}`), `${name}: it tells "${told}"`);
  await field.fill('no line holds this');
  check(await visible(page, table.index) === 0, `${name}: a filter that matches nothing`);
  await field.fill('');
  check(await visible(page, table.index) === before.length, `${name}: an empty filter shows all`);
}

async function sorts(page, name, table) {
  const buttons = page.locator(`.sheet[data-index="${table.index}"] thead button`);
  for (let column = 0; column < Math.min(table.sorted, 3); column += 1) {
    const button = buttons.nth(column);
    await button.focus();
    await page.keyboard.press(column % 2 ? 'Space' : 'Enter');
    const up = await order(page, table.index, await sortOf(button), name, column, 'ascending');
    await button.click();
    const down = await order(page, table.index, await sortOf(button), name, column, 'descending');
    check(up.length === down.length && up.length === table.lines, `${name}: sorting lost lines`);
    const marked = await page.locator(`.sheet[data-index="${table.index}"] thead [aria-sort]:not([aria-sort=none])`).count();
    check(marked === 1, `${name}: ${marked} heads say that the table is sorted by them`);
  }
}

const sortOf = button => button.evaluate(b => [b.closest('th').cellIndex, b.closest('th').getAttribute('aria-sort')]);

async function order(page, index, [cell, said], name, column, wanted) {
  check(said === wanted, `${name}: head ${column} says ${said} instead of ${wanted}`);
  const keys = await page.evaluate(([i, c]) => [...document.querySelectorAll(`.sheet[data-index="${i}"] tbody tr`)]
    .map(r => (r.cells[c]?.dataset.v ?? r.cells[c]?.textContent ?? '').trim()), [index, cell]);
  const numbers = keys.map(k => Number(k.replace(/,/g, '')));
  if (keys.every(k => k !== '') && numbers.every(n => !Number.isNaN(n))) {
    const sign = wanted === 'ascending' ? 1 : -1;
    check(numbers.every((n, i) => i === 0 || sign * (n - numbers[i - 1]) >= 0), `${name}: column ${column} is not ${wanted}`);
  }
  return keys;
}

try {
  let filtered = 0;
  const left = [...pages];
  const work = async () => {
    for (let file = left.shift(); file; file = left.shift()) {
      await look(file);
      filtered += await use(file);
    }
  };
  await Promise.all([work(), work()]);
  check(pages.length === 0 || filtered > 0, 'no page had a table with a filter');
} finally {
  await browser.close();
}
console.log(`${checks - failures} of ${checks} checks of ${pages.length} pages held`);
process.exit(failures ? 1 : 0);
