// Clients that others wrote ask a running `spinney serve` for proofs, and verifiers that others
// wrote check them. No code of ours but the server takes part.
//
//     npm ci
//     node run.mjs http://127.0.0.1:8545 ADDRESS [SLOT ..]

import { verifyMerkleProof } from "@ethereumjs/mpt";
import { JsonRpcProvider, decodeRlp, keccak256, toQuantity } from "ethers";
import { bytesToHex, createPublicClient, hexToBytes, http, pad } from "viem";

const EMPTY_ROOT = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";
const NOBODY = "0xabababababababababababababababababababab";

const [url, address, ...slots] = process.argv.slice(2);
const viem = createPublicClient({ transport: http(url) });
const ethers = new JsonRpcProvider(url);
const counts = { held: 0, absent: 0, refused: 0, compared: 0 };

function same(what, got, expected) {
  if (String(got).toLowerCase() !== String(expected).toLowerCase()) {
    throw new Error(`${what}: ${got}, not ${expected}`);
  }
  counts.compared += 1;
}

/** What a trie holds under a key, by the verifier of ethereumjs: hex of RLP, or `null`. */
async function valueOf(root, key, proof) {
  if (root === EMPTY_ROOT) return proof.length === 0 ? null : Promise.reject(new Error("nodes"));
  if (keccak256(proof[0]) !== root) throw new Error("the first node is not that of the root");
  const nodes = proof.map((node) => hexToBytes(node));
  const value = await verifyMerkleProof(hexToBytes(keccak256(key)), nodes);
  return value === null ? null : bytesToHex(value);
}

/** Whether a proof leads to another value, or to none, once a byte of a node is another. */
async function isRefused(root, key, proof, value) {
  const at = Math.floor(proof.length / 2);
  const byte = parseInt(proof[at].slice(-2), 16) ^ 1;
  const changed = proof[at].slice(0, -2) + byte.toString(16).padStart(2, "0");
  try {
    return (await valueOf(root, key, proof.with(at, changed))) !== value;
  } catch {
    return true;
  }
}

async function checkAccount(account, blockNumber) {
  const request = { address: account, storageKeys: slots.map((slot) => pad(slot)), blockNumber };
  const [proof, root] = await Promise.all([
    viem.getProof(request),
    viem.request({ method: "spinney_getRoot", params: ["mpt", toQuantity(blockNumber)] }),
  ]);
  const leaf = await valueOf(root, account, proof.accountProof);
  if (leaf === null) {
    same("nonce of nobody", proof.nonce, 0);
    counts.absent += 1;
  } else {
    const [nonce, balance, storageHash, codeHash] = decodeRlp(leaf);
    const number = (hex) => BigInt(hex === "0x" ? 0 : hex);
    same("nonce", number(nonce), proof.nonce);
    same("balance", number(balance), proof.balance);
    same("storage root", storageHash, proof.storageHash);
    same("code hash", codeHash, proof.codeHash);
    counts.held += 1;
  }
  if (!(await isRefused(root, account, proof.accountProof, leaf))) {
    throw new Error("a changed proof of the account holds");
  }
  counts.refused += 1;
  for (const slot of leaf === null ? [] : proof.storageProof) {
    const value = await valueOf(proof.storageHash, pad(slot.key), slot.proof);
    same("slot", value === null ? 0n : BigInt(decodeRlp(value)), slot.value);
    counts[value === null ? "absent" : "held"] += 1;
  }
  // The other client, by other methods.
  same("balance by ethers", await ethers.getBalance(account, Number(blockNumber)), proof.balance);
  same("nonce by ethers", await ethers.getTransactionCount(account, Number(blockNumber)),
    proof.nonce);
  for (const slot of leaf === null ? [] : proof.storageProof) {
    const word = await ethers.getStorage(account, BigInt(slot.key), Number(blockNumber));
    same("slot by ethers", BigInt(word), slot.value);
  }
  const raw = await ethers.send("eth_getProof", [account, slots, toQuantity(blockNumber)]);
  same("proof by ethers", raw.accountProof, proof.accountProof);
}

const head = await viem.getBlockNumber();
const { earliest } = await viem.request({ method: "debug_proofsSyncStatus", params: [] });
const blocks = new Set([head, head - (head - BigInt(earliest)) / 2n, BigInt(earliest)]);
for (const block of blocks) {
  for (const account of [address, NOBODY]) await checkAccount(account, block);
}
ethers.destroy();
console.log(`blocks ${[...blocks].join(", ")}: ${counts.held} values and ${counts.absent} ` +
  `absences proven by ethereumjs, ${counts.refused} changed proofs refused, ` +
  `${counts.compared} fields equal in viem and ethers`);
