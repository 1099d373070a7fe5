package perf

// Baselines that a host daemon runs by itself: raw frames over the NIC's port, without RDMA. Run does not know
// them; their Result has the same shape.
const (
	RawBW  = "raw_bw"
	RawLat = "raw_lat"
)

// Event is one line of the stream by which a host daemon reports on a run: any number of Progress, then at last a
// line with the Result, with Error if it failed.
type Event struct {
	Progress *Progress `json:"progress,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    string    `json:"error,omitempty"`
}
