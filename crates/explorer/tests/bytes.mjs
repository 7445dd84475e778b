// Loads the verifier that is served, as the page does, and has it check ten proofs, then each of
// them with every single byte changed, one at a time.
//
//     node bytes.mjs VERIFIER.JS VERIFIER.WASM PROOFS.JSON

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [script, wasm, proofs] = process.argv.slice(2);
const { load } = await import(pathToFileURL(script));
const verify = await load(readFileSync(wasm));

/** The text with each byte that is in hex, and each digit of a sum, changed in turn. */
function* changes(text) {
  // The number of the block is no part of what is proven.
  const hidden = text.replace(/"block": *"0x[0-9a-f]+"/, (found) => "-".repeat(found.length));
  for (const { index, 0: run } of hidden.matchAll(/0x[0-9a-f]+/g)) {
    for (let at = index + 2 + (run.length % 2); at < index + run.length; at += 2) {
      const byte = (parseInt(text.slice(at, at + 2), 16) ^ 1).toString(16).padStart(2, "0");
      yield text.slice(0, at) + byte + text.slice(at + 2);
    }
    if (run.length % 2 === 1) {
      const digit = (parseInt(text[index + 2], 16) ^ 1).toString(16);
      yield text.slice(0, index + 2) + digit + text.slice(index + 3);
    }
  }
  for (const { index, 0: run } of hidden.matchAll(/sum": *"[0-9]+/g)) {
    const at = index + run.length - 1;
    yield text.slice(0, at) + (9 - Number(text[at])) + text.slice(at + 1);
  }
}

let [held, refused, accepted] = [0, 0, 0];
for (const question of JSON.parse(readFileSync(proofs))) {
  const text = JSON.stringify(question.answer);
  const whole = await verify({ ...question, answer: text });
  if (!whole.holds) throw new Error(`${question.tree}: ${whole.why}`);
  held += 1;
  for (const answer of changes(text)) {
    const outcome = await verify({ ...question, answer });
    if (outcome.holds) {
      console.error(`${question.tree} holds, changed: ${answer}`);
      accepted += 1;
    } else {
      if (outcome.why.startsWith("the verifier stopped")) throw new Error(outcome.why);
      refused += 1;
    }
  }
}
console.log(`${held} proofs hold; ${refused} changed ones are refused, ${accepted} are not`);
process.exitCode = accepted === 0 ? 0 : 1;
