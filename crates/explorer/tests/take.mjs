// Asks a server for the ten proofs of testdata/explorer/proofs.json, and prints them.
//
//     spinney demo demo
//     spinney replay --tree mpt,ubt:sha256,pbt:blake3,verkle --genesis demo/genesis.json \
//         --blocks demo/chain.rlp --db state
//     spinney import tapd --db assets demo/assets.db
//     spinney serve --db state --listen 127.0.0.1:8545
//     spinney serve --db assets --listen 127.0.0.1:8546
//     node take.mjs http://127.0.0.1:8545 http://127.0.0.1:8546 KEY

const [state, sums, key] = process.argv.slice(2);
const PLAIN = "0x100ba66a4ed81db56d86104f53aa0cf96c5cc4ca";
const NOBODY = "0xabababababababababababababababababababab";
// The contract that keeps the hashes of blocks (EIP-2935): it has code and slots.
const CONTRACT = "0x0000f90827f1c53a10cb7a02335b175320002935";

async function call(url, method, params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const headers = { "Content-Type": "application/json" };
  const answer = await (await fetch(url, { method: "POST", headers, body })).json();
  if (answer.error) throw new Error(`${method}: ${answer.error.message}`);
  return answer.result;
}

async function account(tree, address, slots) {
  const root = await call(state, "spinney_getRoot", [tree, "latest"]);
  const answer = tree === "mpt" ? await call(state, "eth_getProof", [address, slots, "latest"]) :
    await call(state, "spinney_getProof", [tree, { address, slots }, "latest"]);
  return { tree, root, address, slots, answer };
}

async function sum(namespace, wanted) {
  const [answer] = await call(sums, "spinney_getSumProof", [namespace, [wanted]]);
  const { tree, root, root_sum: rootSum } = answer;
  return { tree, root, rootSum, key: wanted, answer };
}

console.log(JSON.stringify([
  await account("mpt", PLAIN, []),
  await account("mpt", NOBODY, ["0x0"]),
  await account("mpt", CONTRACT, ["0x1", "0xffff"]),
  await account("ubt:sha256", CONTRACT, ["0x1"]),
  await account("ubt:sha256", NOBODY, []),
  await account("pbt:blake3", CONTRACT, ["0x3b", "0xffff"]),
  await account("pbt:blake3", NOBODY, []),
  await account("verkle", CONTRACT, ["0x1"]),
  await sum("issuance-demo", key),
  await sum("issuance-demo", `0x${"5a".repeat(32)}`),
], null, 1));
