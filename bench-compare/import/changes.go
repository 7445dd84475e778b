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

// way is how blocks are taken, into a store, up to a block.
type way struct {
	name string
	args func(store string, last int) []string
}

// changed measures what a block of so many changes costs, once its senders, its execution, its roots in two trees
// and a commit of its own are paid: what it takes to come to the last block beyond what it takes to come to the end
// of the first tenth.
func changed(chain chain, spinney, folder string, s size, rounds int) error {
	replay := func(more ...string) func(string, int) []string {
		return func(store string, last int) []string {
			args := []string{"replay", "--genesis", chain.file("genesis.json"), "--blocks", chain.file("chain.rlp"),
				"--tree", followed, "--store", s.store, "--db", store, "--commit-every", "1", "--to", fmt.Sprint(last), "--format", "json", "--quiet"}
			return append(args, more...)
		}
	}
	ways := []way{{"replay, executed", replay()}}
	if s.lists {
		node, err := serveLists(chain)
		if err != nil {
			return err
		}
		defer node.close()
		follow := func(by string) func(string, int) []string {
			return func(store string, last int) []string {
				node.rewind()
				return []string{"follow", string(node.url), "--genesis", chain.file("genesis.json"), "--by", by, "--poll", "10",
					"--tree", followed, "--store", s.store, "--db", store, "--to", fmt.Sprint(last), "--format", "json", "--quiet"}
			}
		}
		ways = append(ways, way{"replay, by access lists", replay("--bals", chain.file("bals.ndjson"))},
			way{"follow, executed", follow("execution")}, way{"follow, by access lists", follow("lists")})
	}
	costs := make([]costsOfBlock, len(ways))
	for range rounds {
		for at, way := range ways {
			if err := costs[at].round(way, spinney, folder, s.blocks); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
	}
	fmt.Printf("%v into %s, a commit each, over %s; medians of %d rounds, in turn\n", s, followed, s.store, rounds)
	for at, way := range ways {
		fmt.Printf("%s: %v\n", way.name, &costs[at])
	}
	return nil
}

// costsOfBlock are what a block took, round by round.
type costsOfBlock struct {
	cpu, wall []time.Duration
	// stages are those of the first round, where they are told: milliseconds a block, waiting included.
	stages stages
}

func (c *costsOfBlock) round(way way, spinney, folder string, blocks int) error {
	first := blocks / 10
	var costs [2]cost
	for at, last := range []int{first, blocks} {
		store := filepath.Join(folder, "changed")
		cost, out, err := measure(spinney, way.args(store, last)...)
		if err != nil {
			return err
		}
		costs[at] = cost
		if at == 1 && c.stages == nil {
			c.stages = stages{}
			if _, err := c.stages.take(out); err != nil {
				return err
			}
			for _, all := range c.stages {
				all[0] *= 1e3 / float64(blocks)
			}
		}
		if err := os.RemoveAll(store); err != nil {
			return err
		}
	}
	between, count := costs[1].without(costs[0]), time.Duration(blocks-first)
	c.cpu, c.wall = append(c.cpu, between.cpu/count), append(c.wall, between.wall/count)
	return nil
}

func (c *costsOfBlock) String() string {
	slices.Sort(c.cpu)
	slices.Sort(c.wall)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	text := fmt.Sprintf("%.1f ms of CPU a block (%.1f to %.1f), %.1f ms of wall time", ms(c.cpu[len(c.cpu)/2]), ms(c.cpu[0]),
		ms(c.cpu[len(c.cpu)-1]), ms(c.wall[len(c.wall)/2]))
	if len(c.stages) > 0 {
		text += "; by stage, ms:"
	}
	for _, name := range sorted(c.stages) {
		text += fmt.Sprintf(" %s %.1f", name, c.stages[name][0])
	}
	return text
}

func sorted(s stages) []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
