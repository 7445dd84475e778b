"""web3.py asks a running `spinney serve` for proofs, and py-trie verifies them.

    python3 -m venv target/web3 && target/web3/bin/pip install -r requirements.txt
    target/web3/bin/python run.py http://127.0.0.1:8545 ADDRESS [SLOT ..]
"""

import sys

import rlp
from trie import HexaryTrie
from web3 import Web3

EMPTY_ROOT = bytes.fromhex("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421")
NOBODY = "0x" + "ab" * 20


def value_of(root, key, proof):
    """What a trie holds under a key, as RLP; nothing where it holds none."""
    if root == EMPTY_ROOT:
        assert not proof
        return b""
    nodes = [rlp.decode(bytes(node)) for node in proof]
    return HexaryTrie.get_from_proof(root, Web3.keccak(key), nodes)


def check(web3, address, slots, block):
    """Compares an account and its slots with what their proofs show. Counts values and absences."""
    answer = web3.eth.get_proof(Web3.to_checksum_address(address), slots, block)
    root = web3.provider.make_request("spinney_getRoot", ["mpt", hex(block)])["result"]
    leaf = value_of(bytes.fromhex(root[2:]), bytes.fromhex(address[2:]), answer["accountProof"])
    if not leaf:
        assert answer["nonce"] == 0 and answer["balance"] == 0, answer
        return 0, 1
    nonce, balance, storage_root, code_hash = rlp.decode(leaf)
    assert int.from_bytes(nonce, "big") == answer["nonce"]
    assert int.from_bytes(balance, "big") == answer["balance"]
    assert balance == rlp.sedes.big_endian_int.serialize(
        web3.eth.get_balance(Web3.to_checksum_address(address), block))
    assert storage_root == bytes(answer["storageHash"])
    assert code_hash == bytes(answer["codeHash"])
    held, absent = 1, 0
    for slot in answer["storageProof"]:
        key = int.from_bytes(bytes(slot["key"]), "big").to_bytes(32, "big")
        value = value_of(storage_root, key, slot["proof"])
        shown = int.from_bytes(rlp.decode(value), "big") if value else 0
        assert shown == int.from_bytes(bytes(slot["value"]), "big"), slot
        held, absent = held + bool(value), absent + (not value)
    return held, absent


def main():
    url, address, *slots = sys.argv[1:]
    web3 = Web3(Web3.HTTPProvider(url))
    head = web3.eth.block_number
    slots = [int(slot, 0) for slot in slots]
    counts = [check(web3, account, slots, block)
              for block in sorted({0, head // 2, head}) for account in (address, NOBODY)]
    held, absent = map(sum, zip(*counts))
    print(f"{held} values and {absent} absences proven by py-trie, as web3.py asked for them")


main()
