//go:build unix

package analyze

import (
	"syscall"
	"time"
)

// cpuTime is the processor time that the process has used, in user mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano())
}
