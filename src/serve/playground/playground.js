'use strict';
const element = id => document.getElementById(id);
let tokens = [];        // {text, logprob, top: [[text, logprob], ...]}
let given = '';         // the prompt that they continue
let selected = -1;
let running = null;     // AbortController

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

async function showModel() {
  const model = (await (await call('v1/models')).json()).data[0];
  element('model').textContent = model.id;
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

function append(index) {
  const span = document.createElement('span');
  span.textContent = tokens[index].text;
  span.className = levelOf(tokens[index].logprob);
  span.setAttribute('role', 'option');
  span.onmouseenter = () => running || select(index);
  span.onclick = () => select(index);
  element('text').append(span);
}

function draw() {
  element('text').replaceChildren();
  const start = document.createElement('span');
  start.className = 'given';
  start.textContent = given;
  element('text').append(start);
  tokens.forEach((_, index) => append(index));
  select(-1);
}

function select(index) {
  const spans = element('text').children;
  spans[selected + 1]?.removeAttribute('aria-selected');
  selected = index;
  element('token').replaceChildren();
  if (index < 0 || index >= tokens.length) return;
  spans[index + 1].setAttribute('aria-selected', 'true');
  const token = tokens[index];
  const table = document.createElement('table');
  const rows = token.top.some(([text]) => text === token.text) ? token.top : [[token.text, token.logprob], ...token.top];
  rows.forEach(([text, logprob], place) => {
    const row = table.insertRow();
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = visible(text);
    button.onclick = () => take(index, text);
    row.insertCell().append(button);
    row.insertCell().textContent = percent(logprob);
    row.insertCell().textContent = logprob.toFixed(3);
    row.insertCell().textContent = text === token.text ? 'chosen' : place < 9 ? 'key ' + (place + 1) : '';
  });
  element('token').append(table);
}

// Continues from here with another token.
function take(index, text) {
  if (running) return;
  const before = given + tokens.slice(0, index).map(token => token.text).join('') + text;
  element('prompt').value = before;
  run();
}

function take_events(event) {
  const choice = event.choices?.[0];
  if (event.error) throw new Error(event.error.message);
  if (event.passages) showPassages(event.passages);
  const logprobs = choice?.logprobs;
  (logprobs?.tokens || []).forEach((text, place) => {
    tokens.push({text, logprob: logprobs.token_logprobs[place] ?? 0, top: Object.entries(logprobs.top_logprobs?.[place] || {})});
    append(tokens.length - 1);
  });
  return choice?.finish_reason;
}

async function run() {
  if (running) return;
  const number = id => element(id).value === '' ? undefined : Number(element(id).value);
  given = element('prompt').value;
  tokens = [];
  draw();
  const k = element('retrieval').hidden ? 0 : number('k') || 0;
  showPassages([]);
  running = new AbortController();
  element('run').disabled = true;
  element('end').disabled = false;
  say('waiting ...');
  const begun = performance.now();
  let first = 0, reason = '';
  try {
    const reply = await call('v1/completions', {method: 'POST', signal: running.signal, body: JSON.stringify({
      model: element('model').textContent, prompt: given, max_tokens: number('max_tokens'), temperature: number('temperature'),
      top_p: number('top_p'), seed: number('seed'), stop: element('stop').value || undefined, stream: true, logprobs: 5,
      retrieve: k ? {k, prepend: element('prepend').checked} : undefined})});
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      first ||= performance.now();
      const lines = (rest + part.value).split('\n');
      rest = lines.pop();
      for (const line of lines)
        if (line.startsWith('data: ') && line !== 'data: [DONE]') reason = take_events(JSON.parse(line.slice(6))) || reason;
      say(tokens.length + ' tokens');
    }
    const seconds = (performance.now() - first) / 1000;
    say(`${tokens.length} tokens, first after ${((first - begun) / 1000).toFixed(2)} s, then ` +
      `${((tokens.length - 1) / seconds).toFixed(1)} a second` + (reason ? `; ended by ${reason}` : ''));
  } catch (error) {
    if (error.name === 'AbortError') say(tokens.length + ' tokens, then stopped');
    else say(error.message, true);
  }
  running = null;
  element('run').disabled = false;
  element('end').disabled = true;
}

element('ask').onsubmit = event => { event.preventDefault(); run(); };
element('end').onclick = () => running?.abort();
element('key').onchange = () => showModel().catch(error => say(error.message, true));
document.onkeydown = event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  if (event.key === 'Escape') { running?.abort(); element('prompt').focus(); }
};
element('text').onkeydown = event => {
  const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -tokens.length, End: tokens.length};
  if (event.key in moves && tokens.length) {
    event.preventDefault();
    select(Math.min(tokens.length - 1, Math.max(0, selected + moves[event.key])));
  } else if (/^[1-9]$/.test(event.key) && selected >= 0) {
    element('token').querySelectorAll('button')[Number(event.key) - 1]?.click();
  }
};
showModel().catch(error => say(error.message, true));
