package scenario

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// crowd is a run with very many connections and few words. So the switch uses each place of its
// rings of operations in flight many times, and its tables must have room for all connections. PSNs
// wrap around, and with two of three seeds the server coalesces acknowledgements.
type crowd struct {
	hole  *holeRun
	each  int                // connections of each host
	adds  int                // operations of each connection; every fourth is a CAS, the others are additions of 1
	start clock.Time         // when clients may send their first requests; until then they connect
	sum   [crowdWords]uint64 // additions that were answered, by word
	taken [crowdWords]uint64 // CASes that succeeded, by word
}

const (
	crowdConns = 1000
	crowdWords = 4
	// crowdPause is the longest pause of a client before a request; the pauses spread the requests
	// over time.
	crowdPause = 500 * time.Microsecond
)

// crowdWord returns the offset of word i, to which clients add 1. They increment the word behind it
// by CAS.
func crowdWord(i int) int { return lockAt + 64*i }

// run runs 1,000 connections, or a fifth of them if a test has set Options.Short or
// Options.Hash.
func (c *crowd) run(e *env) error {
	acks := []int{1, 4, 16}[e.seed%3]
	*c = crowd{each: crowdConns / holeClients, adds: 12, start: clock.Time(2e9)}
	if e.opt.Short || e.opt.Hash {
		c.each /= 5
	}
	h := &holeRun{env: e, mode: recordedHardened, hole: &hole{action: "atomics", params: rdmacm.Params{Timeout: 14, RdAtomic: 4}}}
	c.hole = h
	h.hole.rack = simrack.Options{
		FirstPSN: func(r *rand.Rand) wire.PSN { return wire.PSN(0).Add(-(&draw{r}).between(1, 20)) },
		Recovery: simrack.Recovery{Acks: acks},
	}
	h.hole.script = func(*holeRun) { h.rt.Sleep(c.start.Sub(h.rt.Now())) }
	h.begin = c.begin
	e.report.Plan = fmt.Sprintf("%d connections, 4 words, an ACK for %d requests, first PSNs shortly before the wrap", holeClients*c.each, acks)
	if err := h.play(); err != nil {
		return err
	}
	return c.check()
}

// begin starts the clients before the rack runs.
func (c *crowd) begin() {
	for i := range holeClients {
		host := c.hole.rack.Host(fmt.Sprintf("cn%d", i))
		for k := range c.each {
			c.hole.env.client(host.Spec.Name, fmt.Sprintf("crowd-%d", k), func(ctx verbs.Context) error { return c.client(host, ctx) })
		}
	}
}

// client adds 1 to the words in turn, and with every fourth operation increments the word behind
// one of them by CAS.
func (c *crowd) client(h *simrack.Host, ctx verbs.Context) error {
	end, err := newEnds(ctx, 64, 4, verbs.LocalWrite)
	if err != nil {
		return err
	}
	rt, d := end.rt, newDraw(ctx.Runtime().Rand().Uint64())
	rt.Sleep(d.span(0, time.Second)) // spreads the dials of the clients over a second
	private, err := h.ConnManager(ctx).Dial(end.qp, c.hole.rack.Host("ms0").Addr(), holeService, c.hole.params, nil, c.start)
	if err != nil {
		return err
	}
	mem := parseRemotes(private)[0]
	rt.Sleep(c.start.Sub(rt.Now()))
	seen := make([]uint64, crowdWords)
	for n := range c.adds {
		w := (n + int(end.qp.QPN())) % crowdWords
		wr := verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: 1, RemoteAddr: mem.addr + uint64(crowdWord(w))}
		if n%4 == 3 {
			wr.Op, wr.CompareAdd, wr.Swap, wr.RemoteAddr = verbs.OpCmpSwap, seen[w], seen[w]+1, wr.RemoteAddr+8
		}
		wr.RKey, wr.SGL = mem.rkey, []verbs.SGE{end.mr.SGE(0, 8)}
		rt.Sleep(d.span(0, crowdPause))
		wc, err := end.do(wr)
		if err != nil {
			return err
		}
		if wc.Status != verbs.Success {
			return fmt.Errorf("%v: %v", wr.Op, wc.Status)
		}
		prior := binary.NativeEndian.Uint64(end.buf)
		switch {
		case wr.Op == verbs.OpFetchAdd:
			c.sum[w]++
			continue
		case prior == seen[w]:
			c.taken[w]++
			prior++
		}
		seen[w] = prior
	}
	return nil
}

func (c *crowd) check() error {
	for w := range crowdWords {
		if got := c.hole.word(crowdWord(w)); got != c.sum[w] {
			return fmt.Errorf("word %d: %d additions of 1 were answered, the sum is %d", w, c.sum[w], got)
		}
		if got := c.hole.word(crowdWord(w) + 8); got != c.taken[w] {
			return fmt.Errorf("word %d: %d CAS worked, the word says %d", w, c.taken[w], got)
		}
	}
	p, ok := c.hole.rack.Program().(*swordbox.Program)
	if !ok {
		return fmt.Errorf("the program is %T", c.hole.rack.Program())
	}
	rows := len(p.Connections().List(c.hole.rack.Now()))
	count := countersOf(c.hole.machine())
	up := c.hole.rack.Host("ms0").Link().Stats(fault.Up)
	c.hole.env.note("the memory server sent %d packets for %d requests", up.Sent, holeClients*c.each*c.adds)
	c.hole.env.note("%d flows of at most %d; %d requests moved, %d of them replaced; %d held, %d dropped because no place was free",
		rows, p.Connections().MaxFlows(), count["moved"], count["replaced"]+count["replaced_empty"], count["held"], count["held_full"])
	if want := 2 * holeClients * c.each; rows < want {
		return fmt.Errorf("the switch tracks %d flows, want %d", rows, want)
	}
	if all := uint64(holeClients * c.each * c.adds); count["moved"] < all/2 {
		return fmt.Errorf("%d of %d requests were moved", count["moved"], all)
	}
	return nil
}
