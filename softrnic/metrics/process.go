package metrics

import (
	"runtime"
	"runtime/metrics"

	"github.com/rdmalab/rdmalab/softrnic/stall"
)

// Process describes the resources that the process of a daemon uses. If a field grows while the
// load stays the same, the daemon has a leak.
type Process struct {
	Goroutines int `json:"goroutines"`
	// LiveHeap is the number of bytes in the heap after the last run of the garbage collector.
	LiveHeap uint64 `json:"liveHeapBytes"`
	// Stalls are times in which a thread that polls got no processor; nil means that there was none.
	Stalls *stall.Summary `json:"stalls,omitempty"`
}

// Self describes this process. It is for listings.
func Self() Process {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return Process{Goroutines: runtime.NumGoroutine(), LiveHeap: live[0].Value.Uint64(), Stalls: stall.OfProcess.Summary()}
}
