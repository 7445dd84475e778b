package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// slowClients send a byte a second each, and never a whole request.
const slowClients = 50

// soak has spinney serve a chain: proofs, beside clients that are slow, and then whatever is no request. It
// has to answer all that is right, grow no further after the first tenth, and never panic.
func soak(chain chain, p programs, folder string, requests int, malformed time.Duration) error {
	store := filepath.Join(folder, "served")
	if _, _, err := measure(p.spinney, "replay", "--genesis", chain.file("genesis.json"), "--blocks", chain.file("chain.rlp"), "--db", store, "--quiet"); err != nil {
		return err
	}
	genesis, err := readGenesis(chain)
	if err != nil {
		return err
	}
	accounts := make([]common.Address, 0, len(genesis.Alloc))
	for address := range genesis.Alloc {
		accounts = append(accounts, address)
	}
	slices.SortFunc(accounts, func(a, b common.Address) int { return a.Cmp(b) })
	if err := free(metricsAt); err != nil {
		return err
	}
	ours, err := serve("spinney", oursAt, p.spinney, "serve", "--db", store, "--listen", oursAt, "--metrics", metricsAt,
		"--chain-id", genesis.Config.ChainID.String())
	if err != nil {
		return err
	}
	defer ours.end()
	pid := ours.process.Process.Pid

	alone, err := ours.under(accounts, 5*time.Second, 1)
	if err != nil {
		return err
	}
	stop := dawdle(oursAt)
	beside, err := ours.under(accounts, 5*time.Second, 2)
	stop()
	if err != nil {
		return err
	}
	fmt.Printf("p99 of eth_getProof: %.1f ms alone, %.1f ms beside %d clients that send a byte a second\n",
		alone.p99.Seconds()*1e3, beside.p99.Seconds()*1e3, slowClients)

	fmt.Printf("resident after requests:")
	var early uint64
	for tenth := range 10 {
		if err := ours.count(accounts, requests/10, uint64(tenth)); err != nil {
			return err
		}
		now := residentOf(pid)
		if tenth == 0 {
			early = now
		}
		fmt.Printf(" %d", now>>20)
	}
	now := residentOf(pid)
	fmt.Printf(" MiB, a tenth of %d each; most %d MiB\n", requests, peakOf(pid)>>20)
	if now > early+64<<20 {
		return fmt.Errorf("it grew from %d to %d MiB", early>>20, now>>20)
	}

	// What these ask, spoilt ones ask, too, as often as they are not: a view of block 1 takes memory that stays.
	if err := askGood("http://" + oursAt); err != nil {
		return err
	}
	now = residentOf(pid)
	parts := max(2, int(malformed/time.Minute))
	var residents []uint64
	var sent, answered int64
	for part := range parts {
		some, of, err := pester(oursAt, malformed/time.Duration(parts), 98+uint64(part))
		if err != nil {
			return err
		}
		sent, answered, residents = sent+some, answered+of, append(residents, residentOf(pid))
	}
	fmt.Printf("%d malformed requests in %v, %d of them answered; resident %d MiB before, and after each of %d parts:", sent, malformed, answered, now>>20, parts)
	for _, resident := range residents {
		fmt.Printf(" %d", resident>>20)
	}
	fmt.Println(" MiB")
	half, after := residents[parts/2-1], residents[parts-1]
	if after > now+64<<20 || after > half+16<<20 {
		return fmt.Errorf("it grew from %d to %d MiB, %d of them by the half", now>>20, after>>20, half>>20)
	}
	if err := noPanics("http://" + metricsAt + "/metrics"); err != nil {
		return err
	}
	_, err = ours.under(accounts, time.Second, 3)
	return err
}

// count has all clients together ask so often.
func (s *serving) count(accounts []common.Address, requests int, seed uint64) error {
	_, err := s.ask(accounts, seed, func(asked int) bool { return asked < requests/clients })
	return err
}

