package perf

// Baseline tests without RDMA. Run does not execute them, but package raw does; their Result has
// the same form.
const (
	RawBW  = "raw_bw"
	RawLat = "raw_lat"
)

// Tests over the 1RMA NIC, which has no connections. Run does not execute them, but package
// onerma/measure does.
const (
	OneRMAReadBW   = "onerma_read_bw"
	OneRMAWriteBW  = "onerma_write_bw"
	OneRMAReadLat  = "onerma_read_lat"
	OneRMAWriteLat = "onerma_write_lat"
)

func OneRMATests() []string {
	return []string{OneRMAReadBW, OneRMAWriteBW, OneRMAReadLat, OneRMAWriteLat}
}

// Event is one line of the stream by which a host daemon reports a run. First come any number of
// lines with Progress. The last line has the Result, and the Error if the run has failed. If the
// configuration has the field Held, a line with Held goes before the last one: the clients have
// ended, and the run waits to be released.
type Event struct {
	Progress *Progress `json:"progress,omitempty"`
	Held     bool      `json:"held,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    string    `json:"error,omitempty"`
}
