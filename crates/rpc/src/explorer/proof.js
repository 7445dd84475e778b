// A proof in one tree: its verdict, the way from the root to the value, and a field to tamper with.

import { count, el, facts, short } from "/dom.js";

let cards = 0;

/** What stands at the end of a path. */
function end(path, shown) {
  if (path.of === "key") {
    const { leaf } = shown;
    return leaf ? [`sum ${count(leaf.sum)}`, leaf.value] : ["no leaf", ""];
  }
  if (path.of === "slot") {
    const value = shown.slots[0];
    return value == null ? ["no value", ""] : ["value", value];
  }
  const { account } = shown;
  return account ? ["account", `nonce ${count(account.nonce)}`] : ["no account", ""];
}

/** Squares for what a node holds: the side that the path takes, and a hash for each other one. */
function beside({ siblings }) {
  if (siblings === 0) return null;
  const label = `${siblings} ${siblings === 1 ? "hash" : "hashes"} beside the path`;
  const squares = [el("i", { class: "on" })];
  for (let at = 0; at < siblings; at += 1) squares.push(el("i"));
  return el("span", { class: "beside", role: "img", "aria-label": label, title: label }, squares);
}

function node(step, index, shown) {
  const cost = step.bytes === 0 ? "" : `${count(step.bytes)} B`;
  const place = index === 0 ? "root" : `bit ${count(step.depth * shown.digitBits)}`;
  const digest = step.digest ? short(step.digest, 10) : "embedded in the node above";
  return el("li", { class: index === 0 ? "root-node" : null },
    el("div", { class: "what" },
      el("span", {}, `${step.kind} `, el("small", {}, place)),
      el("small", { title: "bytes of the proof" }, cost)),
    el("div", { class: "line" },
      el("span", { class: "digest", title: step.digest }, digest), beside(step)),
    step.sum == null ? null : el("div", { class: "digest" }, `sum ${count(step.sum)}`));
}

/** How many nodes at its top a path shares with the one before. */
function shared(path, before) {
  const above = before?.steps ?? [];
  const differs = path.steps.findIndex((step, at) => step.digest !== above[at]?.digest);
  return differs < 0 ? path.steps.length : differs;
}

function drawing(path, shown, before) {
  const [what, value] = end(path, shown);
  const isThere = !what.startsWith("no ");
  const last = el("li", { class: isThere ? "value" : "nothing" },
    el("div", { class: "what" }, el("span", {}, el("strong", {}, what))),
    value && el("div", { class: "digest", title: value }, short(value, 14)));
  const same = shared(path, before);
  const above = same === 0 ? null : el("li", { class: "above" },
    el("div", { class: "what" }, el("small", {}, `the first ${same} nodes above`)));
  const title = { account: "Key of the account", slot: "Key of the slot", key: "Key" }[path.of];
  return [
    el("p", { class: "path-title" }, title,
      el("span", { class: "mono", title: path.key }, short(path.key, 10))),
    el("ol", { class: "path" }, above, path.steps.slice(same).map((step, at) =>
      node(step, same + at, shown)), last),
  ];
}

/** All nodes on the paths, each once. */
function nodes(shown) {
  return shown.paths.flatMap(({ steps }, at) =>
    steps.slice(shared({ steps }, shown.paths[at - 1])));
}

function counts(shown) {
  const steps = nodes(shown);
  const sum = (of) => steps.reduce((total, step) => total + of(step), 0);
  const depth = Math.max(0, ...steps.map((step) => step.depth * shown.digitBits));
  return facts("counts", [
    ["bytes", count(shown.bytes)],
    ["nodes", count(steps.length)],
    ["hashes", count(sum((step) => step.siblings))],
    ["bits deep", count(depth)],
  ]);
}

/** What there is to know of proofs in some trees. */
function remark(tree, shown) {
  // What of a Verkle proof is no node.
  const rest = nodes(shown).reduce((left, step) => left - step.bytes, shown.bytes);
  const text = {
    sum: "A node of this tree binds the total below it, and not how the total is split: where " +
      "that matters, as for liabilities, it is sum:bound that shows it.",
    verkle: `One argument of ${count(rest)} B opens all these commitments at once: no hashes ` +
      "beside them.",
  }[tree];
  return text && el("p", { class: "path-title" }, text);
}

