package hostd

import (
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// wakeTime is how long a daemon needs to wake up for a deadline, in real time: a paced queue pair
// sends in bursts of what its rate gives in this time.
const wakeTime = 50 * time.Microsecond

// congestionOf returns the congestion control of a host's NIC; nil means none.
func congestionOf(r *rackfile.Rack, h *rackfile.Host) *congestion.Config {
	if h.Congestion == nil {
		return nil
	}
	return &congestion.Config{Params: *h.Congestion, Wake: wakeTime / time.Duration(r.Factor())}
}
