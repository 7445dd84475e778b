package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/trie/bintrie"
)

// blockWrites is a line of what `cargo run -p spinney-replay -F measure --example ubt_writes`
// prints: what a block writes to the tree of EIP-7864, and the root that spinney has after it.
type blockWrites struct {
	Block uint64                   `json:"block"`
	Put   map[string]hexutil.Bytes `json:"put"`
	Root  common.Hash              `json:"root"`
}

// replayWrites makes the writes of a file, block by block, in geth's binary trie, commits each, and
// compares the roots.
func replayWrites(path string) {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	t, err := bintrie.NewBinaryTrie(types.EmptyBinaryHash, nodes{}, groupDepth)
	must(err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	var blocks, writes int
	var root common.Hash
	for lines.Scan() {
		var block blockWrites
		must(json.Unmarshal(lines.Bytes(), &block))
		for stem, values := range byStem(block.Put) {
			must(t.UpdateStem([]byte(stem), values))
		}
		if hash := t.Hash(); hash != block.Root {
			fail("block %d: geth has the root %x, spinney has %x", block.Block, hash, block.Root)
		}
		if root, _ = t.Commit(false); root != block.Root {
			fail("block %d: geth commits to the root %x, spinney has %x", block.Block, root, block.Root)
		}
		blocks, writes = blocks+1, writes+len(block.Put)
	}
	must(lines.Err())
	if blocks == 0 {
		fail("%s holds no blocks", path)
	}
	fmt.Printf("%d blocks, %d writes, every root equal; the last one is %x\n", blocks, writes, root)
}

// byStem gathers values under the stems of their keys, as geth takes them.
func byStem(puts map[string]hexutil.Bytes) map[string][][]byte {
	stems := make(map[string][][]byte)
	for name, value := range puts {
		key, err := hexutil.Decode(name)
		must(err)
		if len(key) != bintrie.StemSize+1 || len(value) != bintrie.HashSize {
			fail("a key of %d and a value of %d bytes", len(key), len(value))
		}
		stem := string(key[:bintrie.StemSize])
		if stems[stem] == nil {
			stems[stem] = make([][]byte, bintrie.StemNodeWidth)
		}
		stems[stem][key[bintrie.StemSize]] = value
	}
	return stems
}
