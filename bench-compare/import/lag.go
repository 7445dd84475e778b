package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// lag lets spinney follow a node that makes a block every few seconds, and measures how long after the node has
// a block spinney serves it: executed, its root checked, and committed.
func lag(p programs, folder string, c course) error {
	node := &devNode{program: p.geth, data: filepath.Join(folder, "node"), period: c.period}
	genesis, err := node.prepare(folder)
	if err != nil {
		return err
	}
	if err := node.start(); err != nil {
		return err
	}
	defer func() { _ = node.end(syscall.SIGKILL) }()
	follower, err := startFollower(p.spinney, folder, genesis, string(node.url), c.poll)
	if err != nil {
		return err
	}
	defer func() { _ = follower.process.Process.Kill() }()
	account, err := node.account()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(c.seed, 1))
	work := &workload{random: random, from: account, touched: []string{account}}
	seen := map[uint64]time.Time{}
	var after []time.Duration
	theirs, err := node.head()
	if err != nil {
		return err
	}
	first := theirs + 1
	ours, txs, began := theirs, 0, time.Now()
	for most := time.Duration(c.blocks*c.period)*2*time.Second + slow; len(after) < c.blocks; {
		if time.Since(began) > most {
			return fmt.Errorf("after %v it has %d of %d blocks", most, len(after), c.blocks)
		}
		head, err := node.head()
		if err != nil {
			return err
		}
		for ; theirs < head; theirs++ {
			seen[theirs+1] = time.Now()
			// They come into the next block.
			for range random.IntN(4) + 1 {
				if err := work.transfer(node); err != nil {
					return err
				}
				txs++
			}
		}
		head, err = follower.head()
		if err != nil {
			return err
		}
		for ; ours < min(head, theirs); ours++ {
			if ours+1 >= first {
				after = append(after, time.Since(seen[ours+1]))
			}
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := follower.compare(node, work); err != nil {
		return err
	}
	told, err := follower.stop()
	if err != nil {
		return err
	}
	slices.Sort(after)
	at := func(part float64) float64 { return after[int(part*float64(len(after)-1))].Seconds() * 1e3 }
	fmt.Printf("a block every %d s, asked for every %v, %d transactions: %s; from the node's having a block until it is served: median %.0f ms, p90 %.0f ms, p99 %.0f ms, most %.0f ms of %d blocks\n",
		c.period, c.poll, txs, told, at(0.5), at(0.9), at(0.99), at(1), len(after))
	return nil
}

// transfer gives something to somebody.
func (l *workload) transfer(n *devNode) error {
	to := fmt.Sprintf("0x00000000000000000000000000000000%08x", l.random.Uint32N(300)+0x1000)
	tx := map[string]any{"from": l.from, "to": to, "gas": "0x30000", "value": fmt.Sprintf("0x%x", l.random.Uint32N(1000)+1)}
	if _, err := n.call("eth_sendTransaction", tx); err != nil {
		return err
	}
	l.touched = append(l.touched, to)
	return nil
}
