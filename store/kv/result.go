package kv

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxLatency is the longest latency in the histograms. Longer ones count as maxLatency. digits is
// the precision of the histograms in decimal digits.
const (
	maxLatency = time.Minute
	digits     = 2
)

// Result has the measurements of one or several clients of a workload. Merge adds results.
type Result struct {
	Clients int
	// Span is the time during which operations were counted.
	Span time.Duration
	Ops  [kinds]uint64
	// Halves has the operations that began in the first and in the second half of Span, if the run
	// had a fixed duration. In steady state they are equal.
	Halves [2]uint64
	// FirstTry counts writes (updates, inserts, deletes, read-modify-writes) that succeeded at the
	// first attempt. Retries counts attempts that failed because another client changed the key
	// first.
	FirstTry, Retries uint64
	// RTTs counts round trips on the data path. RPCs counts calls of the metadata server.
	RTTs, RPCs uint64
	// NotFound counts operations on keys that did not exist. Ops includes them only if keys may be
	// absent: in a workload that deletes keys, and in Replay. Failed counts operations with another
	// error. Wrong counts values that no client wrote.
	NotFound, Failed, Wrong uint64
	// Existed counts inserts that found their key: it was loaded before, or an earlier attempt
	// whose outcome was unknown has inserted it.
	Existed    uint64
	FirstError string
	// Spent is the total time that operations of a kind were in each phase. It is zero if the store
	// is not Timed.
	Spent [kinds][phases]time.Duration
	// Spans are the operations that RunConfig.Spans asks for, those of one client together.
	Spans []Span                             `json:",omitempty"`
	hist  [kinds + 1]*hdrhistogram.Histogram // latencies by kind, and then waiting times (queue)
}

// queue is the index in Result.hist for the waiting times of an open loop: the time from the moment
// at which an operation was due to its beginning.
const queue = kinds

func (r *Result) note(k Kind, took time.Duration, c Cost) {
	r.Ops[k]++
	if k != KindRead && k != KindScan && c.FirstTry() {
		r.FirstTry++
	}
	r.Retries += uint64(c.Retries)
	r.RTTs += uint64(c.RTTs)
	r.RPCs += uint64(c.RPCs)
	r.record(k, took)
}

// spend adds the times of an operation: `queued` before it began, and `spent` in its phases. spent
// is nil if the store has no timeline.
func (r *Result) spend(k Kind, queued time.Duration, spent *[phases]time.Duration) {
	if spent == nil {
		return
	}
	for p, d := range spent {
		r.Spent[k][p] += d
	}
	r.Spent[k][PhaseQueue] += queued
}

func (r *Result) record(k Kind, took time.Duration) {
	if r.hist[k] == nil {
		r.hist[k] = hdrhistogram.New(1, int64(maxLatency), digits)
	}
	// The latency is in the range of the histogram, so there is no error.
	_ = r.hist[k].RecordValue(int64(min(max(took, 1), maxLatency)))
}

// Merge adds the measurements of other clients that ran at the same time.
func (r *Result) Merge(o *Result) {
	r.Clients += o.Clients
	r.Span = max(r.Span, o.Span)
	for k, n := range o.Ops {
		r.Ops[k] += n
	}
	for k, h := range o.hist {
		if h == nil {
			continue
		}
		if r.hist[k] == nil {
			r.hist[k] = hdrhistogram.New(1, int64(maxLatency), digits)
		}
		r.hist[k].Merge(h)
	}
	for k := range o.Spent {
		r.spend(Kind(k), 0, &o.Spent[k])
	}
	r.Halves[0] += o.Halves[0]
	r.Halves[1] += o.Halves[1]
	r.FirstTry += o.FirstTry
	r.Retries += o.Retries
	r.RTTs += o.RTTs
	r.RPCs += o.RPCs
	r.NotFound += o.NotFound
	r.Failed += o.Failed
	r.Wrong += o.Wrong
	r.Existed += o.Existed
	r.FirstError = cmp.Or(r.FirstError, o.FirstError)
	r.Spans = append(r.Spans, o.Spans...)
}

// Total returns the number of operations that were counted.
func (r *Result) Total() uint64 {
	n := uint64(0)
	for _, k := range r.Ops {
		n += k
	}
	return n
}

// Throughput returns the number of operations per second.
func (r *Result) Throughput() float64 {
	if r.Span <= 0 {
		return 0
	}
	return float64(r.Total()) / r.Span.Seconds()
}

// Writes returns the number of operations that change a key.
func (r *Result) Writes() uint64 {
	return r.Ops[KindUpdate] + r.Ops[KindInsert] + r.Ops[KindReadModify] + r.Ops[KindDelete]
}

// FirstTryShare returns the share of writes that succeeded at the first attempt, or 1 if there were
// no writes.
func (r *Result) FirstTryShare() float64 {
	if r.Writes() == 0 {
		return 1
	}
	return float64(r.FirstTry) / float64(r.Writes())
}

