'use strict';
const element = id => document.getElementById(id);
let given = '';      // the prompt that the texts continue
let panels = [];     // one for each model
let answers = false; // an encoder reads the prompt: texts answer it, and cannot be continued from a token
let running = null;  // AbortController

function say(text, bad = false) {
  element('state').textContent = text;
  element('state').className = bad ? 'bad' : '';
}

function headers() {
  const key = element('key').value;
  return {'Content-Type': 'application/json', ...(key ? {Authorization: 'Bearer ' + key} : {})};
}

async function call(path, options = {}) {
  const reply = await fetch(path, {...options, headers: headers()});
  if (reply.status === 401) {
    element('key-label').hidden = false;
    element('key').focus();
  }
  if (!reply.ok) {
    let reason = reply.statusText;
    try {
      const body = await reply.json();
      reason = body.error?.message || body.message || reason;
    } catch { /* no JSON: the status says it */ }
    throw new Error(reason);
  }
  return reply;
}

async function showModels() {
  const model = (await (await call('v1/models')).json()).data[0];
  panels = [new Panel(model.id, '')];
  answers = !!model.has_encoder;
  if (model.beside) panels.push(new Panel(model.beside, 'beside/'));
  element('panels').replaceChildren(...panels.map(panel => panel.root));
  for (const place of [element('panels'), element('panels').closest('main')]) place.classList.toggle('two', panels.length > 1);
  element('model').textContent = panels.length > 1 ? '' : model.id;
  element('retrieval').hidden = !model.max_passages;
  element('k').max = model.max_passages || 0;
  say('');
}

function showPassages(passages) {
  element('passages').replaceChildren(...passages.map(passage => {
    const article = document.createElement('article'), title = document.createElement('h2');
    const score = document.createElement('span'), text = document.createElement('p');
    title.textContent = passage.title || 'passage ' + passage.id;
    score.textContent = passage.score.toFixed(3);
    score.title = 'score';
    text.textContent = passage.text;
    title.append(score);
    article.append(title, text);
    return article;
  }));
  element('passages').hidden = !passages.length;
  element('passages').parentElement.classList.toggle('wide', passages.length > 0);
}

const levelOf = logprob => logprob < Math.log(.01) ? 'p0' : logprob < Math.log(.1) ? 'p1' : logprob < Math.log(.5) ? 'p2'
  : logprob < Math.log(.9) ? 'p3' : 'p4';
const percent = logprob => (100 * Math.exp(logprob)).toPrecision(3) + ' %';
const visible = text => text.replace(/ /g, '\u00b7').replace(/\n/g, '\u21b5').replace(/\t/g, '\u21e5') || '(nothing)';

// The text of one model, whose routes are below `path`.
class Panel {
  constructor(name, path) {
    this.name = name;
    this.path = path;
    this.tokens = [];  // {text, logprob, top: [[text, logprob], ...]}
    this.selected = -1;
    this.root = element('panel').content.firstElementChild.cloneNode(true);
    this.text = this.root.querySelector('.text');
    this.token = this.root.querySelector('.token');
    this.outcome = this.root.querySelector('.outcome');
    this.root.querySelector('.name').textContent = name;
    this.text.onkeydown = event => this.move(event);
  }

  say(text, bad = false) {
    this.outcome.textContent = text;
    this.outcome.classList.toggle('bad', bad);
  }

  append(index) {
    const span = document.createElement('span');
    span.textContent = this.tokens[index].text;
    span.className = levelOf(this.tokens[index].logprob);
    span.setAttribute('role', 'option');
    span.onmouseenter = () => running || this.select(index);
    span.onclick = () => this.select(index);
    this.text.append(span);
  }

  clear() {
    const start = document.createElement('span');
    start.className = 'given';
    start.textContent = given;
    this.tokens = [];
    this.text.replaceChildren(start);
    this.select(-1);
    this.say('waiting ...');
  }

  select(index) {
    const spans = this.text.children;
    spans[this.selected + 1]?.removeAttribute('aria-selected');
    this.selected = index;
    this.token.replaceChildren();
    if (index < 0 || index >= this.tokens.length) return;
    spans[index + 1].setAttribute('aria-selected', 'true');
    const token = this.tokens[index];
    const table = document.createElement('table');
    const rows = token.top.some(([text]) => text === token.text) ? token.top : [[token.text, token.logprob], ...token.top];
    rows.forEach(([text, logprob], place) => {
      const row = table.insertRow();
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = visible(text);
      button.onclick = () => this.take(index, text);
      button.disabled = answers;
      row.insertCell().append(button);
      row.insertCell().textContent = percent(logprob);
      row.insertCell().textContent = logprob.toFixed(3);
      row.insertCell().textContent = text === token.text ? 'chosen' : place < 9 ? 'key ' + (place + 1) : '';
    });
    this.token.append(table);
  }

