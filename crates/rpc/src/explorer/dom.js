// Pieces of the page. All text goes in as text: nothing that a server says becomes markup.

/** An element with attributes, listeners (`onclick`) and children, of which `null` is left out. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** A list of names and what they stand for. */
export function facts(kind, pairs) {
  const pair = ([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
  return el("dl", { class: kind }, pairs.map(pair));
}

/** The ends of a hash. */
export function short(hash, ends = 8) {
  return hash.length <= 2 * ends + 4 ? hash : `${hash.slice(0, ends + 2)}…${hash.slice(-ends)}`;
}

/** A hash in short, with a button that copies it whole. */
export function hash(whole, what) {
  const copy = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(whole);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  const name = `Copy the ${what}`;
  return el("span", {},
    el("span", { class: "mono", title: whole }, short(whole)),
    el("button", { class: "copy", type: "button", "aria-label": name, onclick: copy }, "Copy"));
}

/** A whole number with its thousands apart. */
export function count(number) {
  return BigInt(number).toLocaleString("en-US").replaceAll(",", "\u202f");
}

/** Wei as ether, with all digits that are not zero. */
export function ether(wei) {
  const digits = BigInt(wei).toString().padStart(19, "0");
  const rest = digits.slice(-18).replace(/0+$/, "");
  return `${count(digits.slice(0, -18))}${rest && `.${rest}`} ETH`;
}
