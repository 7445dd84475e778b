// The explorer: asks the server for proofs, and checks them here.

import { count, el, ether, facts, hash } from "/dom.js";
import { ProofCard } from "/proof.js";
import { Refusal, ask } from "/rpc.js";
import { load } from "/verifier.js";

const at = (id) => document.getElementById(id);
const REFRESH_MILLISECONDS = 5000;
const REFRESH_MILLISECONDS_MAX = 60000;

const verifier = fetch("/verifier.wasm")
  .then((response) => response.arrayBuffer())
  .then(load);
let trees = [];
/** Counts look-ups, so that a late answer to an earlier one is not shown. */
let turn = 0;

/* What the form holds. */

class Wrong extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function hex(field, digits, what) {
  const text = at(field).value.trim().toLowerCase();
  if (new RegExp(`^0x[0-9a-f]{${digits}}$`).test(text)) return text;
  throw new Wrong(field, `${what} is 0x and ${digits} hex digits.`);
}

function slot() {
  const text = at("slot").value.trim().toLowerCase();
  if (text === "") return null;
  if (/^0x[0-9a-f]{1,64}$/.test(text)) return text;
  if (/^[0-9]{1,60}$/.test(text)) return `0x${BigInt(text).toString(16)}`;
  throw new Wrong("slot", "A slot is a number, or 0x and up to 64 hex digits.");
}

function block() {
  const text = at("block").value.trim().toLowerCase();
  if (text === "") return "latest";
  if (/^[0-9]{1,18}$/.test(text)) return `0x${BigInt(text).toString(16)}`;
  if (/^0x[0-9a-f]+$/.test(text) && (text.length <= 18 || text.length === 66)) return text;
  if (["latest", "earliest", "finalized", "safe"].includes(text)) return text;
  throw new Wrong("block", "A block is a number, a hash, latest, earliest, finalized or safe.");
}

/** Runs what a form asks for, and says beside the form why it cannot be done. */
async function attempt(form, error, out, work) {
  const fields = [...form.querySelectorAll("input")];
  fields.forEach((field) => field.removeAttribute("aria-invalid"));
  error.textContent = "";
  try {
    await work();
  } catch (why) {
    out.replaceChildren();
    error.textContent = why.message;
    if (why instanceof Wrong) {
      at(why.field).setAttribute("aria-invalid", "true");
      at(why.field).focus();
    }
  }
}

