package perf

import "time"

// Result has the measurements of a run. After a run without an error, exactly one of BW, Lat,
// Checks, Soak and Locks is set.
type Result struct {
	Test string `json:"test"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Config is the configuration of the run, with defaults filled in.
	Config Config `json:"config"`
	MTU    int    `json:"mtu"` // path MTU in bytes
	// QPN and PeerQPN are the numbers of the connection's queue pairs, here and at the peer. With them
	// faults can be injected into these queue pairs alone, and the run can be found in a capture.
	QPN     uint32 `json:"qpn"`
	PeerQPN uint32 `json:"peerQpn"`
	// Elapsed is the duration of the timed part of the run.
	Elapsed time.Duration `json:"elapsedNs"`
	// Verified counts compared bytes, VerifiedAtomics atomics whose original value was compared.
	Verified        uint64 `json:"verifiedBytes,omitempty"`
	VerifiedAtomics uint64 `json:"verifiedAtomics,omitempty"`
	// Swapped is the number of CAS of contend that changed the word.
	Swapped uint64 `json:"swapped,omitempty"`
	// Sent and Lost count the messages of a test with lanes (lanes.go). Over an unreliable service, a
	// message is lost if it did not arrive or if the server had no receive for it; BW counts the
	// messages that arrived.
	Sent int `json:"sent,omitempty"`
	Lost int `json:"lost,omitempty"`

	// Both is true if this is the sum of two runs at the same time, one in each direction.
	Both bool `json:"bidirectional,omitempty"`

	BW     *Bandwidth  `json:"bw,omitempty"`
	Lat    *Latency    `json:"lat,omitempty"`
	Checks []Check     `json:"checks,omitempty"`
	Soak   *SoakResult `json:"soak,omitempty"`
	Locks  *LockResult `json:"locks,omitempty"`
	// Counters says by how much each counter of the client's NIC grew during the run, by name.
	// Counters that did not change are left out.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Sum returns the result of bandwidth tests that ran at the same time, each over a connection of its own:
// the messages of all in the longest of their times. Of a single run, of any test, it returns the result
// as it is. There must be at least one.
func Sum(parts []*Result) *Result {
	if len(parts) == 1 {
		return parts[0]
	}
	all := *parts[0]
	bw := *all.BW
	all.BW = &bw
	for _, p := range parts[1:] {
		bw.Iters += p.BW.Iters
		bw.Peak += p.BW.Peak
		all.Elapsed = max(all.Elapsed, p.Elapsed)
		all.Verified += p.Verified
		all.VerifiedAtomics += p.VerifiedAtomics
		all.Sent += p.Sent
		all.Lost += p.Lost
	}
	rate := float64(bw.Iters) / max(all.Elapsed, 1).Seconds()
	bw.Average, bw.MsgRate = rate*float64(bw.Bytes)/(1<<20), rate/1e6
	all.Counters = nil // runs of one host at the same time have counted each other's packets
	return &all
}

// Bandwidth is the result of a bandwidth test, with MiB/s and millions of messages per second
// (Mpps) as perftest prints them.
type Bandwidth struct {
	Bytes    int     `json:"bytes"`
	Iters    int     `json:"iterations"`
	Peak     float64 `json:"peakMiBps"`
	Average  float64 `json:"averageMiBps"`
	MsgRate  float64 `json:"msgRateMpps"`
	TxDepth  int     `json:"txDepth"`
	Signaled int     `json:"signalEvery"`
}

// Latency is the result of a latency test, in microseconds.
type Latency struct {
	Bytes   int     `json:"bytes"`
	Iters   int     `json:"iterations"`
	Min     float64 `json:"minUsec"`
	Max     float64 `json:"maxUsec"`
	Typical float64 `json:"typicalUsec"` // median
	Average float64 `json:"avgUsec"`
	Stdev   float64 `json:"stdevUsec"`
	P99     float64 `json:"p99Usec"`
	P999    float64 `json:"p999Usec"`
}

// Check is the result of one step of the test verify.
type Check struct {
	Name string        `json:"name"`
	OK   bool          `json:"ok"`
	Took time.Duration `json:"tookNs"`
	Err  string        `json:"error,omitempty"`
}

// SoakResult is the result of a soak.
type SoakResult struct {
	Writes    int    `json:"writes"`
	Reads     int    `json:"reads"`
	Sends     int    `json:"sends"`
	FetchAdds int    `json:"fetchAdds"`
	CmpSwaps  int    `json:"cmpSwaps"`
	Sum       uint64 `json:"sum"`      // the final value of the word to which FETCH_ADDs have added
	Expected  uint64 `json:"expected"` // the sum of all addends
	Swapped   uint64 `json:"swapped"`  // CMP_SWAPs that changed the word
}

// Progress says how far a run is.
type Progress struct {
	Phase string `json:"phase"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}
