package perf

// Baselines without RDMA: see package raw, which runs them. Run does not know them; their Result
// has the same shape.
const (
	RawBW  = "raw_bw"
	RawLat = "raw_lat"
)

// Event is one line of the stream by which a host daemon reports on a run: any number of Progress,
// then one with the Result, and with Error if the run failed.
type Event struct {
	Progress *Progress `json:"progress,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    string    `json:"error,omitempty"`
}
