// The Go side of bench-compare/verkle: go-verkle on the inputs and in the order of ../src/work.rs.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/ethereum/go-verkle"
	"golang.org/x/sys/unix"
)

// line is what is told of one measurement.
type line struct {
	Case  string `json:"case"`
	Keys  int    `json:"keys"`
	CPU   uint64 `json:"cpu_ns"`
	Wall  uint64 `json:"wall_ns"`
	Bytes uint64 `json:"bytes"`
	Check string `json:"check"`
}

func tell(l line) {
	text, err := json.Marshal(l)
	must(err)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func key(i int) []byte {
	var buf [9]byte
	buf[0] = 'k'
	binary.LittleEndian.PutUint64(buf[1:], uint64(i))
	sum := sha256.Sum256(buf[:])
	return sum[:]
}

func value(round, i int) []byte {
	var buf [17]byte
	buf[0] = 'v'
	binary.LittleEndian.PutUint64(buf[1:], uint64(round))
	binary.LittleEndian.PutUint64(buf[9:], uint64(i))
	sum := sha256.Sum256(buf[:])
	return sum[:]
}

func cpu() uint64 {
	var ts unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return uint64(ts.Nano())
}

func resident() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	must(err)
	pages, err := strconv.ParseUint(string(bytes.Fields(text)[1]), 10, 64)
	must(err)
	return pages * uint64(os.Getpagesize())
}

func measure(name string, keys int, work func() string) {
	before, start := cpu(), time.Now()
	check := work()
	tell(line{Case: name, Keys: keys, CPU: cpu() - before, Wall: uint64(time.Since(start)), Check: check})
}

func insert(root verkle.VerkleNode, keys, values [][]byte) string {
	for i := range keys {
		must(root.Insert(keys[i], values[i], nil))
	}
	sum := root.Commit().Bytes()
	return fmt.Sprintf("%x", sum)
}

func inputs(n int, round int, index func(int) int) (keys, values [][]byte) {
	for j := 0; j < n; j++ {
		keys = append(keys, key(index(j)))
		values = append(values, value(round, index(j)))
	}
	return
}

func update(size, round, n int) (keys, values [][]byte) {
	return inputs(size, round, func(j int) int { return (round*7919 + j*101) % n })
}

// store is the nodes of a tree as go-verkle serializes them, by their paths.
type store map[string][]byte

func stored(keys, values [][]byte) store {
	root := verkle.New()
	insert(root, keys, values)
	stored := store{}
	stored.write(root)
	return stored
}

// write takes up all nodes of a tree that were loaded: go-verkle knows no others as changed.
func (s store) write(root verkle.VerkleNode) {
	nodes, err := root.(*verkle.InternalNode).BatchSerialize()
	must(err)
	for _, node := range nodes {
		s[string(node.Path)] = node.SerializedBytes
	}
}

// update changes the tree in the store: only nodes on the paths of the keys are loaded, and written.
func (s store) update(keys, values [][]byte) string {
	root, err := verkle.ParseNode(s[""], 0)
	must(err)
	read := func(path []byte) ([]byte, error) { return s[string(path)], nil }
	for i := range keys {
		must(root.Insert(keys[i], values[i], read))
	}
	sum := root.Commit().Bytes()
	s.write(root)
	return fmt.Sprintf("%x", sum)
}

func main() {
	if len(os.Args) != 5 {
		must(fmt.Errorf("usage: bench-verkle MODE KERNEL KEYS ROUNDS"))
	}
	mode := os.Args[1]
	n, err := strconv.Atoi(os.Args[3])
	must(err)
	rounds, err := strconv.Atoi(os.Args[4])
	must(err)
	// The tables are apart.
	verkle.GetConfig()
	warm, warmValues := inputs(100, 0, func(j int) int { return -1 - j })
	insert(verkle.New(), warm, warmValues)
	keys, values := inputs(n, 0, func(j int) int { return j })
	if mode == "memory" {
		before := resident()
		root := verkle.New()
		check := insert(root, keys, values)
		tell(line{Case: "memory", Keys: n, Bytes: resident() - before, Check: check})
		runtime.KeepAlive(root)
		return
	}
	if mode == "written" {
		stored := stored(keys, values)
		for _, size := range []int{1000, 10000} {
			for round := 1; round <= rounds; round++ {
				keys, values := update(size, round, n)
				measure("written", size, func() string { return stored.update(keys, values) })
			}
		}
		return
	}
	var root verkle.VerkleNode
	for range rounds {
		root = verkle.New()
		measure("load", n, func() string { return insert(root, keys, values) })
	}
	if mode == "load" {
		return
	}
	for _, size := range []int{1000, 10000} {
		for round := 1; round <= rounds; round++ {
			keys, values := update(size, round, n)
			before, start := cpu(), time.Now()
			check := insert(root, keys, values)
			// The root is all that it makes.
			for _, name := range []string{"root", "update"} {
				tell(line{Case: name, Keys: size, CPU: cpu() - before, Wall: uint64(time.Since(start)), Check: check})
			}
		}
	}
	for _, size := range []int{1, 1000} {
		for round := 1; round <= rounds; round++ {
			keys, _ := inputs(size, 0, func(j int) int { return (round*7919 + j*97) % n })
			prove(root, keys)
		}
	}
}

func prove(root verkle.VerkleNode, keys [][]byte) {
	var vp *verkle.VerkleProof
	var diff verkle.StateDiff
	measure("prove", len(keys), func() string {
		proof, _, _, _, err := verkle.MakeVerkleMultiProof(root, nil, keys, nil)
		must(err)
		vp, diff, err = verkle.SerializeProof(proof)
		must(err)
		return fmt.Sprintf("%x", vp.D)
	})
	at := root.Commitment().Bytes()
	measure("verify", len(keys), func() string {
		must(verkle.Verify(vp, at[:], at[:], diff))
		return ""
	})
}
