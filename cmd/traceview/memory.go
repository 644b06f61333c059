package main

import (
	"os"
	"strconv"
	"strings"
)

// unknownMemory is what a machine is taken to have that does not say.
const unknownMemory = 8 << 30

// machineMemory is how many bytes of memory this program may have: the
// machine's, or what its container is given if that is less.
func machineMemory() int64 {
	total := int64(unknownMemory)
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		total = totalOf(string(data), total)
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if data, err := os.ReadFile(name); err == nil {
			total = limitOf(string(data), total)
		}
	}
	return total
}

// totalOf reads the line MemTotal of Linux's /proc/meminfo.
func totalOf(meminfo string, otherwise int64) int64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if n, err := strconv.ParseInt(f[1], 10, 53); err == nil && n > 0 {
				return n << 10
			}
		}
	}
	return otherwise
}

// limitOf reads a control group's limit, "max" where there is none.
func limitOf(limit string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(strings.TrimSpace(limit), 10, 64); err == nil && n > 0 {
		return min(n, otherwise)
	}
	return otherwise
}
