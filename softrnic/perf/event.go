package perf

// Baseline tests without RDMA. Run does not execute them, but package raw does; their Result has
// the same form.
const (
	RawBW  = "raw_bw"
	RawLat = "raw_lat"
)

// Event is one line of the stream in which a host daemon reports a run: any number with Progress,
// then one with the Result, and with Error if the run failed.
type Event struct {
	Progress *Progress `json:"progress,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    string    `json:"error,omitempty"`
}
