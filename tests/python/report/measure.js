// SPDX-License-Identifier: Apache-2.0
// Runs in a test page that holds reports in frames of several widths, and writes what it measured
// into the page. Only tests load it: reports have no scripts.
function colour(text) {
  const parts = text.match(/[\d.]+/g).map(Number);
  return parts.length === 3 ? [...parts, 1] : parts;
}

function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((v) => {
    const c = v / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}

function background(element) {
  for (let at = element; at; at = at.parentElement) {
    const found = colour(getComputedStyle(at).backgroundColor);
    if (found[3] > 0.99) return found;
  }
  return [255, 255, 255, 1];
}

function contrast(element) {
  const style = getComputedStyle(element);
  const ink = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
  const [a, b] = [luminance(colour(ink)), luminance(background(element))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

function visible(element) {
  return element.getClientRects().length > 0 && element.checkVisibility({visibilityProperty: true});
}

// What a reader sees before scrolling: lower edges, from the top of the page.
function lowerEdges(page) {
  const names = {
    verdict: '.headline', answer: '.answer', chart: '.seen svg, .verdict > table',
    words: '.seen figcaption, .verdict > table ~ dl',
  };
  return Object.fromEntries(Object.entries(names).map(([name, selector]) => {
    const element = page.querySelector(selector);
    return [name, element && visible(element) ? element.getBoundingClientRect().bottom : null];
  }));
}

// Per table and column, the left edges of its cells: one where the rows align.
function columns(page) {
  const left = (element) => Math.round(element.getBoundingClientRect().left);
  return [...page.querySelectorAll('table')].filter(visible).map((table) => {
    const edges = {};
    for (const cell of table.querySelectorAll('td[data-name] > div')) {
      if (cell.closest('table') !== table || !visible(cell)) continue;
      (edges[cell.parentElement.dataset.name] ??= new Set()).add(left(cell));
    }
    return Object.fromEntries(Object.entries(edges).map(([name, found]) => [name, [...found]]));
  });
}

// The folded findings: how high each is, and where its parts begin.
function lines(page) {
  const folded = page.querySelectorAll('.findings > li:not(.open) > details:not([open]) > summary');
  return [...folded].filter(visible).map((line) => ({
    height: line.getBoundingClientRect().height,
    parts: ['.chip', '.check', '.gist'].map(
      (part) => Math.round(line.querySelector(part).getBoundingClientRect().left)),
  }));
}

function measure(frame) {
  const page = frame.contentDocument;
  const width = frame.contentWindow.innerWidth;
  const found = {
    name: frame.name, width, title: page.title, overflow: [], clipped: [], faint: [],
    scroll: page.documentElement.scrollWidth, text: page.body.innerText.length,
    first: lowerEdges(page), columns: columns(page), lines: lines(page), cut: [],
    more: [...page.querySelectorAll('.open > details > summary')].filter(visible).map(
      (line) => line.getBoundingClientRect().height),
    headings: [...page.querySelectorAll('h1, h2, h3, h4')].filter(visible).map((h) => +h.tagName[1]),
    unfolded: [...page.querySelectorAll('.unfolded')].filter(visible).length,
    folded: page.querySelectorAll('details').length,
    pictures: [...page.querySelectorAll('svg')].filter(visible).length,
  };
  for (const element of page.body.querySelectorAll('*')) {
    if (!visible(element)) continue;
    const box = element.getBoundingClientRect();
    const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const name = `${element.tagName} ${element.getAttribute('class')} "${element.textContent.slice(0, 40)}"`;
    // What is moved off the page on purpose (headers of stacked tables) lies to the left.
    if (box.right > width + 0.5 && box.left >= 0) found.overflow.push(name);
    if (!words || box.right < 0) continue;
    // A folded finding ends in three dots; its whole text is in what it unfolds.
    const hides = getComputedStyle(element).overflowX === 'hidden' && !element.matches('.gist');
    if (hides && element.scrollWidth > element.clientWidth) found.cut.push(name);
    if (!['TITLE', 'DESC', 'title', 'desc'].includes(element.tagName) && contrast(element) < 4.5) {
      found.faint.push(`${name}: ${contrast(element).toFixed(2)}`);
    }
    if (element.tagName === 'text') {
      const edge = element.closest('svg').getBoundingClientRect();
      const out = box.left < edge.left - 1 || box.right > edge.right + 1 ||
        box.top < edge.top - 2 || box.bottom > edge.bottom + 2;
      if (out) found.clipped.push(name);
    }
  }
  return found;
}

addEventListener('load', () => {
  const result = document.createElement('pre');
  result.id = 'measured';
  try {
    result.textContent = JSON.stringify([...document.querySelectorAll('iframe')].map(measure));
  } catch (error) {
    result.textContent = JSON.stringify(String(error));
  }
  document.body.append(result);
});
