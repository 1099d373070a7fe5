package insim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// roceRack has hosts with RoCEv2 NICs, on links like those of soloRack. The NICs take no time, like
// the 1RMA NICs of soloRack. No frame is lost: the switch has room for all frames, or pauses hosts.
type roceRack struct {
	*simrack.Rack
	hosts []*roceHost
	rand  *rand.Rand
}

// roceHost is a host with its memory, and one completion queue for all its connections.
type roceHost struct {
	rack  *roceRack
	host  *simrack.Host
	ctx   verbs.Context
	pd    verbs.PD
	cq    verbs.CQ
	mr    verbs.MR
	pairs []*rocePair
}

// rocePair is a connection, as its initiator sees it.
type rocePair struct {
	from, to *roceHost
	number   uint64 // index in from.pairs
	qp       verbs.QP
	posted   []roceOp // operations in flight, in the order of their posts, in which they complete
	backlog  []roceOp // operations that wait for room in the send queue
}

// roceOp is a READ or WRITE of the first bytes of the target's memory. done is called when it ends.
type roceOp struct {
	op    verbs.WROpcode
	bytes int
	begun clock.Time
	done  func(took time.Duration)
}

const (
	roceQueue       = 128     // work requests that fit into the send queue of a connection
	roceCompletions = 1 << 13 // entries of a host's completion queue
	// roceXOFF is how many bytes of a host's frames wait in the switch when it pauses the host (WayPFC).
	roceXOFF = 100 << 10
)

// newRoceRack makes a rack with n hosts. If pfc is true, the ports of the switch have queues that pause the hosts.
func newRoceRack(ctx context.Context, n int, pfc bool) (*roceRack, error) {
	r := &roceRack{rand: rand.New(rand.NewPCG(1, 15))}
	file, tos := "name: roce\n", 0
	if pfc {
		file += fmt.Sprintf("switch:\n  ports: {rate: %s, buffer: 64MiB, reaction: 0s}\n  dscp: {%d: %[2]d}\n  queues:\n    %[2]d: {lossless: true, xoff: %d}\n",
			congestion.RateText(soloRate), scenePriority, roceXOFF)
		tos = scenePriority << 2
	}
	var err error
	r.Rack, err = newRack(ctx, file+fmt.Sprintf("hosts:\n  - {name: \"cn[0-%d]\", role: compute, tos: %d}\n", n-1, tos), simrack.Options{
		Cost: &cost.Model{Link: cost.Link{Rate: soloRate, Delay: soloDelay}}, Datagrams: true, MaxEvents: soloEvents,
	})
	if err != nil {
		return nil, err
	}
	for _, h := range r.Rack.Hosts() {
		x := &roceHost{rack: r, host: h, ctx: h.Context("load")}
		if x.pd, err = x.ctx.AllocPD(); err != nil {
			return nil, err
		}
		if x.cq, err = x.ctx.CreateCQ(roceCompletions); err != nil {
			return nil, err
		}
		if x.mr, err = x.pd.RegMR(nil, soloMemory, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite); err != nil {
			return nil, err
		}
		x.ctx.Runtime().Go("completions", func() { r.Stop(x.collect()) })
		r.hosts = append(r.hosts, x)
	}
	return r, nil
}

// pair returns the connection to another host. If there is none, pair makes it without a handshake,
// by setting the attributes of both queue pairs, which takes no virtual time.
func (h *roceHost) pair(to int) *rocePair {
	other := h.rack.hosts[to]
	for _, p := range h.pairs {
		if p.to == other {
			return p
		}
	}
	p := &rocePair{from: h, to: other, number: uint64(len(h.pairs))}
	if err := p.connect(); err != nil {
		h.rack.Stop(err)
	}
	h.pairs = append(h.pairs, p)
	return p
}

func (p *rocePair) connect() (err error) {
	var ends [2]verbs.QP
	hosts := [2]*roceHost{p.from, p.to}
	for i, h := range hosts {
		if ends[i], err = h.pd.CreateQP(verbs.QPInit{SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: roceQueue, MaxRecvWR: 1}); err != nil {
			return err
		}
	}
	for i, qp := range ends {
		if err := qp.ToInit(verbs.ToInit{Access: verbs.RemoteRead | verbs.RemoteWrite}); err != nil {
			return err
		}
		if err := qp.ToRTR(verbs.ToRTR{DestQPN: ends[1-i].QPN(), DestGID: verbs.GIDOf(hosts[1-i].host.Addr()), PathMTU: verbs.MTU4096}); err != nil {
			return err
		}
		if err := qp.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}); err != nil { // an ACK timeout of 67 ms; no frame is lost
			return err
		}
	}
	p.qp = ends[0]
	return nil
}