  // Every model continues from here with another token.
  take(index, text) {
    if (running || answers) return;
    element('prompt').value = given + this.tokens.slice(0, index).map(token => token.text).join('') + text;
    run();
  }

  move(event) {
    const count = this.tokens.length;
    const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -count, End: count};
    if (event.key in moves && count) {
      event.preventDefault();
      this.select(Math.min(count - 1, Math.max(0, this.selected + moves[event.key])));
    } else if (/^[1-9]$/.test(event.key) && this.selected >= 0) {
      this.token.querySelectorAll('button')[Number(event.key) - 1]?.click();
    }
  }

  takeEvent(event) {
    const choice = event.choices?.[0];
    if (event.error) throw new Error(event.error.message);
    if (event.passages) showPassages(event.passages);
    const logprobs = choice?.logprobs;
    (logprobs?.tokens || []).forEach((text, place) => {
      this.tokens.push({text, logprob: logprobs.token_logprobs[place] ?? 0, top: Object.entries(logprobs.top_logprobs?.[place] || {})});
      this.append(this.tokens.length - 1);
    });
    return choice?.finish_reason;
  }

  async run(fields, signal) {
    const begun = performance.now();
    let first = 0, reason = '';
    try {
      const reply = await call(this.path + 'v1/completions', {method: 'POST', signal, body: JSON.stringify(
        {model: this.name, prompt: given, stream: true, logprobs: 5, ...fields})});
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        first ||= performance.now();
        const lines = (rest + part.value).split('\n');
        rest = lines.pop();
        for (const line of lines)
          if (line.startsWith('data: ') && line !== 'data: [DONE]') reason = this.takeEvent(JSON.parse(line.slice(6))) || reason;
        this.say(this.tokens.length + ' tokens');
      }
      const seconds = (performance.now() - first) / 1000;
      this.say(`${this.tokens.length} tokens, first after ${((first - begun) / 1000).toFixed(2)} s, then ` +
        `${((this.tokens.length - 1) / seconds).toFixed(1)} a second` + (reason ? `; ended by ${reason}` : ''));
    } catch (error) {
      if (error.name === 'AbortError') this.say(this.tokens.length + ' tokens, then stopped');
      else this.say(error.message, true);
    }
  }
}

// The first token of each text after which they are no longer the same.
function markDifference() {
  const texts = panels.map(panel => panel.tokens.map(token => token.text).join(''));
  let same = 0;
  while (same < texts[0].length && same < texts[1].length && texts[0][same] === texts[1][same]) ++same;
  panels.forEach((panel, number) => {
    if (same === texts[number].length) return;
    let end = 0;
    const index = panel.tokens.findIndex(token => (end += token.text.length) > same);
    panel.text.children[index + 1].classList.add('differs');
  });
}

async function run() {
  if (running || !panels.length) return;
  const number = id => element(id).value === '' ? undefined : Number(element(id).value);
  given = element('prompt').value;
  for (const panel of panels) panel.clear();
  const k = element('retrieval').hidden ? 0 : number('k') || 0;
  showPassages([]);
  running = new AbortController();
  element('run').disabled = true;
  element('end').disabled = false;
  // One seed for all, so that what differs is the models.
  const fields = {max_tokens: number('max_tokens'), temperature: number('temperature'), top_p: number('top_p'),
    seed: number('seed') ?? Math.floor(Math.random() * 2 ** 31), stop: element('stop').value || undefined};
  const passages = k ? {retrieve: {k, prepend: element('prepend').checked}} : {};
  await Promise.all(panels.map((panel, place) => panel.run({...fields, ...(place ? {} : passages)}, running.signal)));
  if (panels.length > 1) markDifference();
  running = null;
  element('run').disabled = false;
  element('end').disabled = true;
}

element('ask').onsubmit = event => { event.preventDefault(); run(); };
element('end').onclick = () => running?.abort();
element('key').onchange = () => showModels().catch(error => say(error.message, true));
document.onkeydown = event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  if (event.key === 'Escape') { running?.abort(); element('prompt').focus(); }
};
showModels().catch(error => say(error.message, true));
