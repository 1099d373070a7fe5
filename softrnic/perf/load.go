package perf

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Load is a load of READs that one host makes, by its 1RMA NIC or by RoCEv2. It is sent as JSON to
// the host. Package onerma/measure and the host's daemon run it.
type Load struct {
	// To has the names or addresses of the hosts whose memory is read. Each READ goes to one of them
	// at random.
	To []string `json:"to"`
	// RoCE is true for READs over a connection to the memory service of each host. Otherwise the READs
	// are those of the 1RMA NIC.
	RoCE bool `json:"roce,omitempty"`
	// Size is the length of a READ in bytes.
	Size int `json:"size"`
	// Rate is how many READs begin in a second, at random times (a Poisson process). If Rate is 0,
	// there are always Depth READs in flight.
	Rate  float64 `json:"rate,omitempty"`
	Depth int     `json:"depth,omitempty"`
	// Begin, End and Last are in nanoseconds since 1970, because the hosts of a rack have one
	// clock. READs begin from Begin until End. Those that have not ended at Last fail.
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
	Last  int64 `json:"last"`
	// Seed determines the random choices.
	Seed uint64 `json:"seed,omitempty"`
	LoadControl
}

// LoadControl is how the congestion control of a 1RMA load differs from that of the host's other
// programs.
type LoadControl struct {
	// First is the first congestion window in operations; 0 means that of the host's other
	// programs.
	First float64 `json:"first,omitempty"`
	// TotalDelay makes the congestion windows follow the whole time of a READ, without a separate
	// window for the delay in the local NIC; see TotalDelay in executor.Config.
	TotalDelay bool `json:"totalDelay,omitempty"`
	// Open is true for a load without congestion control: each READ is passed to the NIC at once,
	// and a READ that fails is not tried again.
	Open bool `json:"open,omitempty"`
}

// Bounds of a Load.
const (
	maxLoadPeers = 128
	maxLoadRate  = 1e5 // READs per second
	// MaxLoadFlying is how many READs of a load are in flight at most. Further READs are counted as
	// shed.
	MaxLoadFlying = 256
	maxLoadTime   = 10 * time.Minute
	// maxLoadSamples is how many READs a result has at most.
	maxLoadSamples = 1 << 20
)

// LoadShed is the Status of a LoadSample whose READ was not begun, because MaxLoadFlying others
// were in flight.
const LoadShed = "SHED"

func (l *Load) Validate() error {
	switch {
	case len(l.To) < 1 || len(l.To) > maxLoadPeers:
		return fmt.Errorf("load: %d hosts to read from: want 1 to %d", len(l.To), maxLoadPeers)
	case l.Size < 1 || l.Size > MaxSize:
		return fmt.Errorf("load: size %d: want 1 to %d bytes", l.Size, MaxSize)
	case !(l.Rate >= 0 && l.Rate <= maxLoadRate) || l.Depth < 0 || l.Depth > MaxLoadFlying || (l.Rate == 0) == (l.Depth == 0):
		return fmt.Errorf("load: rate %g, depth %d: want a rate up to %g, or a depth up to %d", l.Rate, l.Depth, maxLoadRate, MaxLoadFlying)
	case l.Begin < 0 || l.End <= l.Begin || l.Last < l.End || l.Last-l.Begin > int64(maxLoadTime):
		return fmt.Errorf("load: begin %d, end %d, last %d: want them in this order, within %v", l.Begin, l.End, l.Last, maxLoadTime)
	}
	return nil
}

// LoadSample is one READ of a Load.
type LoadSample struct {
	// At is when the READ has ended, in nanoseconds since 1970. Took is how long it took.
	At   int64         `json:"at"`
	Took time.Duration `json:"took"`
	// Status says why the READ has failed; "" means that it has succeeded.
	Status string `json:"status,omitempty"`
	// Retries is how many operations of the READ were tried again.
	Retries int `json:"retries,omitempty"`
}

// LoadResult is the outcome of a Load.
type LoadResult struct {
	// Began is when the first READ could begin, in nanoseconds since 1970. It is later than Load.Begin
	// if the preparations took longer.
	Began   int64        `json:"began"`
	Samples []LoadSample `json:"samples"`
}

// Full reports whether the result has maxLoadSamples READs, the most that it may have. The load
// then begins no further READs.
func (r *LoadResult) Full() bool { return len(r.Samples) >= maxLoadSamples }

// Arrivals draws the times at which the READs of a Load begin, and the hosts they go to.
type Arrivals struct {
	rand *rand.Rand
	load *Load
}

// Arrivals returns what draws the READs of the load, by its Seed.
func (l *Load) Arrivals() *Arrivals {
	return &Arrivals{rand: rand.New(rand.NewPCG(l.Seed, 1)), load: l}
}

// Gap returns the time from one READ to the next. The load must have a Rate.
func (a *Arrivals) Gap() time.Duration {
	return time.Duration(a.rand.ExpFloat64() / a.load.Rate * float64(time.Second))
}

// Peer returns the index in Load.To of the host for the next READ.
func (a *Arrivals) Peer() int { return a.rand.IntN(len(a.load.To)) }
