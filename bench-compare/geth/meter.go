package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cost is what one run of a case took: one line of JSON, as bench-compare/trees/src/meter.rs reads it.
type cost struct {
	Root       string `json:"root"`
	CPU        uint64 `json:"cpu_ns"`
	Wall       uint64 `json:"wall_ns"`
	Allocs     uint64 `json:"allocs"`
	AllocBytes uint64 `json:"alloc_bytes"`
	Peak       uint64 `json:"peak_bytes"`
}

type meter struct{ inputs uint64 }

// newMeter takes what is resident now, the inputs, as the ground above which memory counts.
func newMeter() meter {
	debug.FreeOSMemory()
	return meter{status("VmRSS:")}
}

// run measures work. The collector runs as it does for users: before, after or during a round.
func (m meter) run(work func()) cost {
	var before, after runtime.MemStats
	// Resets the peak; where that is forbidden, the peak is that of the process so far.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	runtime.ReadMemStats(&before)
	cpu, wall := cpuTime(), time.Now()
	work()
	c := cost{Wall: uint64(time.Since(wall)), CPU: cpuTime() - cpu}
	runtime.ReadMemStats(&after)
	c.Allocs = after.Mallocs - before.Mallocs
	c.AllocBytes = after.TotalAlloc - before.TotalAlloc
	if peak := status("VmHWM:"); peak > m.inputs {
		c.Peak = peak - m.inputs
	}
	return c
}

// cpuTime is the user and system time of all threads of the process, collector included.
func cpuTime() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return uint64(ts.Nano())
}

// status reads a line of /proc/self/status, in bytes; 0 where there is no such file.
func status(field string) uint64 {
	text, _ := os.ReadFile("/proc/self/status")
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if rest, ok := bytes.CutPrefix(lines.Bytes(), []byte(field)); ok {
			kib, _ := strconv.ParseUint(string(bytes.Fields(rest)[0]), 10, 64)
			return kib * 1024
		}
	}
	return 0
}
