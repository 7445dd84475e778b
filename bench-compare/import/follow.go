package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
)

// course is what a node does while it is followed.
type course struct {
	// blocks are made, each with some transactions.
	blocks int
	// restarts end the node, every other time without a warning, and start it again.
	restarts int
	// resets set its head back, behind its last final block.
	resets int
	// period is how many seconds pass from block to block; with 0 there is one for each transaction.
	period int
	// poll is how long the follower waits before it asks for another block.
	poll time.Duration
	seed uint64
}

// slow is how long anything may take before it is a failure.
const slow = 60 * time.Second

// url is where a server answers JSON-RPC.
type url string

func (u url) call(method string, params ...any) (json.RawMessage, error) {
	if params == nil {
		params = []any{}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	answer, err := http.Post(string(u), "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	var got struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if got.Error != nil {
		return nil, fmt.Errorf("%s: %s", method, got.Error.Message)
	}
	return got.Result, nil
}

// header is what is asked of a block.
type header struct{ Number, Hash, StateRoot string }

func (u url) header(block string) (*header, error) {
	raw, err := u.call("eth_getBlockByNumber", block, false)
	if err != nil {
		return nil, err
	}
	var found *header
	return found, json.Unmarshal(raw, &found)
}

func (u url) head() (uint64, error) {
	raw, err := u.call("eth_blockNumber")
	if err != nil {
		return 0, err
	}
	return number(raw)
}

func number(raw json.RawMessage) (uint64, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
}

// devNode is a geth that makes a block of whatever is sent to it.
type devNode struct {
	program, data string
	period        int
	process       *exec.Cmd
	url
}

func (n *devNode) start() error {
	if err := free(gethAt); err != nil {
		return err
	}
	n.process = exec.Command(n.program, "--dev", "--datadir", n.data, "--http", "--http.port", gethPort,
		"--http.api", "eth,debug", "--port", "0", "--ipcdisable", "--nodiscover", "--verbosity", "1",
		"--state.scheme", "hash", "--gcmode", "archive", "--dev.period", fmt.Sprint(n.period))
	n.url = "http://" + gethAt
	if err := n.process.Start(); err != nil {
		return err
	}
	return within(func() error { _, err := n.head(); return err })
}

func (n *devNode) end(signal syscall.Signal) error {
	if err := n.process.Process.Signal(signal); err != nil {
		return err
	}
	// It says how it was ended.
	_ = n.process.Wait()
	return nil
}

// within tries until it succeeds, or it took too long.
func within(try func() error) error { return withinTime(slow, try) }

func withinTime(most time.Duration, try func() error) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil || time.Since(began) > most {
			return err
		}
	}
}

// workload sends transactions: transfers, contracts that keep slots, calls of them, and contracts that are gone
// when they are made.
type workload struct {
	random    *rand.Rand
	from      string
	contracts []string
	// touched are those that something was given to, or made at.
	touched []string
}

// keeper is the code of a contract that stores the second word of what it is called with in the slot that the
// first names, behind what it does when it is made: it fills four slots.
const keeper = "0x" + "60016000556002600155600360025560046003556006601f60003960066000f3" + "6020355f3555"

func (l *workload) send(n *devNode) error {
	word := func() string { return fmt.Sprintf("%064x", l.random.Uint64N(40)) }
	tx := map[string]any{"from": l.from, "gas": "0x30000"}
	var to string
	switch kind := l.random.IntN(8); {
	case kind < 4:
		to = common.BigToAddress(common.Big1).Hex()
		to = to[:34] + fmt.Sprintf("%08x", l.random.Uint32N(300)+0x1000)
		tx["to"], tx["value"] = to, fmt.Sprintf("0x%x", l.random.Uint32N(1000)+1)
	case kind == 4 || len(l.contracts) == 0:
		tx["data"] = keeper
	case kind == 5:
		// It gives what it has to whoever made it, and is no more.
		tx["data"], tx["value"] = "0x33ff", "0x5"
	default:
		to = l.contracts[l.random.IntN(len(l.contracts))]
		tx["to"], tx["data"] = to, "0x"+word()+word()
	}
	raw, err := n.call("eth_sendTransaction", tx)
	if err != nil {
		return err
	}
	if to != "" {
		l.touched = append(l.touched, to)
		return nil
	}
	var hash string
	if err := json.Unmarshal(raw, &hash); err != nil {
		return err
	}
	// A node that died may have forgotten it: then there is no contract.
	_ = withinTime(2*time.Second, func() error {
		raw, err := n.call("eth_getTransactionReceipt", hash)
		if err != nil {
			return err
		}
		var receipt *struct{ ContractAddress string }
		if err := json.Unmarshal(raw, &receipt); err != nil || receipt == nil {
			return fmt.Errorf("no receipt of %s: %v", hash, err)
		}
		l.touched = append(l.touched, receipt.ContractAddress)
		if tx["data"] == keeper {
			l.contracts = append(l.contracts, receipt.ContractAddress)
		}
		return nil
	})
	return nil
}

