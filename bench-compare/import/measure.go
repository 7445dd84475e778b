package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cost is what a process took.
type cost struct {
	wall, cpu time.Duration
	// peak is the most memory that was resident, in bytes.
	peak uint64
	// written are bytes that the storage layer was told to write, pages of files included.
	written uint64
}

func (c cost) and(other cost) cost {
	c.wall, c.cpu, c.written = c.wall+other.wall, c.cpu+other.cpu, c.written+other.written
	c.peak = max(c.peak, other.peak)
	return c
}

// without is what a process did besides. Its memory is that of the whole.
func (c cost) without(part cost) cost {
	c.wall, c.cpu, c.written = c.wall-part.wall, c.cpu-part.cpu, c.written-min(c.written, part.written)
	return c
}

// measure runs a program to its end, and returns what it wrote to standard output. What it did to its own
// folder waits on the disk before, so that one program does not pay for what another one left behind.
func measure(name string, args ...string) (cost, []byte, error) {
	unix.Sync()
	command := exec.Command(name, args...)
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	started := time.Now()
	if err := command.Start(); err != nil {
		return cost{}, nil, err
	}
	// It is over, and not reaped: what it wrote can still be read.
	err := waitOnly(command.Process.Pid)
	wall := time.Since(started)
	written := writtenBy(command.Process.Pid)
	if failed := command.Wait(); failed != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), failed, tail(messages.String()))
	}
	if err != nil {
		return cost{}, nil, err
	}
	state := command.ProcessState
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, nil, errors.New("the system does not say what a process used")
	}
	// Linux counts kilobytes.
	c := cost{wall: wall, cpu: state.UserTime() + state.SystemTime(), peak: uint64(usage.Maxrss) << 10, written: written}
	return c, out.Bytes(), nil
}

func waitOnly(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// writtenBy is 0 where the system does not say.
func writtenBy(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			written, _ := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
			return written
		}
	}
	return 0
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
