// Package stutter is a fault: every second frame that a rule selects is late, by --delay or 1 ms.
package stutter

import (
	"cmp"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

func init() {
	fault.Register(fault.Effect{Kind: "stutter", Doc: "delays every second of a share of the frames, by --delay (default 1ms)", New: func(r *fault.Rule) fault.Apply {
		second := false
		return func(_ clock.Time, _ []byte, _ uint64, v *fault.Verdict) bool {
			if second = !second; second {
				return false
			}
			v.Delay += cmp.Or(r.Delay, time.Millisecond)
			return true
		}
	}})
}
