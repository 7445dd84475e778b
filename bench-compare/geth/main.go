// Command geth measures go-ethereum's tries on the inputs of bench-compare/trees, which builds and runs
// it: it reads a case a line and answers each with what it cost, a line of JSON. With `writes FILE` it
// makes the writes of a chain that spinney recorded, and compares the roots.
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/trie"
	"github.com/ethereum/go-ethereum/trie/trienode"
	"github.com/ethereum/go-ethereum/triedb/database"
)

type worker struct {
	leaves, sorted []leaf
	meter          meter
	live           *trie.Trie
	nodes          nodes
	binary         *binaryTrie
	chain          *chain
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "writes" {
		replayWrites(os.Args[2])
		return
	}
	if len(os.Args) != 2 {
		fail("usage: geth LEAVES, then cases on standard input; or geth writes FILE")
	}
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail("the number of leaves: %v", err)
	}
	w := &worker{leaves: leaves(count)}
	w.sorted = slices.SortedFunc(slices.Values(w.leaves), func(a, b leaf) int {
		return bytes.Compare(a.key, b.key)
	})
	w.meter = newMeter()
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var size, round int
		if len(words) > 1 {
			size, _ = strconv.Atoi(words[1])
		}
		if len(words) > 2 {
			round, _ = strconv.Atoi(words[2])
		}
		if err := out.Encode(w.answer(words[0], size, uint64(round))); err != nil {
			fail("%v", err)
		}
	}
}

func (w *worker) answer(name string, size int, round uint64) cost {
	switch name {
	case "bulk":
		return w.bulk()
	case "load":
		return w.load()
	case "root":
		return w.root(changes(w.leaves, size, round))
	case "root_batch":
		return w.rootBatch(changes(w.leaves, size, round))
	case "write_set":
		return w.writeSet(changes(w.leaves, size, round))
	case "single":
		return w.single(changes(w.leaves, size, round))
	case "prove":
		return w.prove(changes(w.leaves, size, round))
	case "verify":
		return w.verify(changes(w.leaves, size, round))
	case "binary_load":
		return w.binaryLoad(size)
	case "binary_update":
		return w.binaryUpdate(size, size, round)
	case "binary_single":
		return w.binaryUpdate(size, 1, round)
	case "blocks_mpt_load", "blocks_ubt_load":
		return w.blocksLoad(name == "blocks_ubt_load")
	case "blocks_mpt", "blocks_ubt":
		// Sizes follow one another on one tree, and every round moves it on.
		return w.chain.round(w.meter, size, round+1000*uint64(size))
	case "blocks_mpt_reads", "blocks_ubt_reads":
		return w.chain.reads
	}
	fail("no case %q", name)
	return cost{}
}

// bulk is the root of sorted leaves by geth's streaming builder.
func (w *worker) bulk() cost {
	var root common.Hash
	c := w.meter.run(func() {
		stack := trie.NewStackTrie(nil)
		for _, l := range w.sorted {
			must(stack.Update(l.key, l.value))
		}
		root = stack.Hash()
	})
	c.Root = hex.EncodeToString(root[:])
	return c
}

func (w *worker) load() cost {
	var root common.Hash
	c := w.meter.run(func() {
		w.live = trie.NewEmpty(nil)
		for _, l := range w.leaves {
			must(w.live.Update(l.key, l.value))
		}
		root = w.live.Hash()
	})
	c.Root = hex.EncodeToString(root[:])
	return c
}

// root makes changes to the live trie and hashes it. They are undone afterwards, beyond the measure, so
// that each round starts from the same trie: geth changes its nodes in place.
func (w *worker) root(changes []leaf) cost {
	var root common.Hash
	c := w.meter.run(func() {
		w.update(changes)
		root = w.live.Hash()
	})
	w.undo(changes)
	c.Root = hex.EncodeToString(root[:])
	return c
}

// rootBatch is root by way of UpdateBatch, which works on several threads.
func (w *worker) rootBatch(changes []leaf) cost {
	var root common.Hash
	keys, values := make([][]byte, len(changes)), make([][]byte, len(changes))
	for i, l := range changes {
		keys[i], values[i] = l.key, l.value
	}
	c := w.meter.run(func() {
		must(w.live.UpdateBatch(keys, values))
		root = w.live.Hash()
	})
	w.undo(changes)
	c.Root = hex.EncodeToString(root[:])
	return c
}

// single makes change after change, with a root after each. The root it names is that of the last one
// alone, as the others name it.
func (w *worker) single(changes []leaf) cost {
	c := w.meter.run(func() {
		for _, l := range changes {
			must(w.live.Update(l.key, l.value))
			w.live.Hash()
		}
	})
	w.undo(changes)
	last := changes[len(changes)-1:]
	w.update(last)
	root := w.live.Hash()
	w.undo(last)
	c.Root = hex.EncodeToString(root[:])
	return c
}

// writeSet is the set of changed nodes, of a trie opened on a database as geth opens one for a block,
// changed and hashed before the measure begins.
func (w *worker) writeSet(changes []leaf) cost {
	if w.nodes == nil {
		_, set := w.live.Copy().Commit(false)
		w.nodes = nodes{}
		for path, node := range set.Nodes {
			w.nodes[path] = node.Blob
		}
	}
	t, err := trie.New(trie.TrieID(w.live.Hash()), w.nodes)
	must(err)
	for _, l := range changes {
		must(t.Update(l.key, l.value))
	}
	t.Hash()
	var root common.Hash
	c := w.meter.run(func() { root, _ = t.Commit(false) })
	c.Root = hex.EncodeToString(root[:])
	return c
}

func (w *worker) update(changes []leaf) {
	for _, l := range changes {
		must(w.live.Update(l.key, l.value))
	}
}

func (w *worker) undo(changes []leaf) {
	for _, l := range changes {
		at, _ := slices.BinarySearchFunc(w.sorted, l.key, func(l leaf, key []byte) int {
			return bytes.Compare(l.key, key)
		})
		must(w.live.Update(l.key, w.sorted[at].value))
	}
	w.live.Hash()
}

// nodes is a database of nodes by path.
type nodes map[string][]byte

func (n nodes) NodeReader(common.Hash) (database.NodeReader, error) { return n, nil }

func (n nodes) Node(_ common.Hash, path []byte, _ common.Hash) ([]byte, error) {
	return n[string(path)], nil
}

func (w *worker) prove(chosen []leaf) cost {
	return w.meter.run(func() {
		for _, l := range chosen {
			var proof trienode.ProofList
			must(w.live.Prove(l.key, &proof))
		}
	})
}

// verify hashes the nodes of each proof, as one who is sent them has to, and checks it.
func (w *worker) verify(chosen []leaf) cost {
	proofs := make([]trienode.ProofList, len(chosen))
	for i, l := range chosen {
		must(w.live.Prove(l.key, &proofs[i]))
	}
	root := w.live.Hash()
	return w.meter.run(func() {
		for i, l := range chosen {
			value, err := trie.VerifyProof(root, l.key, proofs[i].Set())
			must(err)
			if len(value) != valueBytes {
				fail("a proof of another value")
			}
		}
	})
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "geth: "+format+"\n", args...)
	os.Exit(1)
}