/** Keeps what is looked up in the address of the page. */
function remember(fields) {
  const kept = Object.entries(fields).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

/* Accounts. */

/** The trees that hold a state of Ethereum: those without a name. */
const stateTrees = () => trees.filter((tree) => !tree.namespace && tree.root);

function requests(tree, address, slots, asked) {
  return [
    ["spinney_getRoot", [tree, asked]],
    tree === "mpt" ? ["eth_getProof", [address, slots, asked]] :
      ["spinney_getProof", [tree, { address, slots }, asked]],
  ];
}

async function lookUpAccount() {
  const asked = { address: hex("address", 40, "An address"), slot: slot(), block: block() };
  remember({ address: asked.address, slot: asked.slot, block: at("block").value.trim() });
  const slots = asked.slot == null ? [] : [asked.slot];
  if (trees.length === 0) await refresh();
  const names = stateTrees().map((tree) => tree.tree);
  if (names.length === 0) throw new Error("This store has no tree of a state.");
  turn += 1;
  const mine = turn;
  const verify = await verifier;
  const batch = names.flatMap((tree) => requests(tree, asked.address, slots, asked.block));
  const answers = await ask(batch);
  if (mine !== turn) return;
  const refusals = answers.filter((answer) => answer instanceof Refusal);
  if (refusals.length === answers.length) throw refusals[0];
  const parts = names.map((tree, index) => {
    const [root, answer] = answers.slice(2 * index, 2 * index + 2);
    const refused = [root, answer].find((part) => part instanceof Refusal);
    if (refused) return { tree, refused };
    const question = { tree, root, address: asked.address, slots, answer };
    return { tree, card: new ProofCard(verify, question, { told: () => tell() }) };
  });
  const cards = parts.filter((part) => part.card).map((part) => part.card);
  const above = el("div", { role: "status" });
  const tell = () => {
    if (cards.every((card) => card.outcome)) above.replaceChildren(...summary(cards, asked));
  };
  for (const card of cards) await card.check();
  at("account").replaceChildren(above,
    el("div", { class: "proofs" }, parts.map((part) => part.card?.element ?? refusal(part))));
}

function refusal({ tree, refused }) {
  return el("article", { class: "proof" },
    el("h3", {}, tree), el("p", { class: "verdict bad" }, refused.message));
}

/** What an account is, in words that are equal where two trees say the same. */
function meaning({ shown }) {
  const { account, slots } = shown;
  const fields = account && [account.nonce, BigInt(account.balance), account.codeHash];
  return String([fields, slots.map((value) => BigInt(value ?? 0))]);
}

function summary(cards, asked) {
  const held = cards.map((card) => card.outcome).filter((outcome) => outcome.holds);
  const good = held.filter((outcome) => !outcome.shown.unsure);
  if (good.length === 0) return [el("p", { class: "agree bad" }, "No tree proves this account.")];
  const isSame = new Set(good.map(meaning)).size === 1;
  const refused = cards.length - held.length;
  const claimed = held.length - good.length;
  const proofs = good.length === 1 ? "The proof of 1 tree holds" :
    `The proofs of ${good.length} trees hold${isSame ? " and say the same" : ""}`;
  const rest = `${claimed ? `; ${claimed} claimed and not shown` : ""}` +
    `${refused ? `; ${refused} refused` : ""}.`;
  const agree = isSame ? `${proofs}${rest}` : `${proofs}, and they do not say the same${rest}`;
  const { account, slots } = good[0].shown;
  const pairs = account ? [
    ["Balance", ether(account.balance)],
    ["Nonce", count(account.nonce)],
    ["Code hash", hash(account.codeHash, "code hash")],
  ] : [["Account", "not there"]];
  if (asked.slot != null) {
    pairs.push([`Slot ${asked.slot}`, el("span", { class: "mono" }, slots[0] ?? "no value")]);
  }
  const isGood = isSame && refused === 0;
  return [el("p", { class: isGood ? "agree" : "agree bad" }, agree), facts("facts", pairs)];
}

/* Sum trees. */

async function lookUpSum() {
  const [namespace, key] = [at("namespace").value, hex("key", 64, "A key")];
  remember({ namespace, key });
  const verify = await verifier;
  const [answers] = await ask([["spinney_getSumProof", [namespace, [key]]]]);
  if (answers instanceof Refusal) throw answers;
  const [answer] = answers;
  const question = {
    tree: answer.tree, root: answer.root, rootSum: answer.root_sum, key, answer,
  };
  const card = new ProofCard(verify, question, { alone: true });
  await card.check();
  at("sum").replaceChildren(card.element);
}

/* The head of the page and the table of trees. */

function tellHead(status) {
  const { head, chainId, finalized } = status;
  const pairs = [["Head", head ? count(head.number) : "no block"]];
  if (head) pairs.push(["Hash", hash(head.hash, "hash of the last block")]);
  if (finalized) pairs.push(["Final", count(finalized)]);
  if (chainId) pairs.push(["Chain", count(chainId)]);
  at("head").replaceChildren(...facts("", pairs).childNodes);
}

function tellTrees() {
  const row = (tree) => {
    const cells = [
      ["Tree", el("span", { class: "mono" }, tree.tree)],
      ["Name", tree.namespace ?? "state"],
      ["Root", tree.root ? hash(tree.root, `root of ${tree.tree}`) : "none yet"],
      ["Sum", tree.root_sum ? count(tree.root_sum) : "–"],
      ["Block", tree.block ? count(tree.block) : "–"],
      ["Commit", count(tree.commit)],
    ];
    return el("tr", {}, cells.map(([name, cell], place) =>
      el("td", { "data-label": name, class: place > 2 ? "number" : null }, el("span", {}, cell))));
  };
  const names = ["Tree", "Name", "Root", "Sum", "Block", "Commit"];
  const head = names.map((name, place) =>
    el("th", { scope: "col", class: place > 2 ? "number" : null }, name));
  at("trees").replaceChildren(trees.length === 0 ?
    el("p", { class: "lead" }, "The store holds no tree yet.") :
    el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, trees.map(row))));
  const spaces = trees.filter((tree) => tree.tree.startsWith("sum") && tree.namespace);
  const kept = at("namespace").value;
  at("namespace").replaceChildren(...spaces.map(({ namespace }) =>
    el("option", { selected: namespace === kept }, namespace)));
  at("sums").hidden = spaces.length === 0;
  at("lookup").hidden = trees.length > 0 && stateTrees().length === 0;
}

let last = "";

async function refresh() {
  const answers = await ask([["spinney_status", []], ["spinney_trees", []]]);
  const refused = answers.find((answer) => answer instanceof Refusal);
  if (refused) throw refused;
  const [status, found] = answers;
  // What did not change stays as it is, also under the pointer.
  const text = JSON.stringify([{ ...status, startedSecondsAgo: 0 }, found]);
  if (text === last) return;
  last = text;
  trees = found;
  tellHead(status);
  tellTrees();
}

let pause = REFRESH_MILLISECONDS;

/** Asks again and again, less often while nobody answers, and not while nobody looks. */
async function keepFresh() {
  try {
    if (!document.hidden) await refresh();
    pause = REFRESH_MILLISECONDS;
    tellAlive("well", "The server answers.");
  } catch (why) {
    pause = Math.min(2 * pause, REFRESH_MILLISECONDS_MAX);
    tellAlive("ill", why.message);
  }
  setTimeout(keepFresh, pause);
}

function tellAlive(how, text) {
  const alive = at("alive");
  if (alive.textContent === text) return;
  alive.className = `alive ${how}`;
  alive.textContent = text;
}

/* The start. */

function submit(form, error, out, work) {
  at(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(at(form), at(error), at(out), work);
  });
}

async function followLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  if (!link.get("address") && !link.get("key")) return;
  for (const name of ["address", "slot", "block", "key"]) at(name).value = link.get(name) ?? "";
  if (link.get("namespace")) at("namespace").value = link.get("namespace");
  if (link.get("address")) at("account-form").requestSubmit();
  if (link.get("key")) at("sum-form").requestSubmit();
}

submit("account-form", "account-error", "account", lookUpAccount);
submit("sum-form", "sum-error", "sum", lookUpSum);
window.addEventListener("hashchange", followLink);
await keepFresh();
await followLink();
