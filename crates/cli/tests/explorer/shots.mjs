// Takes pictures of the explorer: wide and narrow, light and dark.
//
//     node shots.mjs CHROMIUM URL#address=.. FOLDER

import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { evaluate, open, until } from "./chromium.mjs";

const [path, url, folder] = process.argv.slice(2);
const page = await open(path);
try {
  for (const width of [1280, 400]) {
    for (const scheme of ["light", "dark"]) {
      const size = { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 };
      await page.send("Emulation.setDeviceMetricsOverride", size);
      const features = [{ name: "prefers-color-scheme", value: scheme }];
      await page.send("Emulation.setEmulatedMedia", { features });
      await page.send("Page.navigate", { url: "about:blank" });
      await page.send("Page.navigate", { url });
      await until(page, "document.querySelectorAll('.proof .path').length > 0");
      if (process.argv[5] === "tampered") {
        await evaluate(page, "document.querySelectorAll('details')[0].open = true");
        await evaluate(page, "document.querySelectorAll('button.flip')[0].click()");
        await until(page, "document.querySelectorAll('.proof.refused').length === 1");
      }
      const shot = { format: "png", captureBeyondViewport: true };
      const { cssContentSize } = await page.send("Page.getLayoutMetrics");
      shot.clip = { x: 0, y: 0, width, height: cssContentSize.height, scale: 1 };
      const { data } = await page.send("Page.captureScreenshot", shot);
      const name = join(folder, `${width}-${scheme}.png`);
      writeFileSync(name, Buffer.from(data, "base64"));
      console.log(`${name}: content is ${cssContentSize.width} pixels wide`);
    }
  }
} finally {
  await page.close();
}
