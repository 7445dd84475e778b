// Opens the explorer in a browser: it looks up an account, has the page verify it in every tree,
// tampers with one proof, and gives a root of its own.
//
//     node browser.mjs CHROMIUM URL ADDRESS TREES

import { evaluate, open, until } from "./chromium.mjs";

const [path, url, address, trees] = process.argv.slice(2);
const page = await open(path);

function expect(is, what) {
  if (!is) throw new Error(what);
}

try {
  await page.send("Page.navigate", { url });
  await until(page, "document.getElementById('alive')?.className === 'alive well'");
  const rows = await evaluate(page, "document.querySelectorAll('#trees tbody tr').length");
  expect(rows === Number(trees), `${rows} trees are listed`);

  // What is no address is refused beside the field, and the field gets the focus.
  await evaluate(page, "document.getElementById('address').value = '0x12'");
  await evaluate(page, "document.querySelector('#account-form button').click()");
  await until(page, "document.getElementById('account-error').textContent !== ''");
  expect(await evaluate(page, "document.activeElement.id === 'address'"), "no focus");

  await evaluate(page, `document.getElementById('address').value = '${address}'`);
  await evaluate(page, "document.getElementById('slot').value = '1'");
  await evaluate(page, "document.querySelector('#account-form button').click()");
  const verdicts = "[...document.querySelectorAll('#account .verdict strong')]" +
    ".map((verdict) => verdict.textContent).join()";
  const verified = Array(Number(trees)).fill("Verified in this page");
  await until(page, `${verdicts} === '${verified}'`);
  const agree = await evaluate(page, "document.querySelector('.agree').textContent");
  expect(agree === `The proofs of ${trees} trees hold and say the same.`, agree);
  const hash = await evaluate(page, "location.hash");
  expect(hash === `#address=${address}&slot=0x1`, hash);

  // A digit is changed, in each tree in turn, and then all is as it was.
  for (let at = 0; at < Number(trees); at += 1) {
    await evaluate(page, `document.querySelectorAll('button.flip')[${at}].click()`);
    const bad = verified.with(at, "Refused in this page");
    await until(page, `${verdicts} === '${bad}'`);
    const why = `document.querySelectorAll('.verdict span')[${at}].textContent`;
    expect((await evaluate(page, why)).length > 10, "it is not said why");
    const rest = await evaluate(page, "document.querySelector('.agree').textContent");
    expect(rest.endsWith("; 1 refused."), rest);
    await evaluate(page,
      `document.querySelectorAll('button.flip')[${at}].nextElementSibling.click()`);
    await until(page, `${verdicts} === '${verified}'`);
  }

  // A root that the reader trusts more than the server.
  await evaluate(page, `(() => {
    const root = document.querySelector('.root input');
    root.value = root.value.replace(/.$/, (digit) => digit === '0' ? '1' : '0');
    root.dispatchEvent(new Event('input'));
  })()`);
  await until(page, `${verdicts} === '${verified.with(0, "Refused in this page")}'`);

  // A block that is not there.
  await evaluate(page, "document.getElementById('block').value = '999'");
  await evaluate(page, "document.querySelector('#account-form button').click()");
  await until(page, "document.getElementById('account-error').textContent" +
    ".startsWith('The store has no such block.')");

  // A narrow screen has nothing to scroll sideways.
  const size = { width: 400, height: 800, deviceScaleFactor: 1, mobile: true };
  await page.send("Emulation.setDeviceMetricsOverride", size);
  const width = await evaluate(page, "document.documentElement.scrollWidth");
  expect(width <= 400, `the page is ${width} pixels wide`);
  console.log("the page holds");
} finally {
  await page.close();
}
