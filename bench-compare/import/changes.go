package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// followed are the trees into which blocks of many changes go.
const followed = "mpt,pbt:blake3"

// changed measures what a block of so many changes costs, once its senders, its execution, its roots in two trees
// and a commit of its own are paid: what a replay of all blocks takes beyond one of the first tenth.
func changed(chain chain, spinney, folder string, s size, rounds int) error {
	first := s.blocks / 10
	var cpu, wall []time.Duration
	for range rounds {
		var costs [2]cost
		for at, last := range []int{first, s.blocks} {
			store := filepath.Join(folder, "changed")
			c, out, err := measure(spinney, "replay", "--genesis", chain.file("genesis.json"), "--blocks", chain.file("chain.rlp"),
				"--tree", followed, "--db", store, "--commit-every", "1", "--to", fmt.Sprint(last), "--format", "json", "--quiet")
			if err != nil {
				return err
			}
			costs[at] = c
			if at == 1 && len(cpu) == 0 {
				byStage := stages{}
				if _, err := byStage.take(out); err != nil {
					return err
				}
				fmt.Printf("stages of a block, ms:")
				for _, name := range sorted(byStage) {
					fmt.Printf(" %s %.1f", name, byStage[name][0]*1e3/float64(s.blocks))
				}
				fmt.Println()
			}
			if err := os.RemoveAll(store); err != nil {
				return err
			}
		}
		blocks := time.Duration(s.blocks - first)
		between := costs[1].without(costs[0])
		cpu, wall = append(cpu, between.cpu/blocks), append(wall, between.wall/blocks)
	}
	slices.Sort(cpu)
	slices.Sort(wall)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	fmt.Printf("%v into %s, a commit each: %.1f ms of CPU a block (%.1f to %.1f), %.1f ms of wall time, medians of %d rounds\n",
		s, followed, ms(cpu[len(cpu)/2]), ms(cpu[0]), ms(cpu[len(cpu)-1]), ms(wall[len(wall)/2]), rounds)
	return nil
}

func sorted(s stages) []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
