package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// kill replays a chain, kills or interrupts the replay in turn at a random moment, looks at every row of what is
// left, and goes on with the same command: so many times, each in a new store. Every replay has to come to the root of one that nobody
// disturbed, and `db check` says of every row whether it is what the entries make of it.
func kill(chain chain, spinney, folder string, times int, seed uint64) error {
	store := filepath.Join(folder, "store")
	replay := func() *exec.Cmd {
		return exec.Command(spinney, "replay", "--genesis", chain.file("genesis.json"), "--blocks", chain.file("chain.rlp"),
			"--db", store, "--format", "json", "--quiet")
	}
	began := time.Now()
	undisturbed, err := rootOf(replay())
	if err != nil {
		return err
	}
	whole := time.Since(began)
	if err := os.RemoveAll(store); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	var early, empty int
	for round := range times {
		fails := func(what string, err error) error {
			return fmt.Errorf("seed %d, round %d, %s: %w", seed, round, what, err)
		}
		signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGINT}[round%2]
		ended, err := endAfter(replay(), time.Duration(random.Float64()*float64(whole)), signal)
		if err != nil {
			return fails("the replay that was to end by "+signal.String(), err)
		}
		if ended {
			early++
		}
		if round%10 == 9 {
			fmt.Fprintf(os.Stderr, "%d of %d\n", round+1, times)
		}
		if _, err := os.Stat(store); errors.Is(err, os.ErrNotExist) {
			empty++
		} else if out, err := exec.Command(spinney, "db", "check", "--db", store, "--format", "json").CombinedOutput(); err != nil {
			// A store that nothing was committed to is none, and says so.
			if _, found := os.Stat(filepath.Join(store, "spinney.log")); found == nil {
				return fails("what was left: "+tail(string(out)), err)
			}
			empty++
		}
		root, err := rootOf(replay())
		if err != nil {
			return fails("going on", err)
		}
		if root != undisturbed {
			return fails("going on", fmt.Errorf("root %s, and not %s", root, undisturbed))
		}
		if out, err := exec.Command(spinney, "db", "check", "--db", store, "--format", "json").CombinedOutput(); err != nil {
			return fails("the end: "+tail(string(out)), err)
		}
		if err := os.RemoveAll(store); err != nil {
			return err
		}
	}
	fmt.Printf("%s: seed %d: %d of %d replays of %.1f s were killed or interrupted before they ended, %d of them before there was a store; all went on to root %s, every row checked\n",
		chain.name, seed, times-early, times, whole.Seconds(), empty, undisturbed)
	return nil
}

// Of a replay that was interrupted.
const interrupted = 3

// endAfter answers whether the process had ended by itself before the signal.
func endAfter(command *exec.Cmd, after time.Duration, signal syscall.Signal) (bool, error) {
	if err := command.Start(); err != nil {
		return false, err
	}
	time.Sleep(after)
	if err := command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, err
	}
	err := command.Wait()
	var exit *exec.ExitError
	if err == nil {
		return true, nil
	}
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		if ok && (status.Signaled() || signal == syscall.SIGINT && status.ExitStatus() == interrupted) {
			return false, nil
		}
	}
	return false, err
}

func rootOf(command *exec.Cmd) (string, error) {
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", err
	}
	var envelope struct {
		Data struct {
			Runs []struct {
				Root string `json:"root"`
			} `json:"runs"`
		} `json:"data"`
	}
	if err := json.Unmarshal(out, &envelope); err != nil {
		return "", err
	}
	if len(envelope.Data.Runs) != 1 {
		return "", fmt.Errorf("%d runs", len(envelope.Data.Runs))
	}
	return envelope.Data.Runs[0].Root, nil
}
