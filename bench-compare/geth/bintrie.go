package main

import (
	"encoding/hex"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/trie/bintrie"
)

// groupDepth is what geth takes by default (triedb.DefaultBinTrieGroupDepth).
const groupDepth = 5

// binaryTrie is geth's binary trie of EIP-7864: one value of 32 bytes a stem, at suffix 0. Stems are the
// first 31 bytes of the leaves' keys, values the first 32 of theirs.
type binaryTrie struct {
	trie  *bintrie.BinaryTrie
	stems []leaf
}

// newBinaryTrie is an empty one, for these stems.
func newBinaryTrie(stems []leaf) *binaryTrie {
	t, err := bintrie.NewBinaryTrie(types.EmptyBinaryHash, nodes{}, groupDepth)
	must(err)
	return &binaryTrie{trie: t, stems: stems}
}

// binaryLoad puts in the first `size` leaves, then hashes.
func (w *worker) binaryLoad(size int) cost {
	var b *binaryTrie
	w.binary = nil
	var root common.Hash
	c := w.meter.run(func() {
		b = newBinaryTrie(w.leaves[:size])
		for _, l := range b.stems {
			b.put(l)
		}
		root = b.trie.Hash()
	})
	w.binary = b
	c.Root = hex.EncodeToString(root[:])
	return c
}

// binaryUpdate changes one value in each of `size` stems, and commits after every `each`: root and changed
// nodes.
func (w *worker) binaryUpdate(size, each int, round uint64) cost {
	chosen := changes(w.binary.stems, size, round)
	var root common.Hash
	c := w.meter.run(func() {
		for batch := range slices.Chunk(chosen, each) {
			for _, l := range batch {
				w.binary.put(l)
			}
			root, _ = w.binary.trie.Commit(false)
		}
	})
	c.Root = hex.EncodeToString(root[:])
	return c
}

func (b *binaryTrie) put(l leaf) {
	values := make([][]byte, bintrie.StemNodeWidth)
	values[0] = slices.Clone(l.value[:bintrie.HashSize])
	must(b.trie.UpdateStem(l.key[:bintrie.StemSize], values))
}

func (b *binaryTrie) get(key []byte) {
	_, err := b.trie.GetWithHashedKey(key)
	must(err)
}