// Percentile returns the latency of operations of a kind at percentile p, from 0 to 100, or 0 if
// there were no such operations.
func (r *Result) Percentile(k Kind, p float64) time.Duration {
	if r.hist[k] == nil {
		return 0
	}
	return time.Duration(r.hist[k].ValueAtPercentile(p))
}

// Latency is the row for one kind in a Summary. Times are in microseconds.
type Latency struct {
	Kind string  `json:"kind"`
	Ops  uint64  `json:"ops"`
	P50  float64 `json:"p50Usec"`
	P90  float64 `json:"p90Usec"`
	P99  float64 `json:"p99Usec"`
	P999 float64 `json:"p999Usec"`
	Max  float64 `json:"maxUsec"`
}

// Summary is a Result in a form for people and programs.
type Summary struct {
	Clients    int       `json:"clients"`
	Seconds    float64   `json:"seconds"`
	Ops        uint64    `json:"ops"`
	Throughput float64   `json:"opsPerSecond"`
	FirstTry   float64   `json:"firstTry"`
	Retries    uint64    `json:"retries"`
	RTTsPerOp  float64   `json:"rttsPerOp"`
	RPCs       uint64    `json:"rpcs"`
	NotFound   uint64    `json:"notFound"`
	Failed     uint64    `json:"failed"`
	Wrong      uint64    `json:"wrong"`
	Existed    uint64    `json:"existed,omitempty"`
	FirstError string    `json:"firstError,omitempty"`
	Latencies  []Latency `json:"latencies"`
	// Breakdown says in which phases the operations spent their time. It is empty if the store is
	// not Timed.
	Breakdown []Breakdown `json:"breakdown,omitempty"`
}

// AllKinds is the Kind in the Breakdown of all operations together.
const AllKinds = "all"

// Breakdown says in which phases the operations of one kind spent their time. The phases add up to
// the mean.
type Breakdown struct {
	Kind string `json:"kind"`
	Ops  uint64 `json:"ops"`
	// Mean is the mean latency in microseconds. Phases has, by name, the mean time of an operation
	// in each phase that occurred; operations without the phase count as 0.
	Mean   float64            `json:"meanUsec"`
	Phases map[string]float64 `json:"phasesUsec"`
}

func breakdown(kind string, n uint64, spent *[phases]time.Duration) Breakdown {
	b := Breakdown{Kind: kind, Ops: n, Phases: map[string]float64{}}
	for p, d := range spent {
		if d != 0 {
			usec := float64(d) / float64(n) / 1e3
			b.Phases[Phase(p).String()] = usec
			b.Mean += usec
		}
	}
	return b
}

// breakdowns returns the Breakdown of each kind, followed by the Breakdown of all operations.
func (r *Result) breakdowns() (list []Breakdown) {
	var all [phases]time.Duration
	for k := range r.Spent {
		if r.Spent[k] == ([phases]time.Duration{}) || r.Ops[k] == 0 {
			continue
		}
		list = append(list, breakdown(Kind(k).String(), r.Ops[k], &r.Spent[k]))
		for p, d := range r.Spent[k] {
			all[p] += d
		}
	}
	if len(list) > 0 {
		list = append(list, breakdown(AllKinds, r.Total(), &all))
	}
	return list
}

// Summary returns the result as a Summary.
func (r *Result) Summary() Summary {
	s := Summary{
		Clients: r.Clients, Seconds: r.Span.Seconds(), Ops: r.Total(), Throughput: r.Throughput(), FirstTry: r.FirstTryShare(),
		Retries: r.Retries, RPCs: r.RPCs, NotFound: r.NotFound, Failed: r.Failed, Wrong: r.Wrong, Existed: r.Existed, FirstError: r.FirstError,
	}
	s.Breakdown = r.breakdowns()
	if s.Ops > 0 {
		s.RTTsPerOp = float64(r.RTTs) / float64(s.Ops)
	}
	for k, h := range r.hist {
		if h == nil {
			continue
		}
		name, at := queueName, func(p float64) float64 { return float64(h.ValueAtPercentile(p)) / 1e3 }
		if k := Kind(k); k != queue {
			name = k.String()
		}
		s.Latencies = append(s.Latencies, Latency{
			Kind: name, Ops: uint64(h.TotalCount()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: at(100),
		})
	}
	return s
}

// queueName is the Kind of the queue's row in a Summary.
const queueName = "queue"

// MarshalJSON writes the result with its histograms.
func (r *Result) MarshalJSON() ([]byte, error) {
	type plain Result
	w := struct {
		*plain
		Hist [kinds + 1]*hdrhistogram.Snapshot
	}{plain: (*plain)(r)}
	for k, h := range r.hist {
		if h != nil {
			w.Hist[k] = h.Export()
		}
	}
	return json.Marshal(w)
}

func (r *Result) UnmarshalJSON(b []byte) error {
	type plain Result
	w := struct {
		*plain
		Hist [kinds + 1]*hdrhistogram.Snapshot
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	for k, h := range w.Hist {
		if r.hist[k] = nil; h != nil {
			r.hist[k] = hdrhistogram.Import(h)
		}
	}
	return nil
}
