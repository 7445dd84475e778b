// Asks the server that this page came from, over JSON-RPC.

/** What the server refuses, in a sentence. */
export class Refusal extends Error {
  constructor({ code, message }) {
    super(sentence(code, message));
    this.code = code;
  }
}

function sentence(code, message) {
  switch (code) {
    case 4444:
      return `The store no longer keeps the state of that block. The server says: ${message}.`;
    case -32001: return `The store has no such block. The server says: ${message}.`;
    case -32005: return "The server has too much to do. Ask again in a moment.";
    case -32002: return "The server took too long. Ask again in a moment.";
    case -32003: return "The answer is longer than the server allows.";
    default: return `The server refuses: ${message}.`;
  }
}

/**
 * Sends requests, each a method and its params, in one batch: all answers are of one state. Returns
 * an answer or a `Refusal` for each. Throws if the server cannot be reached.
 */
export async function ask(requests) {
  const body = requests.map(([method, params], id) => ({ jsonrpc: "2.0", id, method, params }));
  const headers = { "Content-Type": "application/json" };
  let answers;
  try {
    const response = await fetch("/", { method: "POST", headers, body: JSON.stringify(body) });
    answers = await response.json();
  } catch {
    throw new Error("The server does not answer.");
  }
  if (!Array.isArray(answers)) throw new Refusal(answers.error);
  const of = new Map(answers.map((answer) => [answer.id, answer]));
  const missing = { error: { code: 0, message: "it left out an answer" } };
  return body.map(({ id }) => {
    const answer = of.get(id) ?? missing;
    return answer.error ? new Refusal(answer.error) : answer.result;
  });
}