// dawdle opens connections that send a byte a second, again and again, until it is told to stop.
func dawdle(address string) func() {
	done := make(chan struct{})
	var wait sync.WaitGroup
	for range slowClients {
		wait.Add(1)
		go func() {
			defer wait.Done()
			const request = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
			for at := 0; ; {
				connection, err := net.Dial("tcp", address)
				for err == nil {
					select {
					case <-done:
						connection.Close()
						return
					case <-time.After(time.Second):
					}
					_, err = connection.Write([]byte{request[at%len(request)]})
					at++
				}
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
	}
	return func() { close(done); wait.Wait() }
}

// pester sends what is no good request, over connections of its own, and counts what was sent and answered.
func pester(address string, each time.Duration, seed uint64) (int64, int64, error) {
	var sent, answered atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, clients)
	until := time.Now().Add(each)
	for client := range clients {
		wait.Add(1)
		go func() {
			defer wait.Done()
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			for time.Now().Before(until) && errs[client] == nil {
				connection, err := net.DialTimeout("tcp", address, 5*time.Second)
				if err != nil {
					errs[client] = err
					return
				}
				for range 20 {
					_ = connection.SetDeadline(time.Now().Add(2 * time.Second))
					if _, err := connection.Write(malformedRequest(random)); err != nil {
						break
					}
					sent.Add(1)
					_ = connection.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
					response, err := http.ReadResponse(bufio.NewReader(connection), nil)
					if err != nil {
						break
					}
					answered.Add(1)
					_, err = io.Copy(io.Discard, response.Body)
					response.Body.Close()
					if err != nil || response.Close {
						break
					}
				}
				connection.Close()
			}
		}()
	}
	wait.Wait()
	return sent.Load(), answered.Load(), errors.Join(errs...)
}

var goodBodies = []string{
	`{"jsonrpc":"2.0","id":1,"method":"eth_getProof","params":["0x00000000000000000000000000000000000000aa",["0x0","0x1"],"latest"]}`,
	`[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]},{"jsonrpc":"2.0","id":"a","method":"spinney_trees"}]`,
	`{"jsonrpc":"2.0","id":null,"method":"eth_getStorageAt","params":["0xc0de000000000000000000000000000000000001","0x1",{"blockNumber":"0x1"}]}`,
	`{"jsonrpc":"2.0","id":7,"method":"spinney_getProof","params":["mpt",{"address":"0x00000000000000000000000000000000000000aa"},"0x1"]}`,
	`{"jsonrpc":"2.0","id":7,"method":"debug_executionWitness","params":["0x1"]}`,
}

// askGood has all clients ask each good body often, so that every thread answers each.
func askGood(at string) error {
	var wait sync.WaitGroup
	errs := make([]error, clients)
	for client := range clients {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for asked := 0; asked < 20*len(goodBodies) && errs[client] == nil; asked++ {
				body := goodBodies[asked%len(goodBodies)]
				response, err := http.Post(at, "application/json", strings.NewReader(body))
				if err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				errs[client] = err
			}
		}()
	}
	wait.Wait()
	return errors.Join(errs...)
}

// malformedRequest is a request that was spoilt: its body, its head, or all of it.
func malformedRequest(random *rand.Rand) []byte {
	body := []byte(goodBodies[random.IntN(len(goodBodies))])
	switch random.IntN(8) {
	case 0:
		body = []byte(strings.Repeat("[", 1+random.IntN(60_000)))
	case 1:
		body = []byte(`{"jsonrpc":"2.0","id":1,"method":"eth_getProof","params":[` + strings.Repeat(`{"a":`, 1+random.IntN(20_000)))
	case 2:
		body = bytes.Repeat([]byte(`{"jsonrpc":"2.0","id":1,"method":"x"},`), 1+random.IntN(5_000))
		body = append([]byte{'['}, body...)
	default:
		for range 1 + random.IntN(6) {
			at := random.IntN(len(body))
			switch random.IntN(4) {
			case 0:
				body[at] = byte(random.Uint32())
			case 1:
				body = slices.Insert(body, at, byte(random.Uint32()), '"', '\\')
			case 2:
				body = body[:max(at, 1)]
			default:
				body = slices.Concat(body[:at], []byte("999999999999999999999999999999e999"), body[at:])
			}
		}
	}
	length := len(body)
	if random.IntN(6) == 0 {
		length += random.IntN(2_000_000) - len(body)/2
	}
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	switch random.IntN(10) {
	case 0:
		head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n"
	case 1:
		head = fmt.Sprintf("%s /%s HTTP/1.%d\r\n%s\r\n\r\n", []string{"GET", "PUT", "OPTIONS", "", "\x00"}[random.IntN(5)],
			strings.Repeat("a", random.IntN(9_000)), random.IntN(3), strings.Repeat("X-A: b\r\n", random.IntN(300)))
	case 2:
		noise := make([]byte, random.IntN(3_000))
		for at := range noise {
			noise[at] = byte(random.Uint32())
		}
		head = string(noise)
	}
	return append([]byte(head), body...)
}

func noPanics(page string) error {
	answer, err := http.Get(page)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "panics_total") && !strings.HasPrefix(line, "#") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			return fmt.Errorf("it panicked: %s", line)
		}
	}
	if !strings.Contains(string(text), "panics_total") {
		return errors.New("its metrics do not count panics")
	}
	return nil
}
