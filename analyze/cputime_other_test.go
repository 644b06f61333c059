//go:build !unix

package analyze

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