// follow lets spinney follow a node that makes blocks, dies, comes back and leaves blocks, and compares what both
// say wherever they stand at the same block.
func follow(p programs, folder string, c course) error {
	node := &devNode{program: p.geth, data: filepath.Join(folder, "node")}
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
	var restarts, resets, compared int
	for made := range c.blocks {
		for range random.IntN(4) + 1 {
			if err := within(func() error { return work.send(node) }); err != nil {
				return fmt.Errorf("block %d: %w", made, err)
			}
		}
		if due(restarts, c.restarts, made, c.blocks) {
			signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[restarts%2]
			if err := node.end(signal); err != nil {
				return err
			}
			if err := node.start(); err != nil {
				return fmt.Errorf("block %d, starting again: %w", made, err)
			}
			restarts++
		}
		if due(resets, c.resets, made, c.blocks) {
			done, err := node.reset(random)
			if err != nil {
				return fmt.Errorf("block %d: %w", made, err)
			}
			if done {
				resets++
			}
		}
		if made%10 == 9 {
			some, err := follower.compare(node, work)
			if err != nil {
				return fmt.Errorf("block %d: %w", made, err)
			}
			compared += some
		}
	}
	some, err := follower.compare(node, work)
	if err != nil {
		return err
	}
	compared += some
	head, err := node.head()
	if err != nil {
		return err
	}
	for _, back := range []uint64{1, 50, 300, 900} {
		if back >= head {
			break
		}
		some, err := follower.answersAt(fmt.Sprintf("0x%x", head-back), node, work)
		if err != nil {
			return fmt.Errorf("%d blocks back: %w", back, err)
		}
		compared += some
	}
	told, err := follower.stop()
	if err != nil {
		return err
	}
	if out, err := exec.Command(p.spinney, "db", "check", "--db", follower.db, "--format", "json").CombinedOutput(); err != nil {
		return fmt.Errorf("the store: %s: %w", tail(string(out)), err)
	}
	fmt.Printf("seed %d: followed for %d rounds of transactions, %d restarts and %d resets of the node: %s; %d answers compared, all equal; every row of the store checked\n",
		c.seed, c.blocks, restarts, resets, told, compared)
	return nil
}

// account is the one that the node signs for.
func (n *devNode) account() (string, error) {
	var accounts []string
	raw, err := n.call("eth_accounts")
	if err == nil {
		err = json.Unmarshal(raw, &accounts)
	}
	if err != nil || len(accounts) == 0 {
		return "", fmt.Errorf("it has no account: %v", err)
	}
	return accounts[0], nil
}

// due says whether the next of some events has its turn.
func due(done, all, at, of int) bool { return done < all && at*(all+1) >= (done+1)*of }

// prepare makes a developer's account and a genesis for it, as geth's own, but for what that account has, which
// trees of words have no place for, and for a fork that it names and has no rules for.
func (n *devNode) prepare(folder string) (string, error) {
	keys := keystore.NewKeyStore(filepath.Join(n.data, "keystore"), keystore.LightScryptN, keystore.LightScryptP)
	account, err := keys.NewAccount("")
	if err != nil {
		return "", err
	}
	genesis := core.DeveloperGenesisBlock(30_000_000, &account.Address)
	config := *genesis.Config
	config.BogotaTime = nil
	genesis.Config = &config
	rich := new(big.Int).Mul(big.NewInt(1_000_000), big.NewInt(params.Ether))
	genesis.Alloc[account.Address] = types.Account{Balance: rich}
	text, err := json.Marshal(genesis)
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "genesis.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", err
	}
	out, err := exec.Command(n.program, "init", "--state.scheme", "hash", "--datadir", n.data, file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("geth init: %s: %w", tail(string(out)), err)
	}
	return file, nil
}

// reset sets the head back by a few blocks, not before the last final one.
func (n *devNode) reset(random *rand.Rand) (bool, error) {
	head, err := n.head()
	if err != nil {
		return false, err
	}
	final := uint64(0)
	if found, err := n.header("finalized"); err == nil && found != nil {
		if final, err = strconv.ParseUint(strings.TrimPrefix(found.Number, "0x"), 16, 64); err != nil {
			return false, err
		}
	}
	if head < final+3 {
		return false, nil
	}
	back := random.Uint64N(min(head-final-1, 12)) + 1
	_, err = n.call("debug_setHead", fmt.Sprintf("0x%x", head-back))
	return err == nil, err
}

// follower is a spinney that follows and serves.
type follower struct {
	process *exec.Cmd
	db      string
	out     *os.File
	url
}

