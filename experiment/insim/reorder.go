package insim

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// orderSpan is how long clients of an Order load work.
const orderSpan = 20 * time.Millisecond

// orderRun is one load in progress. Each WRITE has a number, which is its payload, so that the
// trace recognises the WRITE before and behind the switch.
type orderRun struct {
	load  experiment.Order
	rack  *simrack.Rack
	frame wire.Frame
	// placed has, by the WRITE's number, its place in the order of arrival at the switch. last is
	// the place of the WRITE that reached the server before the present one. counts has the number
	// of WRITEs by distance; see experiment.Platform.Order.
	placed map[uint64]int
	last   int
	counts map[int]int
	total  int
	next   uint64
}

// Order runs clients that WRITE to random words, and returns the share of requests by distance: see
// experiment.Platform.Order.
func (p *Sim) Order(ctx context.Context, l experiment.Order) (map[int]float64, error) {
	file := fmt.Sprintf("name: order\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n  - {name: ms0, role: memory}\n", wordHosts-1)
	if l.Mapped {
		file += fmt.Sprintf("switch: {program: swordbox, rules: [{server: ms0, action: move, mode: hardened, service: %s}]}\n", switchService)
	}
	r := &orderRun{load: l, placed: make(map[uint64]int), counts: make(map[int]int)}
	var err error
	if r.rack, err = newRack(ctx, file, simrack.Options{Cost: p.Cost, Datagrams: true, Trace: r.record}); err != nil {
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

// record is called for each event of the simulation. It notes the number, in the order of arrival,
// of each WRITE that reaches the switch. It counts the WRITEs that reach the server by their
// distance (see experiment.Platform.Order).
func (r *orderRun) record(ev *simnet.Event) {
	if ev.Kind != simnet.Delivered || wire.ParseFrame(ev.Frame, &r.frame) != nil || r.frame.BTH.Opcode != wire.RCWriteOnly || len(r.frame.Payload) != 8 {
		return
	}
	id := binary.BigEndian.Uint64(r.frame.Payload)
	at, seen := r.placed[id]
	switch {
	case ev.Dir() == fault.Up && !seen:
		r.placed[id] = len(r.placed)
	case ev.Dir() == fault.Down && seen:
		r.counts[max(at-r.last, r.last-at)]++
		r.last = at
		r.total++
	}
}

// client posts WRITEs to random words at a rate, with random gaps.
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
		if err := r.write(rt, &w); err != nil {
			return err
		}
	}
}

// write posts one WRITE and waits for its completion.
func (r *orderRun) write(rt verbs.Runtime, w *wordEnd) error {
	r.next++
	if err := w.mr.WriteAt(binary.BigEndian.AppendUint64(nil, r.next), 0); err != nil {
		return err
	}
	err := w.qp.PostSend(verbs.SendWR{
		Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{w.mr.SGE(0, 8)}, RemoteAddr: w.base + 8*rt.Rand().Uint64N(uint64(r.load.Words)), RKey: w.rkey,
	})
	if err != nil {
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
				err = fmt.Errorf("a WRITE failed: %v", wc[0].Status)
			}
			return err
		}
	}
}
