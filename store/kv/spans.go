package kv

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Span is one operation of a client and its phases, for a trace of single operations. Times are by
// the clock of the client's runtime until Result.Stamp makes them nanoseconds since 1970.
type Span struct {
	Client     int        `json:"client"`
	Kind       Kind       `json:"kind"`
	Key        uint64     `json:"key"`
	Begin, End clock.Time // Begin is when the operation was due
	RTTs       int        `json:"rtts"`
	Retries    int        `json:"retries"`
	// Error is "" for an operation that succeeded.
	Error string `json:"error,omitempty"`
	// Parts are the phases but PhaseClient, in the order of their times, at most maxParts; More is
	// how many further ones there were. A store that is not Timed has PhaseQueue at most.
	Parts []Part `json:"parts,omitempty"`
	More  int    `json:"more,omitempty"`
}

// Part is a phase of an operation.
type Part struct {
	Phase      Phase `json:"phase"`
	Begin, End clock.Time
	// Switch is how long requests of the phase, or responses to them, were inside the switch; 0 if
	// the runtime is not Switched.
	Switch time.Duration `json:"switch,omitempty"`
}

// MaxSpans bounds RunConfig.Spans. maxParts bounds the parts of an operation.
const (
	MaxSpans = 10_000
	maxParts = 128
)

// parts collects the phases of an operation.
type parts struct {
	on   bool
	list []Part
	more int
}

// add adds a phase that has ended. The client's own work is what the other phases leave.
func (p *parts) add(phase Phase, begin, end clock.Time, inSwitch time.Duration) {
	switch {
	case !p.on || phase == PhaseClient || begin == end:
	case len(p.list) == maxParts:
		p.more++
	default:
		p.list = append(p.list, Part{phase, begin, end, inSwitch})
	}
}

// span records an operation that was due at the time `due`, began at `began` and has ended at `end`.
func (c *runner) span(op Op, due, began, end clock.Time, cost Cost, err error) {
	s := Span{Client: c.cfg.Client, Kind: op.Kind, Key: op.Key, Begin: due, End: end, RTTs: cost.RTTs, Retries: cost.Retries}
	if err != nil {
		s.Error = err.Error()
	}
	if due != began {
		s.Parts = append(s.Parts, Part{Phase: PhaseQueue, Begin: due, End: began})
	}
	if c.line != nil {
		s.Parts, s.More = append(s.Parts, c.line.parts.list...), c.line.parts.more
	}
	c.result.Spans = append(c.result.Spans, s)
}

// Stamp makes the times of all spans nanoseconds since 1970. now is the time at which the clock of
// the clients showed `clocks`.
func (r *Result) Stamp(now time.Time, clocks clock.Time) {
	by := time.Duration(now.UnixNano() - int64(clocks))
	for i := range r.Spans {
		s := &r.Spans[i]
		s.Begin, s.End = s.Begin.Add(by), s.End.Add(by)
		for k := range s.Parts {
			s.Parts[k].Begin, s.Parts[k].End = s.Parts[k].Begin.Add(by), s.Parts[k].End.Add(by)
		}
	}
}
