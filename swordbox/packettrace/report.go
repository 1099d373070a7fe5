package packettrace

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// Flow is what a trace says about the packets that have the same key and, if the key is a whole flow,
// the same destination queue pair.
type Flow struct {
	Key telemetry.Key `json:"key"`
	// QP is the destination queue pair of RoCEv2 packets with sequence numbers; 0 for other packets.
	QP wire.QPN `json:"qp,omitempty"`
	// Packets and Bytes are corrected for sampling. Share is Bytes divided by the bytes of all flows.
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`
	Share   float64 `json:"share"`
	// Numbered is how many packets have a sequence number; it and the next two count the records' packets
	// without correction. Late and Again count those of them that came behind a later one, and those
	// whose number was there before.
	Numbered uint64 `json:"numbered"`
	Late     uint64 `json:"late"`
	Again    uint64 `json:"again"`
	// First and Last are when the first and the last packet came in, by the switch's clock.
	First clock.Time `json:"first"`
	Last  clock.Time `json:"last"`
}

// Report is the analysis of a trace.
type Report struct {
	Records int    `json:"records"`
	Missing uint64 `json:"missing"`
	Others  int    `json:"others"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Span is the time from the first to the last packet.
	Span time.Duration `json:"span"`
	// Every is how many packets there are for each one in the trace.
	Every uint64 `json:"every"`
	Flows []Flow `json:"flows"`
}

// name names a flow.
type name struct {
	key telemetry.Key
	qp  wire.QPN
}

// stream is a flow while the records are read. Its sequence numbers are those of streams with whole
// flows as keys, because packets of different flows are in no order.
type stream struct {
	next int64 // the largest number so far and all that its packet takes, without wrapping around
	seen map[int64]bool
}

// Report analyses the records, with flows by the given headers, those with most bytes first. every is
// how many packets there are for each one in the trace (telemetry.Sampler.Every).
func (t *Trace) Report(by telemetry.By, every uint64) Report {
	list := t.Records()
	out := Report{Records: len(list), Missing: t.Missing(), Others: t.Others(), Every: max(1, every)}
	flows, streams := make(map[name]*Flow), make(map[name]*stream)
	var first, last clock.Time
	for i := range list {
		r := &list[i]
		whole := telemetry.Parse(r.Head, telemetry.ByFlow)
		s, numbered := r.sequence(&whole)
		n := name{telemetry.Parse(r.Head, by), 0}
		if by == telemetry.ByFlow {
			n.qp = s.qp
		}
		f := flows[n]
		if f == nil {
			f = &Flow{Key: n.key, QP: n.qp, First: r.Time}
			flows[n] = f
		}
		packets := uint64(r.Taken) * out.Every
		f.Packets += packets
		f.Bytes += packets * uint64(r.Length) / uint64(r.Packets)
		f.Last = r.Time
		if numbered {
			f.order(streams, name{whole, s.qp}, &s)
		}
		if i == 0 {
			first = r.Time
		}
		last = max(last, r.Time)
		out.Packets += packets
	}
	for _, f := range flows {
		out.Bytes += f.Bytes
	}
	for _, f := range flows {
		if out.Bytes > 0 {
			f.Share = float64(f.Bytes) / float64(out.Bytes)
		}
		out.Flows = append(out.Flows, *f)
	}
	out.Span = last.Sub(first)
	slices.SortFunc(out.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.First, b.First), cmp.Compare(a.QP, b.QP), cmp.Compare(a.Key.Hash(), b.Key.Hash()))
	})
	return out
}

// order counts packets with sequence numbers as in order, late or again.
func (f *Flow) order(streams map[name]*stream, n name, s *sequence) {
	st := streams[n]
	if st == nil {
		st = &stream{next: int64(s.number), seen: make(map[int64]bool)}
		streams[n] = st
	}
	for i := range s.steps {
		f.Numbered++
		at := st.next + int64(s.ahead(s.number+i*s.length, uint32(st.next)))
		switch {
		case st.seen[at]:
			f.Again++
		case at < st.next:
			f.Late++
		}
		st.seen[at] = true
		st.next = max(st.next, at+int64(s.length))
	}
}