func startFollower(program, folder, genesis, node string, poll time.Duration) (*follower, error) {
	if err := free(oursAt); err != nil {
		return nil, err
	}
	f := &follower{db: filepath.Join(folder, "trees")}
	out, err := os.Create(filepath.Join(folder, "events"))
	if err != nil {
		return nil, err
	}
	f.out = out
	f.process = exec.Command(program, "follow", node, "--genesis", genesis, "--db", f.db, "--tree", "mpt,pbt:blake3",
		"--keep-undo", "1000", "--past-final", "--poll", fmt.Sprint(poll.Milliseconds()), "--serve", oursAt, "--events", "--json")
	f.process.Stdout, f.process.Stderr = out, os.Stderr
	f.url = "http://" + oursAt
	if err := f.process.Start(); err != nil {
		return nil, err
	}
	return f, within(func() error { _, err := f.head(); return err })
}

// overtakes has a node go on that was set back. Its pool may wait for transactions that it has dropped with their
// blocks, until it is started again; the follower stays where it is until there are blocks beyond.
func (n *devNode) overtakes(f *follower, work *workload) error {
	overtaken := func() error {
		theirs, err := n.head()
		if err != nil {
			return err
		}
		ours, err := f.head()
		if err == nil && theirs < ours {
			return fmt.Errorf("it stands at block %d, and the node at %d", ours, theirs)
		}
		return err
	}
	if withinTime(5*time.Second, overtaken) == nil {
		return nil
	}
	if err := n.end(syscall.SIGTERM); err != nil {
		return err
	}
	if err := n.start(); err != nil {
		return err
	}
	return within(func() error {
		if err := work.send(n); err != nil {
			return err
		}
		return overtaken()
	})
}

// compare waits until both stand at the same block, and asks both the same.
func (f *follower) compare(n *devNode, work *workload) (int, error) {
	if err := n.overtakes(f, work); err != nil {
		return 0, err
	}
	var at *header
	err := within(func() error {
		theirs, err := n.header("latest")
		if err != nil {
			return err
		}
		ours, err := f.head()
		if err != nil {
			return err
		}
		if fmt.Sprintf("0x%x", ours) != theirs.Number {
			return fmt.Errorf("it stands at block %d, and the node at %s", ours, theirs.Number)
		}
		at = theirs
		root, err := f.call("spinney_getRoot", "mpt", theirs.Number)
		if err != nil {
			return err
		}
		if !strings.Contains(string(root), theirs.StateRoot) {
			return fmt.Errorf("block %s: root %s, and not %s", theirs.Number, root, theirs.StateRoot)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return f.answersAt(at.Number, n, work)
}

// answersAt asks both the same, of the last accounts touched at a block.
func (f *follower) answersAt(block string, n *devNode, work *workload) (int, error) {
	asked := work.touched[max(0, len(work.touched)-40):]
	count := 0
	for _, address := range asked {
		slots := []string{"0x0", "0x3", fmt.Sprintf("0x%x", work.random.Uint64N(40))}
		compared, err := sameAnswers(f.url, n.url, address, slots, block)
		count += compared
		if err != nil {
			return count, err
		}
	}
	return count, nil
}

// sameAnswers asks our server and geth the same of an account and some of its slots at a block, and answers how
// many answers it compared.
func sameAnswers(ours, geth url, address string, slots []string, block string) (int, error) {
	count := 0
	for _, call := range []struct {
		method string
		params []any
	}{
		{"eth_getProof", []any{address, slots, block}},
		{"eth_getBalance", []any{address, block}},
		{"eth_getTransactionCount", []any{address, block}},
		{"eth_getCode", []any{address, block}},
		{"eth_getStorageAt", []any{address, slots[len(slots)-1], block}},
	} {
		theirs, err := geth.call(call.method, call.params...)
		if err != nil {
			return count, err
		}
		got, err := ours.call(call.method, call.params...)
		if err != nil {
			return count, err
		}
		var a, b any
		if err := json.Unmarshal(theirs, &a); err != nil {
			return count, err
		}
		if err := json.Unmarshal(got, &b); err != nil {
			return count, err
		}
		if !reflect.DeepEqual(a, b) {
			return count, fmt.Errorf("%s of %v: %s, and geth says %s", call.method, call.params, got, theirs)
		}
		count++
	}
	return count, nil
}

// stop ends it, and says what it did.
func (f *follower) stop() (string, error) {
	if err := f.process.Process.Signal(syscall.SIGTERM); err != nil {
		return "", err
	}
	if err := f.process.Wait(); err != nil {
		return "", fmt.Errorf("the follower: %w", err)
	}
	text, err := os.ReadFile(f.out.Name())
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last struct {
		Data struct{ Blocks, Reorganisations, Dropped, Failures, Roots_checked int }
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		return "", err
	}
	lags := map[int]int{}
	for _, line := range lines {
		var event struct {
			Event string
			Lag   int
		}
		if err := json.Unmarshal([]byte(line), &event); err == nil && event.Event == "block" {
			lags[min(event.Lag, 2)]++
		}
	}
	d := last.Data
	return fmt.Sprintf("%d blocks, %d roots checked, %d reorganisations of %d blocks, %d failures of the node, blocks behind 0 / 1 / more: %d / %d / %d",
		d.Blocks, d.Roots_checked, d.Reorganisations, d.Dropped, d.Failures, lags[0], lags[1], lags[2]), nil
}
