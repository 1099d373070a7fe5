package hostd

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ClientsStatus describes the work of the clients of stores on a host.
type ClientsStatus struct {
	Count int `json:"count"`
	// Rate is how many operations succeeded in the last full second. P99 is the 99th percentile of
	// their latency, in microseconds.
	Rate uint64  `json:"rate"`
	P99  float64 `json:"p99Usec"`
}

// Range and precision of a meter's latencies: up to a minute, with two significant decimal digits.
const (
	meterLongest = time.Minute
	meterDigits  = 2
)

// meter counts the successful operations of all clients of a host. The zero value is ready to use.
type meter struct {
	mu    sync.Mutex // guards the fields below
	count int        // clients
	// second is the Unix time, in seconds, of the second that hist counts. last is the result of
	// the second before; zero if no operation or status call fell into that second.
	second int64
	hist   *hdrhistogram.Histogram
	last   ClientsStatus
}

// clients adds n to the number of running clients; n may be negative.
func (m *meter) clients(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count += n
}

// note counts an operation that has succeeded at time now, and has taken the time took.
func (m *meter) note(now time.Time, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll(now)
	_ = m.hist.RecordValue(int64(min(max(took, 1), meterLongest))) // the value is in range
}

// roll begins a new second if the present one is over.
func (m *meter) roll(now time.Time) {
	if m.hist == nil {
		m.hist = hdrhistogram.New(1, int64(meterLongest), meterDigits)
	}
	second := now.Unix()
	if second == m.second {
		return
	}
	m.last = ClientsStatus{}
	if second == m.second+1 {
		m.last.Rate = uint64(m.hist.TotalCount())
		m.last.P99 = float64(m.hist.ValueAtPercentile(99)) / float64(time.Microsecond)
	}
	m.second = second
	m.hist.Reset()
}

// status returns the status of the clients; nil if there are none.
func (m *meter) status(now time.Time) *ClientsStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count <= 0 {
		return nil
	}
	m.roll(now)
	s := m.last
	s.Count = m.count
	return &s
}
