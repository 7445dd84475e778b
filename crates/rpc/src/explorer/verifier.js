// Asks the verifier: spinney-proof, compiled to WebAssembly. It needs no page, so tests load it in
// Node.

/** Compiles the verifier. Returns a function from a question to its outcome. */
export async function load(bytes) {
  const module = await WebAssembly.compile(bytes);
  const start = async () => (await WebAssembly.instantiate(module, {})).exports;
  let machine = await start();
  /**
   * Checks an answer. The question has `tree`, `root`, what was asked for (`address` and `slots`,
   * or `rootSum` and `key`), and as text the `answer`. The outcome has `holds`, and `shown` or
   * `why`.
   */
  return async function verify(question) {
    try {
      const text = new TextEncoder().encode(JSON.stringify(question));
      const room = machine.room(text.length);
      if (room === 0) return { holds: false, why: "the answer is too long to be checked here" };
      new Uint8Array(machine.memory.buffer, room, text.length).set(text);
      const length = machine.check();
      const answer = new Uint8Array(machine.memory.buffer, machine.answer(), length);
      return JSON.parse(new TextDecoder().decode(answer));
    } catch (error) {
      // What stops a verifier is no proof. The next question gets a new one.
      machine = await start();
      return { holds: false, why: `the verifier stopped: ${error.message}` };
    }
  };
}