/** Another value for a hex digit of the proof, somewhere. */
function tampered(text) {
  const from = Math.max(0, text.search(/"(accountProof|proof)"/));
  const runs = [...text.slice(from).matchAll(/0x[0-9a-f]{8,}/g)];
  if (runs.length === 0) return [text, 0];
  const run = runs[Math.floor(Math.random() * runs.length)];
  const at = from + run.index + 2 + Math.floor(Math.random() * (run[0].length - 2));
  const digit = (parseInt(text[at], 16) ^ (1 + Math.floor(Math.random() * 15))).toString(16);
  return [text.slice(0, at) + digit + text.slice(at + 1), at];
}

/**
 * A card for a proof. `question` is what the verifier is asked, with the answer as an object; the
 * root in it may be changed, and so may the answer. `told` is called after each check.
 */
export class ProofCard {
  constructor(verify, question, { alone = false, told = () => {} } = {}) {
    cards += 1;
    this.verify = verify;
    this.told = told;
    this.question = question;
    this.given = JSON.stringify(question.answer, null, 1);
    this.outcome = null;
    this.verdict = el("p", { class: "verdict", role: "status" }, "Being checked.");
    this.shown = el("div");
    this.root = el("input", {
      id: `root-${cards}`, spellcheck: "false", value: question.root, oninput: () => this.check(),
    });
    this.rootLabel = el("label", { for: `root-${cards}` });
    this.text = el("textarea", {
      id: `text-${cards}`, spellcheck: "false", oninput: () => this.later(),
    });
    this.text.value = this.given;
    this.element = el("article", { class: alone ? "proof alone" : "proof" },
      el("h3", {}, question.tree), this.verdict,
      el("div", { class: "root" }, this.rootLabel, this.root), this.tamper(), this.shown);
  }

  tamper() {
    return el("details", {},
      el("summary", {}, "Tamper with the proof"),
      el("p", {}, el("label", { for: this.text.id },
        "This is what the server answered. Change anything; it is checked again as you type.")),
      this.text,
      el("div", { class: "tools" },
        el("button", { type: "button", class: "flip", onclick: () => this.flip() },
          "Change a digit"),
        el("button", { type: "button", onclick: () => this.restore() }, "Restore")));
  }

  flip() {
    const [text, at] = tampered(this.text.value);
    this.text.value = text;
    this.text.setSelectionRange(at, at + 1);
    return this.check();
  }

  restore() {
    this.text.value = this.given;
    this.root.value = this.question.root;
    return this.check();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), 150);
  }

  async check() {
    const root = this.root.value.trim();
    const isOwn = root !== this.question.root;
    this.rootLabel.textContent = isOwn ? "Root that you gave" : "Root that this server gave";
    const start = performance.now();
    const outcome = await this.verify({ ...this.question, root, answer: this.text.value });
    this.tell(outcome, performance.now() - start, isOwn);
    return outcome;
  }

  tell(outcome, milliseconds, isOwn) {
    this.outcome = outcome;
    this.told();
    const { holds, why, shown } = outcome;
    this.element.classList.toggle("refused", !holds);
    this.verdict.classList.toggle("bad", !holds);
    this.verdict.classList.toggle("unsure", holds && shown.unsure);
    if (!holds) {
      this.verdict.replaceChildren(el("strong", {}, "Refused in this page"), el("span", {}, why));
      return;
    }
    const took = milliseconds.toFixed(milliseconds < 10 ? 1 : 0);
    const under = isOwn ? "your root" : "this root";
    const [verdict, said] = shown.unsure ?
      ["Claimed, not shown", "The form of Verkle proofs cannot show that nothing is here."] :
      ["Verified in this page", `Holds under ${under}, ${took} ms`];
    this.verdict.replaceChildren(el("strong", {}, verdict), el("span", {}, said));
    const paths = shown.paths.flatMap((path, at) =>
      drawing(path, shown, shown.paths[at - 1]));
    const more = remark(this.question.tree, shown);
    this.shown.replaceChildren(counts(shown), ...paths, ...more ? [more] : []);
  }
}
