package hostd

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ClientsStatus is what the clients of stores on a host do.
type ClientsStatus struct {
	// Count is how many there are.
	Count int `json:"count"`
	// Rate is how many operations have succeeded in the last full second, and P99 what 99 of 100 of
	// them took at most.
	Rate uint64  `json:"rate"`
	P99  float64 `json:"p99Usec"`
}

// Latencies that a meter tells apart: up to a minute, two decimal digits.
const (
	meterLongest = time.Minute
	meterDigits  = 2
)

// meter counts the operations of all clients of a host. The zero value is one.
type meter struct {
	mu    sync.Mutex // guards what follows
	count int        // clients
	// second is the one that hist is of, last what came of the one before.
	second int64
	hist   *hdrhistogram.Histogram
	last   ClientsStatus
}

// clients says that n more clients run, or fewer.
func (m *meter) clients(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count += n
}

// note counts an operation that took a time and ended now.
func (m *meter) note(now time.Time, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll(now)
	_ = m.hist.RecordValue(int64(min(max(took, 1), meterLongest))) // it is in range
}

// roll begins a new second if it is one.
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

// status is nil if there are no clients.
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