// begin begins an operation, or queues it up if the send queue is full.
func (p *rocePair) begin(x roceOp) {
	x.begun = p.from.rack.Now()
	p.backlog = append(p.backlog, x)
	if err := p.post(); err != nil {
		p.from.rack.Stop(err)
	}
}

// post posts operations from the backlog, as many as the send queue has room for.
func (p *rocePair) post() error {
	for len(p.backlog) > 0 && len(p.posted) < roceQueue {
		x := p.backlog[0]
		p.backlog, p.posted = p.backlog[1:], append(p.posted, x)
		if err := p.qp.PostSend(verbs.SendWR{
			ID: p.number, Op: x.op, Flags: verbs.Signalled, SGL: []verbs.SGE{p.from.mr.SGE(0, x.bytes)}, RemoteAddr: p.to.mr.Addr(), RKey: p.to.mr.RKey(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// collect takes the completions of a host. It runs as a thread until an operation fails.
func (h *roceHost) collect() error {
	var wcs [64]verbs.WC
	for {
		if err := h.cq.Wait(clock.Never); err != nil {
			return err
		}
		n, err := h.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			p := h.pairs[wcs[i].ID]
			if wcs[i].Status != verbs.Success {
				return fmt.Errorf("an operation of %s ends with %v", h.host.Spec.Name, wcs[i].Status)
			}
			x := p.posted[0]
			p.posted = p.posted[1:]
			x.done(h.rack.Now().Sub(x.begun))
			if err := p.post(); err != nil {
				return err
			}
		}
	}
}

// roceBeside is soloBeside over RoCEv2: all READs are on one connection.
func roceBeside(r *roceRack, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	p := r.hosts[0].pair(1)
	if l.Large > 0 {
		var again func(time.Duration)
		again = func(time.Duration) { p.begin(roceOp{op: verbs.OpRead, bytes: l.Large, done: again}) }
		again(0)
	}
	const warm = 200 * soloRTT
	var took []time.Duration
	r.At(clock.Time(0).Add(warm), func() {
		poisson(r, r.rand, soloSmallRate, clock.Time(0).Add(warm+l.Span), func() {
			p.begin(roceOp{op: verbs.OpRead, bytes: soloSmall, done: func(d time.Duration) { took = append(took, d) }})
		})
	})
	err := r.Settle(warm + l.Span + 100*soloRTT)
	out.Times(took)
	return err
}

// roceRandom is soloRack.random over RoCEv2, with a connection between each two hosts.
func roceRandom(r *roceRack, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	op := verbs.OpRead
	if l.Write {
		op = verbs.OpWrite
	}
	from, until := clock.Time(0).Add(randomWarm), clock.Time(0).Add(randomWarm+l.Span)
	var took [2][]time.Duration
	moved := 0
	for i, h := range r.hosts {
		poisson(r, r.rand, randomRate(l), until, func() {
			to := i
			for to == i {
				to = r.rand.IntN(len(r.hosts))
			}
			kind := randomKind(l, r.rand)
			h.pair(to).begin(roceOp{op: op, bytes: randomSizes[kind], done: func(d time.Duration) {
				now := r.Now()
				if now >= from {
					took[kind] = append(took[kind], d)
				}
				if now >= from && now < until {
					moved += randomSizes[kind]
				}
			}})
		})
	}
	err := r.Settle(randomWarm + l.Span + randomEnd)
	out.Goodput = soloGoodput(moved, l.Span) / float64(l.Hosts)
	out.Times(took[0])
	out.LargeTimes(took[1])
	return err
}

// roceInFlight is soloRack.inFlight over RoCEv2: l.Slots READs are posted on one connection, which has
// at most 16 of them in flight.
func roceInFlight(r *roceRack, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	const warm = 100 * soloRTT
	moved := 0
	p := r.hosts[0].pair(1)
	var again func(time.Duration)
	again = func(time.Duration) {
		if now := r.Now(); now >= clock.Time(0).Add(warm) && now < clock.Time(0).Add(warm+l.Span) {
			moved += soloChunk
		}
		p.begin(roceOp{op: verbs.OpRead, bytes: soloChunk, done: again})
	}
	for range l.Slots {
		again(0)
	}
	err := r.Settle(warm + l.Span)
	out.Goodput = soloGoodput(moved, l.Span)
	return err
}
