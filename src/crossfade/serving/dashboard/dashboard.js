const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

// A tree is [tag, attributes, children]; a child that is a string is text and nothing else.
function build(tree, inSvg) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, children] = tree;
  const svg = inSvg || tag === "svg";
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) node.appendChild(build(child, svg));
  return node;
}

// Elements that are there already are kept, and with them focus and what was opened.
function mend(parent, trees, inSvg) {
  trees.forEach((tree, place) => {
    const there = parent.childNodes[place];
    if (there === undefined) {
      parent.appendChild(build(tree, inSvg));
    } else if (typeof tree === "string") {
      if (there.nodeType !== Node.TEXT_NODE) parent.replaceChild(build(tree), there);
      else if (there.data !== tree) there.data = tree;
    } else if (there.nodeType !== Node.ELEMENT_NODE || there.localName !== tree[0]) {
      parent.replaceChild(build(tree, inSvg), there);
    } else if (!there.classList.contains("cursor")) {
      mendElement(there, tree, inSvg || tree[0] === "svg");
    }
  });
  while (parent.childNodes.length > trees.length) parent.lastChild.remove();
}

function mendElement(node, [, attributes, children], inSvg) {
  for (const { name } of [...node.attributes]) {
    if (!(name in attributes) && name !== "open") node.removeAttribute(name);
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  mend(node, children, inSvg);
}

function say(id, text) {
  const node = byId(id);
  if (node.textContent !== text) node.textContent = text;
}

function show(state) {
  const error = byId("error");
  error.hidden = !state.error;
  say("error", state.error ? `The store could not be asked: ${state.error}` : "");
  say("store", state.store);
  if (!state.headline) return;
  say("models", state.models.some(Boolean) ? state.models.map((m) => m || "?").join(" → ") : "");
  say("headline", state.headline);
  say("asking", state.asking || "");
  say("next", state.next);
  byId("copy").hidden = !state.runnable;
  const words = { done: "done", next: "next", later: "not yet" };
  mend(byId("steps"), state.steps.map(([name, where]) => [
    "li",
    where === "next" ? { class: where, "aria-current": "step" } : { class: where },
    [["span", {}, [name]], ["span", { class: "unseen" }, [`, ${words[where]}`]]],
  ]));
  for (const section of document.querySelectorAll("main > section[id]")) {
    const trees = state.panels[section.id];
    section.hidden = !trees;
    mend(section.querySelector("div"), trees || []);
  }
  const filled = `${(100 * state.filled).toFixed(0)} % filled`;
  document.title = `${state.headline.split(":")[0]}, ${filled} – ${state.store}`;
}

let heard = 0;
function link(words, kind) {
  say("link", words);
  byId("link").className = `link ${kind}`;
}
function hear() {
  heard = Date.now();
  link("live", "live");
}

function follow() {
  const source = new EventSource("dashboard/events");
  source.addEventListener("state", (event) => { hear(); show(JSON.parse(event.data)); });
  source.addEventListener("beat", hear);
  source.addEventListener("error", () => {
    link("no connection, trying again", "lost");
    // The browser tries again by itself, unless somebody has answered with an error.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
}
setInterval(() => {
  if (heard && Date.now() - heard > 20000) link("nothing heard for a while", "lost");
}, 5000);

byId("copy").addEventListener("click", async () => {
  const button = byId("copy");
  try {
    await navigator.clipboard.writeText(byId("next").textContent);
    button.textContent = "Copied";
  } catch {
    // Without a clipboard (plain http from another machine) the text is selected instead.
    getSelection().selectAllChildren(byId("next"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
follow();
