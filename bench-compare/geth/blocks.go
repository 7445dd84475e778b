package main

import (
	"encoding/hex"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/trie"
	"github.com/ethereum/go-ethereum/trie/trienode"
)

// The block workload, with the blocks of bench-compare/trees/src/blocks.rs, which says how they are drawn.

const (
	blocksToACommit = 64
	shortBytes      = 60
)

// blockTree is a trie that blocks are put on.
type blockTree interface {
	get(key []byte)
	put(key, value []byte)
	remove(key []byte)
	hash() common.Hash
	// commit makes the set of changed nodes, adds it to what lies in memory, and opens the trie anew, as
	// geth does for the next block.
	commit() common.Hash
}

type chain struct {
	tree  blockTree
	stems bool
	keys  [][]byte
	reads cost
}

type block struct {
	reads   [][]byte
	changes []leaf
}

func (w *worker) blocksLoad(stems bool) cost {
	w.chain, w.live, w.binary = nil, nil, nil
	c := &chain{stems: stems}
	var root common.Hash
	load := w.meter.run(func() {
		if stems {
			b := newBinaryTrie(w.leaves)
			for _, l := range w.leaves {
				b.put(l)
			}
			c.tree = &binaryBlocks{trie: b, nodes: nodes{}}
		} else {
			t := trie.NewEmpty(nil)
			for _, l := range w.leaves {
				must(t.Update(l.key, l.value))
			}
			c.tree = &merkleBlocks{trie: t, nodes: nodes{}}
		}
		root = c.tree.hash()
	})
	c.tree.commit()
	for _, l := range w.leaves {
		c.keys = append(c.keys, c.key(l.key))
	}
	w.chain = c
	load.Root = hex.EncodeToString(root[:])
	return load
}

// round is 64 blocks and one commit; what their reads cost is kept apart.
func (c *chain) round(m meter, size int, round uint64) cost {
	var total cost
	var root common.Hash
	c.reads = cost{}
	for number := range uint64(blocksToACommit) {
		b := c.block(size, round*blocksToACommit+number)
		c.reads.add(m.run(func() {
			for _, key := range b.reads {
				c.tree.get(key)
			}
		}))
		total.add(m.run(func() {
			for _, change := range b.changes {
				if change.value == nil {
					c.tree.remove(change.key)
				} else {
					c.tree.put(change.key, change.value)
				}
			}
			root = c.tree.hash()
		}))
	}
	total.add(m.run(func() { root = c.tree.commit() }))
	total.Root = hex.EncodeToString(root[:])
	return total
}

func (c *chain) key(key []byte) []byte {
	if c.stems {
		key = slices.Clone(key)
		key[keyBytes-1] = 0
	}
	return key
}

func (c *chain) value(r *random, bytes int) []byte {
	value := r.fill(valueBytes)
	if c.stems {
		bytes = 32
	}
	return value[:bytes:bytes]
}

func (c *chain) block(size int, number uint64) block {
	r := random(2_000_000 + number)
	drawn := make(map[uint64]bool, size)
	var b block
	var fresh [][]byte
	var gone []int
	for len(b.changes) < size {
		change := r.next() % 100
		if change >= 85 && change < 95 {
			key := c.key(r.fill(keyBytes))
			b.changes = append(b.changes, leaf{key, c.value(&r, valueBytes)})
			fresh = append(fresh, key)
			continue
		}
		index := r.next() % uint64(len(c.keys))
		for drawn[index] {
			index = r.next() % uint64(len(c.keys))
		}
		drawn[index] = true
		var value []byte
		switch {
		case change < 70 || c.stems && change >= 95:
			value = c.value(&r, valueBytes)
		case change < 85:
			value = c.value(&r, shortBytes)
		default:
			gone = append(gone, int(index))
		}
		b.changes = append(b.changes, leaf{c.keys[index], value})
	}
	for _, change := range b.changes {
		b.reads = append(b.reads, change.key)
	}
	for range size {
		b.reads = append(b.reads, c.keys[r.next()%uint64(len(c.keys))])
	}
	c.keys = append(c.keys, fresh...)
	slices.Sort(gone)
	for _, index := range slices.Backward(gone) {
		last := len(c.keys) - 1
		c.keys[index] = c.keys[last]
		c.keys = c.keys[:last]
	}
	return b
}

// merkleBlocks is geth's Merkle Patricia trie.
type merkleBlocks struct {
	trie  *trie.Trie
	nodes nodes
}

func (t *merkleBlocks) get(key []byte) {
	_, err := t.trie.Get(key)
	must(err)
}

func (t *merkleBlocks) put(key, value []byte) { must(t.trie.Update(key, value)) }

func (t *merkleBlocks) remove(key []byte) { must(t.trie.Delete(key)) }

func (t *merkleBlocks) hash() common.Hash { return t.trie.Hash() }

func (t *merkleBlocks) commit() common.Hash {
	root, set := t.trie.Commit(false)
	t.nodes.add(set)
	next, err := trie.New(trie.TrieID(root), t.nodes)
	must(err)
	t.trie = next
	return root
}

// binaryBlocks is geth's binary trie, which goes on after a commit.
type binaryBlocks struct {
	trie  *binaryTrie
	nodes nodes
}

func (t *binaryBlocks) get(key []byte) { t.trie.get(key) }

func (t *binaryBlocks) put(key, value []byte) { t.trie.put(leaf{key, value}) }

func (t *binaryBlocks) remove([]byte) { fail("a binary trie of stems from which one is deleted") }

func (t *binaryBlocks) hash() common.Hash { return t.trie.trie.Hash() }

func (t *binaryBlocks) commit() common.Hash {
	root, set := t.trie.trie.Commit(false)
	t.nodes.add(set)
	return root
}

// add takes in what a commit changed.
func (n nodes) add(set *trienode.NodeSet) {
	if set == nil {
		return
	}
	for path, node := range maps.All(set.Nodes) {
		if node.IsDeleted() {
			delete(n, path)
		} else {
			n[path] = node.Blob
		}
	}
}

// add takes in what a further piece of the same work cost.
func (c *cost) add(other cost) {
	c.CPU += other.CPU
	c.Wall += other.Wall
	c.Allocs += other.Allocs
	c.AllocBytes += other.AllocBytes
	c.Peak = max(c.Peak, other.Peak)
}
