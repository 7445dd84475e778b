// Drives a Chromium without a window, by its DevTools protocol over two pipes: no port, no package.

import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long the browser may take for one thing, in milliseconds. */
const PATIENCE = 60_000;

/** Starts the browser at `path` and opens a page. `close` ends it. */
export async function open(path) {
  const profile = mkdtempSync(join(tmpdir(), "explorer-"));
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"];
  const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
  const child = spawn(path, flags, { stdio, detached: true });
  const [, , , commands, answers] = child.stdio;
  const waiting = new Map();
  let [last, rest] = [0, ""];
  const fail = (error) => waiting.forEach(({ reject }) => reject(error));
  child.on("exit", () => fail(new Error("the browser ended")));
  answers.setEncoding("utf8").on("data", (part) => {
    const messages = (rest + part).split("\0");
    rest = messages.pop();
    for (const { id, result, error } of messages.map((text) => JSON.parse(text))) {
      const { resolve, reject } = waiting.get(id) ?? {};
      waiting.delete(id);
      if (error) reject?.(new Error(error.message));
      else resolve?.(result);
    }
  });
  const send = (method, params, sessionId) => new Promise((resolve, reject) => {
    last += 1;
    waiting.set(last, { resolve, reject });
    commands.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
    setTimeout(() => reject(new Error(`${method} takes too long`)), PATIENCE).unref();
  });
  const { targetInfos } = await send("Target.getTargets", {});
  const { targetId } = targetInfos.find(({ type }) => type === "page");
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  return {
    send: (method, params = {}) => send(method, params, sessionId),
    async close() {
      const ended = new Promise((resolve) => { child.once("exit", resolve); });
      // Its helpers are of its group, and can write to the profile for a moment after it ended.
      process.kill(-child.pid, "SIGKILL");
      await ended;
      await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}

/** What an expression in the page comes to, also one that has to be waited for. */
export async function evaluate(page, expression) {
  const params = { expression, awaitPromise: true, returnByValue: true };
  const { result, exceptionDetails } = await page.send("Runtime.evaluate", params);
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? expression);
  return result.value;
}

/** Looks again and again until an expression in the page is true. */
export async function until(page, expression) {
  const end = Date.now() + PATIENCE;
  while (Date.now() < end) {
    if (await evaluate(page, expression)) return;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  const text = await evaluate(page, "document.body.innerText");
  throw new Error(`${expression} did not come true: ${text}`);
}
