// Command import measures `geth import` beside `spinney replay` on the same chains, process beside
// process. See ../README.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

type options struct {
	size   size
	rounds int
	dir    string
	only   string
	// made are programs that are built already.
	made programs
	geth bool
	// chain is where the heavy chain is already.
	chain string
	// make is where a chain is to be made, and nothing measured.
	make string
	// kills is how many replays are to be killed, and nothing measured.
	kills int
	seed  uint64
	// course is what a node does that is to be followed, and nothing measured.
	course course
	// load is how long each server answers in each round, and nothing else is measured.
	load time.Duration
	// soak is how many requests are asked, and malformed how long there are such; nothing is measured.
	soak      int
	malformed time.Duration
}

func main() {
	o := parse()
	work := run
	if o.make != "" {
		work = func(o options) error { return makeChain(o.make, o.size) }
	}
	if err := work(o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func parse() options {
	o := options{size: heavy}
	small := flag.Bool("quick", false, "a small chain and one round: does everything still run?")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each contender; figures are medians")
	flag.StringVar(&o.dir, "dir", "", "where stores are made, and removed again: a disk, and not memory")
	flag.StringVar(&o.only, "only", "", "one chain alone: heavy, chain-600 or all-forks")
	flag.IntVar(&o.size.accounts, "accounts", heavy.accounts, "accounts of the heavy chain's genesis")
	flag.Uint64Var(&o.size.slots, "slots", heavy.slots, "slots of its contract")
	flag.IntVar(&o.size.blocks, "blocks", heavy.blocks, "its blocks")
	flag.IntVar(&o.size.txs, "txs", heavy.txs, "transactions of a block")
	flag.IntVar(&o.size.changes, "changes", 0, "measure what a block of so many changes costs, in two trees and with a commit of its own")
	flag.StringVar(&o.size.store, "store", "log", "with -changes: the kind of store")
	flag.BoolVar(&o.size.lists, "lists", false, "with -changes: of a chain of Amsterdam, executed and by its access lists, replayed and followed")
	flag.StringVar(&o.made.geth, "geth", "", "a geth that is built already")
	flag.StringVar(&o.made.spinney, "spinney", "", "a spinney that is built already")
	flag.StringVar(&o.chain, "chain", "", "a folder in which -make has made the heavy chain already")
	flag.StringVar(&o.make, "make", "", "only make the heavy chain, in this folder")
	flag.IntVar(&o.kills, "kills", 0, "measure nothing: kill our replay so many times, and see that it goes on to the same end")
	flag.Uint64Var(&o.seed, "seed", 1, "what says when it is killed, or what a node does")
	flag.IntVar(&o.course.blocks, "follow", 0, "measure nothing: follow a geth that makes so many blocks")
	flag.IntVar(&o.course.restarts, "restarts", 20, "how often that geth is ended and started again")
	flag.IntVar(&o.course.resets, "resets", 10, "how often its head is set back")
	flag.IntVar(&o.course.period, "period", 0, "with -follow: the node makes a block every so many seconds, and how far we lag is measured")
	flag.DurationVar(&o.course.poll, "poll", 50*time.Millisecond, "with -follow: how long we wait before we ask for another block")
	flag.DurationVar(&o.load, "load", 0, "measure eth_getProof alone, so long a round")
	flag.IntVar(&o.soak, "soak", 0, "measure nothing: have spinney serve answer so many requests")
	flag.DurationVar(&o.malformed, "malformed", 10*time.Minute, "how long it gets malformed ones after these")
	without := flag.Bool("without-geth", false, "our side alone")
	flag.Parse()
	if *small {
		o.size.accounts, o.size.slots = quick.accounts, quick.slots
		o.size.blocks, o.size.txs = quick.blocks, quick.txs
		o.size.changes, o.rounds = min(o.size.changes, 500), 1
	}
	o.geth = !*without && o.kills == 0 && o.soak == 0 && o.size.changes == 0
	o.course.seed = o.seed
	return o
}

// chain is a folder with genesis.json and chain.rlp.
type chain struct{ name, folder, what string }

func (c chain) file(name string) string { return filepath.Join(c.folder, name) }

func run(o options) error {
	// Before a chain is made.
	if err := free(o.ports()...); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(o.dir, "import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	programs, err := o.build(folder)
	if err != nil {
		return err
	}
	if o.course.blocks > 0 && o.course.period > 0 {
		return lag(programs, folder, o.course)
	}
	if o.course.blocks > 0 {
		return follow(programs, folder, o.course)
	}
	chains, err := chains(o, folder)
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if o.kills > 0 {
			if err := kill(chain, programs.spinney, folder, o.kills, o.seed); err != nil {
				return fmt.Errorf("%s: %w", chain.name, err)
			}
			continue
		}
		if o.size.changes > 0 {
			if err := changed(chain, programs.spinney, folder, o.size, o.rounds); err != nil {
				return fmt.Errorf("%s: %w", chain.name, err)
			}
			continue
		}
		if o.load > 0 {
			if err := load(chain, programs, folder, o.rounds, o.load); err != nil {
				return fmt.Errorf("%s: %w", chain.name, err)
			}
			continue
		}
		if o.soak > 0 {
			if err := soak(chain, programs, folder, o.soak, o.malformed); err != nil {
				return fmt.Errorf("%s: %w", chain.name, err)
			}
			continue
		}
		if err := compare(chain, programs, folder, o.rounds); err != nil {
			return fmt.Errorf("%s: %w", chain.name, err)
		}
	}
	return nil
}

// chains are those to be measured. The two that others made lie beside the project, or nowhere.
func chains(o options, folder string) ([]chain, error) {
	var found []chain
	wanted := func(name string) bool {
		return (o.only == "" || o.only == name) && (o.size.changes == 0 || name == "heavy")
	}
	if wanted("heavy") && o.chain != "" {
		found = append(found, chain{"heavy", o.chain, o.chain})
	} else if wanted("heavy") {
		made := filepath.Join(folder, "heavy")
		// By a process of its own: what we measure begins with the memory of whoever starts it.
		if err := o.size.makeIn(made); err != nil {
			return nil, err
		}
		found = append(found, chain{"heavy", made, o.size.String()})
	}
	for name, place := range map[string]string{"chain-600": "chain-600", "all-forks": "chains/all-forks"} {
		path := filepath.Join("../../../shared/data", place)
		if !wanted(name) {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: skipped, %s is missing\n", name, path)
			continue
		}
		found = append(found, chain{name, path, "small blocks"})
	}
	return found, nil
}

func (s size) makeIn(folder string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return tell(".", self, "-make", folder, "-accounts", fmt.Sprint(s.accounts), "-slots", fmt.Sprint(s.slots),
		"-blocks", fmt.Sprint(s.blocks), "-txs", fmt.Sprint(s.txs), "-changes", fmt.Sprint(s.changes), fmt.Sprintf("-lists=%t", s.lists))
}

type programs struct{ geth, spinney string }

// build makes the programs that are not there yet.
func (o options) build(folder string) (programs, error) {
	p := o.made
	if !o.geth {
		p.geth = ""
	} else if p.geth == "" {
		p.geth = filepath.Join(folder, "geth")
		if err := tell(".", "go", "build", "-o", p.geth, "github.com/ethereum/go-ethereum/cmd/geth"); err != nil {
			return p, err
		}
	}
	if p.spinney == "" {
		if err := tell("../..", "cargo", "build", "-q", "--release", "--locked", "-p", "spinney-cli"); err != nil {
			return p, err
		}
		target := os.Getenv("CARGO_TARGET_DIR")
		if target == "" {
			target = "../../target"
		}
		p.spinney = filepath.Join(target, "release/spinney")
	}
	return p, nil
}

func tell(folder, name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Dir, command.Stderr = folder, os.Stderr
	return command.Run()
}

// kinds are the stores of ours.
var kinds = []string{"memory", "log", "redb"}

// row is what one contender did in each round.
type row struct {
	name string
	// base is the row that it is compared with.
	base  string
	costs []cost
}

// stages are ours, in seconds, round by round.
type stages map[string][]float64

func compare(chain chain, p programs, folder string, rounds int) error {
	rows := []row{{name: "geth init"}, {name: "geth import"}, {name: "geth, both"}}
	for _, kind := range kinds {
		rows = append(rows, row{name: "spinney, " + kind + ": genesis", base: "geth init"},
			row{name: "spinney, " + kind + ": blocks", base: "geth import"}, row{name: "spinney, " + kind + ": all", base: "geth, both"})
	}
	if p.geth == "" {
		rows = rows[3:]
	}
	byStage := map[string]stages{}
	for range rounds {
		store := filepath.Join(folder, "store")
		at := 0
		add := func(c cost) {
			rows[at].costs = append(rows[at].costs, c)
			at++
		}
		if p.geth != "" {
			init, _, err := measure(p.geth, "--datadir", store, "--state.scheme", "path", "init", chain.file("genesis.json"))
			if err != nil {
				return err
			}
			blocks, _, err := measure(p.geth, "--datadir", store, "import", chain.file("chain.rlp"))
			if err != nil {
				return err
			}
			add(init)
			add(blocks)
			add(init.and(blocks))
			if err := os.RemoveAll(store); err != nil {
				return err
			}
		}
		for _, kind := range kinds {
			args := []string{"replay", "--genesis", chain.file("genesis.json"), "--blocks", chain.file("chain.rlp"), "--store", kind, "--format", "json", "--quiet"}
			if kind != "memory" {
				args = append(args, "--db", store)
			}
			c, out, err := measure(p.spinney, args...)
			if err != nil {
				return err
			}
			if byStage[kind] == nil {
				byStage[kind] = stages{}
			}
			genesis, err := byStage[kind].take(out)
			if err != nil {
				return err
			}
			add(genesis)
			add(c.without(genesis))
			add(c)
			if err := os.RemoveAll(store); err != nil {
				return err
			}
		}
	}
	report(chain, rows, byStage)
	return nil
}

// take notes the seconds by stage that a replay reports, and answers what it took until its genesis was
// committed. That commit takes the first block along, and beside it senders of the next ones are recovered.
func (s stages) take(out []byte) (cost, error) {
	var envelope struct {
		Data struct {
			Runs []struct {
				Times       map[string]float64 `json:"times"`
				FirstCommit struct {
					Seconds float64 `json:"seconds"`
					CPU     float64 `json:"cpu_seconds"`
					Written uint64  `json:"bytes_written"`
				} `json:"first_commit"`
			} `json:"runs"`
		} `json:"data"`
	}
	if err := json.Unmarshal(out, &envelope); err != nil {
		return cost{}, err
	}
	var genesis cost
	for _, run := range envelope.Data.Runs {
		for name, seconds := range run.Times {
			s[name] = append(s[name], seconds)
		}
		genesis.wall = time.Duration(run.FirstCommit.Seconds * float64(time.Second))
		genesis.cpu = time.Duration(run.FirstCommit.CPU * float64(time.Second))
		genesis.written = run.FirstCommit.Written
	}
	return genesis, nil
}

func report(chain chain, rows []row, byStage map[string]stages) {
	fmt.Printf("\n### %s: %s\n\nMedians of %d rounds (least, most).\n\n", chain.name, chain.what, len(rows[0].costs))
	fmt.Println("| | wall | CPU | peak memory | bytes written | wall, ratio | CPU, ratio | peak, ratio | bytes, ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	medians := map[string]cost{}
	for _, r := range rows {
		m := cost{
			wall:    median(r.costs, func(c cost) time.Duration { return c.wall }),
			cpu:     median(r.costs, func(c cost) time.Duration { return c.cpu }),
			peak:    median(r.costs, func(c cost) uint64 { return c.peak }),
			written: median(r.costs, func(c cost) uint64 { return c.written }),
		}
		medians[r.name] = m
		ratios := "| | | |"
		if base, known := medians[r.base]; known {
			ratios = fmt.Sprintf("%s | %s | %s | %s", ratio(float64(m.wall), float64(base.wall)), ratio(float64(m.cpu), float64(base.cpu)),
				ratio(float64(m.peak), float64(base.peak)), ratio(float64(m.written), float64(base.written)))
		}
		wall := span(r.costs, func(c cost) time.Duration { return c.wall })
		cpu := span(r.costs, func(c cost) time.Duration { return c.cpu })
		fmt.Printf("| %s | %.2f s %s | %.2f s %s | %d MiB | %.1f MiB | %s |\n", r.name, m.wall.Seconds(), wall, m.cpu.Seconds(), cpu, m.peak>>20, float64(m.written)/(1<<20), ratios)
	}
	for _, kind := range kinds {
		fmt.Printf("\nOurs by stage, %s, seconds:", kind)
		stages := byStage[kind]
		names := make([]string, 0, len(stages))
		for name := range stages {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			same := func(seconds float64) float64 { return seconds }
			fmt.Printf(" %s %.3f;", name, median(stages[name], same))
		}
		fmt.Println()
	}
}

func ratio(ours, theirs float64) string {
	if theirs == 0 || ours == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ours/theirs)
}

func median[T any, N int64 | uint64 | float64 | time.Duration](items []T, of func(T) N) N {
	figures := figures(items, of)
	return figures[len(figures)/2]
}

func span(costs []cost, of func(cost) time.Duration) string {
	figures := figures(costs, of)
	return fmt.Sprintf("(%.2f, %.2f)", figures[0].Seconds(), figures[len(figures)-1].Seconds())
}

func figures[T any, N int64 | uint64 | float64 | time.Duration](items []T, of func(T) N) []N {
	found := make([]N, 0, len(items))
	for _, item := range items {
		found = append(found, of(item))
	}
	slices.Sort(found)
	return found
}
