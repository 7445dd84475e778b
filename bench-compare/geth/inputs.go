package main

import "encoding/binary"

// The inputs, equal to those of the Rust workers: see bench-compare/trees/src/inputs.rs.

const (
	keyBytes   = 32
	valueBytes = 78
)

type leaf struct{ key, value []byte }

type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) fill(n int) []byte {
	words := make([]byte, 0, n+7)
	for len(words) < n {
		words = binary.BigEndian.AppendUint64(words, r.next())
	}
	return words[:n:n]
}

func leaves(count int) []leaf {
	r := random(42)
	all := make([]leaf, count)
	for i := range all {
		all[i] = leaf{r.fill(keyBytes), r.fill(valueBytes)}
	}
	return all
}

func changes(leaves []leaf, count int, round uint64) []leaf {
	r := random(1000 + round)
	drawn := make(map[uint64]bool, count)
	chosen := make([]leaf, 0, count)
	for len(chosen) < count {
		index := r.next() % uint64(len(leaves))
		if !drawn[index] {
			drawn[index] = true
			chosen = append(chosen, leaf{leaves[index].key, r.fill(valueBytes)})
		}
	}
	return chosen
}
