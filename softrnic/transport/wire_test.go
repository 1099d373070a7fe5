package transport

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// flying is a packet in flight.
type flying struct {
	at  clock.Time
	n   int // orders packets of the same time
	to  *side
	pkt wire.Packet
}

type flyingHeap []flying

func (h flyingHeap) Len() int { return len(h) }
func (h flyingHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || (h[i].at == h[j].at && h[i].n < h[j].n)
}
func (h flyingHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *flyingHeap) Push(x any)   { *h = append(*h, x.(flying)) }
func (h *flyingHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// badWire is a link with faults between two sides, in virtual time. A corrupted packet is a lost
// one, because its ICRC is wrong.
type badWire struct {
	r                       *rand.Rand
	loss, duplicate, hinder float64 // hinder delays a packet so that others overtake it
	// old is the share of the steps in which one of the last maxPast packets arrives once more, also
	// one that was lost.
	old  float64
	past []flying
	now  clock.Time
	n    int
	air  flyingHeap
}

const (
	wireDelay   = 2 * time.Microsecond
	hinderDelay = 200 * time.Microsecond
	maxPast     = 200
)

// take puts the packets of s on the wire and files its completions.
func (w *badWire) take(s, peer *side) {
	s.file()
	for i := range s.out.Tx {
		p := s.out.Tx[i].Packet
		p.Payload = append([]byte(nil), p.Payload...)
		if w.old > 0 {
			w.past = append(w.past[max(0, len(w.past)-maxPast+1):], flying{to: peer, pkt: p})
		}
		if w.r.Float64() < w.loss {
			peer.qp.core.saw(p.BTH.Opcode, "lost")
			continue
		}
		copies := 1
		if w.r.Float64() < w.duplicate {
			peer.qp.core.saw(p.BTH.Opcode, "duplicated")
			copies = 2
		}
		for range copies {
			at := w.now.Add(wireDelay)
			if w.r.Float64() < w.hinder {
				peer.qp.core.saw(p.BTH.Opcode, "delayed")
				at = at.Add(time.Duration(w.r.Int64N(int64(hinderDelay))))
			}
			w.n++
			heap.Push(&w.air, flying{at, w.n, peer, p})
		}
	}
	s.out.Reset()
}

// step handles the next event, at most until. It returns false if there is none before that.
func (w *badWire) step(a, b *side, until clock.Time) bool {
	if len(w.past) > 0 && w.r.Float64() < w.old {
		f := w.past[w.r.IntN(len(w.past))]
		f.to.qp.core.saw(f.pkt.BTH.Opcode, "duplicated")
		f.to.qp.Handle(w.now, &f.pkt, &f.to.out)
	}
	w.take(a, b)
	w.take(b, a)
	next := clock.Min(a.qp.Deadline(), b.qp.Deadline())
	if len(w.air) > 0 {
		next = clock.Min(next, w.air[0].at)
	}
	if next > until {
		w.now = max(w.now, until)
		return false
	}
	w.now = max(w.now, next)
	for _, s := range []*side{a, b} {
		if s.qp.Deadline() <= w.now {
			s.qp.Tick(w.now, &s.out)
		}
	}
	w.take(a, b)
	w.take(b, a)
	for len(w.air) > 0 && w.air[0].at <= w.now {
		f := heap.Pop(&w.air).(flying)
		f.to.qp.Handle(w.now, &f.pkt, &f.to.out)
	}
	return true
}
