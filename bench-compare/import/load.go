package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
)

// clients ask at once, each over a connection of its own.
const clients = 16

// served is what a server did under load.
type served struct {
	perSecond float64
	p50, p99  time.Duration
	// cpu is what an answer took of the server's processor time.
	cpu time.Duration
	// peak is the most memory that was resident, in bytes, since the server began.
	peak uint64
}

// serving is a server that answers from a chain.
type serving struct {
	name    string
	process *exec.Cmd
	url
}

func (s *serving) end() {
	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait()
}

// serve starts a server that is to listen at an address.
func serve(name, at, program string, args ...string) (*serving, error) {
	if err := free(at); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &serving{name: name, process: exec.Command(program, args...), url: url("http://" + at)}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	if err := within(func() error { _, err := s.head(); return err }); err != nil {
		s.end()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// load has geth and spinney take a chain, compares what both answer of it, and has each of them in turn answer as
// fast as it can: proofs of an account and three slots at the head.
func load(chain chain, p programs, folder string, rounds int, each time.Duration) error {
	node, store := filepath.Join(folder, "node"), filepath.Join(folder, "served")
	for _, args := range [][]string{
		{p.geth, "--datadir", node, "--state.scheme", "path", "init", chain.file("genesis.json")},
		{p.geth, "--datadir", node, "import", chain.file("chain.rlp")},
		{p.spinney, "replay", "--genesis", chain.file("genesis.json"), "--blocks", chain.file("chain.rlp"), "--db", store, "--format", "json", "--quiet"},
	} {
		if _, _, err := measure(args[0], args[1:]...); err != nil {
			return err
		}
	}
	genesis, err := readGenesis(chain)
	if err != nil {
		return err
	}
	geth, err := serve("geth", gethAt, p.geth, "--datadir", node, "--http", "--http.port", gethPort,
		"--http.api", "eth", "--port", "0", "--nodiscover", "--maxpeers", "0", "--ipcdisable", "--verbosity", "1")
	if err != nil {
		return err
	}
	defer geth.end()
	ours, err := serve("spinney", oursAt, p.spinney, "serve", "--db", store, "--listen", oursAt,
		"--chain-id", genesis.Config.ChainID.String())
	if err != nil {
		return err
	}
	defer ours.end()
	var accounts []common.Address
	for address := range genesis.Alloc {
		accounts = append(accounts, address)
	}
	slices.SortFunc(accounts, func(a, b common.Address) int { return a.Cmp(b) })
	compared, err := same(geth, ours, accounts)
	if err != nil {
		return err
	}
	results := map[string][]served{}
	for round := range rounds {
		for _, server := range []*serving{geth, ours} {
			result, err := server.under(accounts, each, uint64(round))
			if err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
			results[server.name] = append(results[server.name], result)
		}
	}
	fmt.Printf("\n### %s: eth_getProof of an account and three slots at the head, %d connections\n\n", chain.name, clients)
	fmt.Printf("Medians of %d rounds of %.0f seconds, in turn; %d other answers compared before, all equal.\n\n", rounds, each.Seconds(), compared)
	fmt.Println("| | answers a second | p50 | p99 | CPU an answer | peak memory |\n|---|---|---|---|---|---|")
	for _, name := range []string{"geth", "spinney"} {
		all := results[name]
		rate := figures(all, func(s served) int64 { return int64(s.perSecond) })
		fmt.Printf("| %s | %d (%d, %d) | %.2f ms | %.2f ms | %.0f us | %d MiB |\n", name,
			rate[len(rate)/2], rate[0], rate[len(rate)-1],
			median(all, func(s served) time.Duration { return s.p50 }).Seconds()*1e3,
			median(all, func(s served) time.Duration { return s.p99 }).Seconds()*1e3,
			median(all, func(s served) time.Duration { return s.cpu }).Seconds()*1e6,
			median(all, func(s served) uint64 { return s.peak })>>20)
	}
	return nil
}

func readGenesis(chain chain) (*core.Genesis, error) {
	text, err := os.ReadFile(chain.file("genesis.json"))
	if err != nil {
		return nil, err
	}
	genesis := new(core.Genesis)
	return genesis, json.Unmarshal(text, genesis)
}

// ask draws what is asked for: mostly accounts that are there, and slots of the one contract.
func ask(random *rand.Rand, accounts []common.Address) (string, []string) {
	slots := make([]string, 3)
	for at := range slots {
		slots[at] = fmt.Sprintf("0x%x", random.Uint64N(250_000))
	}
	switch random.IntN(4) {
	case 0:
		return accounts[random.IntN(len(accounts))].Hex(), slots
	case 1:
		return common.BigToAddress(common.Big256).Hex()[:34] + fmt.Sprintf("%08x", random.Uint32()), slots
	default:
		return target.Hex(), slots
	}
}

// same compares answers of both, to a thousand requests.
func same(geth, ours *serving, accounts []common.Address) (int, error) {
	random := rand.New(rand.NewPCG(3, 3))
	count := 0
	for count < 1_000 {
		address, slots := ask(random, accounts)
		compared, err := sameAnswers(ours.url, geth.url, address, slots, "latest")
		count += compared
		if err != nil {
			return count, err
		}
	}
	return count, nil
}

// under has a server answer for a while, after a second that is not measured.
func (s *serving) under(accounts []common.Address, each time.Duration, seed uint64) (served, error) {
	if _, err := s.run(accounts, time.Second, seed+1_000); err != nil {
		return served{}, err
	}
	before := cpuOf(s.process.Process.Pid)
	began := time.Now()
	took, err := s.run(accounts, each, seed)
	if err != nil {
		return served{}, err
	}
	wall := time.Since(began)
	cpu := cpuOf(s.process.Process.Pid) - before
	slices.Sort(took)
	at := func(part float64) time.Duration { return took[int(part*float64(len(took)-1))] }
	return served{
		perSecond: float64(len(took)) / wall.Seconds(), p50: at(0.5), p99: at(0.99),
		cpu: cpu / time.Duration(len(took)), peak: peakOf(s.process.Process.Pid),
	}, nil
}

// run answers how long each answer took.
func (s *serving) run(accounts []common.Address, each time.Duration, seed uint64) ([]time.Duration, error) {
	until := time.Now().Add(each)
	return s.ask(accounts, seed, func(int) bool { return time.Now().Before(until) })
}

// ask has all clients ask as long as each is to go on, which is told how often it asked.
func (s *serving) ask(accounts []common.Address, seed uint64, goesOn func(int) bool) ([]time.Duration, error) {
	var wait sync.WaitGroup
	var lock sync.Mutex
	var took []time.Duration
	var failed error
	for client := range clients {
		wait.Add(1)
		go func() {
			defer wait.Done()
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			transport := &http.Transport{MaxIdleConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			http := &http.Client{Transport: transport}
			var mine []time.Duration
			var err error
			for err == nil && goesOn(len(mine)) {
				began := time.Now()
				err = s.proof(http, random, accounts)
				mine = append(mine, time.Since(began))
			}
			lock.Lock()
			defer lock.Unlock()
			took = append(took, mine...)
			if err != nil {
				failed = err
			}
		}()
	}
	wait.Wait()
	return took, failed
}

func (s *serving) proof(client *http.Client, random *rand.Rand, accounts []common.Address) error {
	address, slots := ask(random, accounts)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"eth_getProof","params":[%q,[%q,%q,%q],"latest"]}`, address, slots[0], slots[1], slots[2])
	answer, err := client.Post(string(s.url), "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && !bytes.Contains(text, []byte(`"accountProof"`)) {
		err = fmt.Errorf("no proof: %s", tail(string(text)))
	}
	return err
}

// cpuOf is 0 where the system does not say.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name of the program, in parentheses, may have spaces.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseUint(fields[11], 10, 64)
	system, _ := strconv.ParseUint(fields[12], 10, 64)
	// Linux counts hundredths of a second.
	return time.Duration(user+system) * 10 * time.Millisecond
}

func peakOf(pid int) uint64 { return memoryOf(pid, "VmHWM:") }

// residentOf is what is resident now, in bytes.
func residentOf(pid int) uint64 { return memoryOf(pid, "VmRSS:") }

func memoryOf(pid int, what string) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, what); ok {
			kilobytes, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
