package insim

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// orderSpan is how long clients of an Order load work.
const orderSpan = 100 * time.Millisecond

// orderRun is one load in progress. A request is recognised by its client's link and its PSN: a
// client has one request in flight, and its connection counts PSNs alone.
type orderRun struct {
	load  experiment.Order
	rack  *simrack.Rack
	zipf  *kv.Zipf
	frame wire.Frame
	// asked has the requests in flight. numbered is how many requests have reached the switch. last
	// is the number of the request that was answered before the present one. counts has the number of
	// answers by distance; see experiment.Platform.Order.
	asked    map[orderKey]orderAsked
	numbered int
	last     int
	counts   map[int]int
	total    int
}

// orderKey is a request in flight: the client's host and the PSN.
type orderKey struct {
	host string
	psn  wire.PSN
}

// orderAsked is the number of a request in the order of arrival at the switch; again: the client has
// sent it more than once.
type orderAsked struct {
	number int
	again  bool
}

// Order runs clients that read, write and swap words, and returns the share of answers by distance:
// see experiment.Platform.Order.
func (p *Sim) Order(ctx context.Context, l experiment.Order) (map[int]float64, error) {
	file := fmt.Sprintf("name: order\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n  - {name: ms0, role: memory}\n", wordHosts-1)
	if l.Mapped {
		file += fmt.Sprintf("switch: {program: swordbox, rules: [{server: ms0, action: move, mode: hardened, service: %s}]}\n", switchService)
	}
	if l.Loss > 0 {
		file += fmt.Sprintf("faults: [{link: ms0, kind: loss, probability: %g}]\n", l.Loss)
	}
	m := *p.Cost.AtLineRate()
	m.NIC.Stall = l.Stall
	r := &orderRun{load: l, zipf: kv.NewZipf(uint64(l.Words), l.Zipf), asked: make(map[orderKey]orderAsked), counts: make(map[int]int)}
	var err error
	if r.rack, err = newRack(ctx, file, simrack.Options{Cost: &m, Datagrams: true, Trace: r.record}); err != nil {
		return nil, err
	}
	defer r.rack.Close()
	srv := r.rack.Host("ms0")
	lent := simrack.Passive{Bytes: 8 * l.Words, Service: wordService}
	if l.Mapped {
		lent.Switch = switchService
	}
	srv.Go(wordService, true, func(ctx verbs.Context) { r.rack.Stop(srv.Lend(ctx, lent)) })
	startClients(r.rack, l.Clients, wordHosts, r.client)
	if err := run(ctx, r.rack); err != nil {
		return nil, err
	}
	out := make(map[int]float64)
	for d, n := range r.counts {
		out[d] = float64(n) / float64(max(1, r.total))
	}
	return out, nil
}

// record is called for each event of the simulation. It numbers requests when they reach the switch,
// and counts answers when they leave it, both on the links of clients, by their distance (see
// experiment.Platform.Order).
func (r *orderRun) record(ev *simnet.Event) {
	if ev.Link() == "ms0" || wire.ParseFrame(ev.Frame, &r.frame) != nil {
		return
	}
	op, key := r.frame.BTH.Opcode, orderKey{ev.Link(), r.frame.BTH.PSN}
	switch {
	case ev.Kind == simnet.Delivered && ev.Dir() == fault.Up && (op == wire.RCWriteOnly || op == wire.RCReadRequest || op == wire.RCCmpSwap):
		a, again := r.asked[key]
		if a.again = again; !again {
			r.numbered++
			a.number = r.numbered
		}
		r.asked[key] = a
	case ev.Kind == simnet.Sent && ev.Dir() == fault.Down && (op == wire.RCAck || op == wire.RCReadResponseOnly || op == wire.RCAtomicAck):
		a, asked := r.asked[key]
		if !asked {
			return
		}
		delete(r.asked, key)
		distance := 0
		if !a.again {
			distance = max(a.number-r.last, r.last-a.number)
			r.last = a.number
		}
		r.counts[distance]++
		r.total++
	}
}

// client makes requests to words at a rate, with random gaps: READ, WRITE and CAS alike often.
func (r *orderRun) client(h *simrack.Host, ctx verbs.Context, _ int) error {
	rt := ctx.Runtime()
	w, err := dialWords(h, ctx, r.rack, make([]byte, 8))
	if err != nil {
		return err
	}
	rt.Sleep(setUp.Sub(rt.Now()))
	gap := float64(time.Second) * float64(r.load.Clients) / r.load.Rate
	due := setUp
	for end := setUp.Add(orderSpan); ; {
		due = due.Add(time.Duration(gap * rt.Rand().ExpFloat64()))
		if due >= end {
			return nil
		}
		rt.Sleep(due.Sub(rt.Now()))
		if err := r.request(rt, &w); err != nil {
			return err
		}
	}
}

// request makes one request and waits for its completion.
func (r *orderRun) request(rt verbs.Runtime, w *wordEnd) error {
	wr := verbs.SendWR{
		Op: [...]verbs.WROpcode{verbs.OpRead, verbs.OpWrite, verbs.OpCmpSwap}[rt.Rand().IntN(3)], Flags: verbs.Signalled, SGL: []verbs.SGE{w.mr.SGE(0, 8)},
		RemoteAddr: w.base + 8*r.zipf.Next(rt.Rand()), RKey: w.rkey,
	}
	if err := w.qp.PostSend(wr); err != nil {
		return err
	}
	var wc [1]verbs.WC
	for deadline := rt.Now().Add(wordPatience); ; {
		if err := w.cq.Wait(deadline); err != nil {
			return err
		}
		n, err := w.cq.Poll(wc[:])
		if err != nil || n > 0 {
			if err == nil && wc[0].Status != verbs.Success {
				err = fmt.Errorf("a %v failed: %v", wr.Op, wc[0].Status)
			}
			return err
		}
	}
}
