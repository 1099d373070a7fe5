package insim

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

const (
	chainService = "redn"
	// chainSetUp is the time by which all connections have been made.
	chainSetUp    = clock.Time(200 * time.Millisecond)
	chainPatience = time.Second
	// chainRounds is the number of requests of a client over which times are taken, chainRated that
	// over which a rate is taken.
	chainRounds, chainRated = 100, 600
	// chainSend is the room of a client for a request, in front of its values.
	chainSend = 256
)

// chainRun is a load of programs in progress: a client host and a server without a switch.
type chainRun struct {
	load  experiment.RedN
	model *cost.Model
	rack  *simrack.Rack
	data  chainData
	took  []time.Duration
	// first and last are when the first and the last request ended that a rate counts.
	first, last clock.Time
	counted     int
	out         experiment.RedNResult
}

// RedN runs programs of work requests and their baselines.
func (p *Sim) RedN(ctx context.Context, l experiment.RedN) (experiment.RedNResult, error) {
	l.Clients, l.Depth = max(1, l.Clients), max(1, l.Depth)
	if l.Kind == experiment.ChainGets || l.Kind == experiment.ChainCrash {
		return p.table(ctx, l)
	}
	s, err := simrack.PassiveRack(chainService, 1, "", "", "")
	if err != nil {
		return experiment.RedNResult{}, err
	}
	r := &chainRun{load: l, model: p.Cost.BackToBack()}
	r.rack, err = simrack.New(s, simrack.Options{Seed: 1, Cost: r.model, Cancelled: cancelled(ctx)})
	if err != nil {
		return r.out, err
	}
	defer r.rack.Close()
	switch l.Kind {
	case experiment.ChainLookup, experiment.ChainList, experiment.ChainVerb:
		r.answers()
	case experiment.ChainOrder, experiment.ChainConstruct:
		r.alone()
	default:
		return r.out, fmt.Errorf("RedN: kind %.20q is not known", l.Kind)
	}
	err = run(ctx, r.rack)
	r.out.Times(r.took)
	return r.out, err
}

// rounds returns the number of requests of a client.
func (r *chainRun) rounds() int {
	switch {
	case r.load.Depth > 1:
		return chainRated
	case r.load.Way == experiment.WayBreak:
		return chainBreaks
	}
	return chainRounds
}

// answers starts a server that answers requests, and its clients.
func (r *chainRun) answers() {
	srv := r.rack.Host("ms0")
	srv.Go(chainService, true, func(ctx verbs.Context) {
		s := &chainServer{run: r, host: srv, ctx: ctx}
		r.rack.Stop(s.serve())
	})
	cli := r.rack.Host("cn0")
	entries := uint64(0)
	r.rack.At(chainSetUp, func() { entries = srv.Counters().RingEntries })
	left := r.load.Clients
	for i := range r.load.Clients {
		cli.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) {
			err := r.client(cli, ctx)
			if left--; left == 0 {
				r.out.Entries = float64(srv.Counters().RingEntries-entries) / float64(r.load.Clients*r.rounds())
				if span := r.last.Sub(r.first); span > 0 {
					r.out.Rate = float64(r.counted-1) / span.Seconds()
				}
			}
			r.rack.Stop(err)
		})
	}
}

// chainEnd is a client's connection to the server.
type chainEnd struct {
	rt    verbs.Runtime
	cq    verbs.CQ
	qp    verbs.QP
	mr    verbs.MR
	buf   []byte
	base  uint64 // of the server's data
	rkey  uint32
	recvs int // receives that are posted
	wcs   [16]verbs.WC
}

// dial connects a client with a buffer for a request and for depth values.
func (r *chainRun) dial(h *simrack.Host, ctx verbs.Context) (e *chainEnd, err error) {
	e = &chainEnd{rt: ctx.Runtime(), buf: make([]byte, chainSend*r.load.Depth+max(r.load.Bytes, chainSend)*r.load.Depth)}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	if e.mr, err = pd.RegMR(e.buf, len(e.buf), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return nil, err
	}
	if e.cq, err = ctx.CreateCQ(8 * (r.load.Depth + 1)); err != nil {
		return nil, err
	}
	if e.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: r.load.Depth + 1, MaxRecvWR: 4 * (r.load.Depth + 1)}); err != nil {
		return nil, err
	}
	private := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, e.mr.Addr()), e.mr.RKey())
	b, err := h.Manager(ctx).Dial(e.qp, r.rack.Host("ms0").Addr(), chainService, rdmacm.Params{}, private, clock.Never)
	if err != nil {
		return nil, err
	}
	e.base, e.rkey, err = simrack.ParseMemory(b)
	return e, err
}

// await waits for completions. It returns how many sends and READs have completed, how many answers
// with a value have come, and whether the answer has come that ends a request.
func (e *chainEnd) await() (sent, hits, ends int, err error) {
	if err := e.cq.Wait(e.rt.Now().Add(chainPatience)); err != nil {
		return 0, 0, 0, err
	}
	n, err := e.cq.Poll(e.wcs[:])
	for i := range e.wcs[:n] {
		switch wc := &e.wcs[i]; {
		case wc.Status != verbs.Success:
			return 0, 0, 0, fmt.Errorf("a request ends with %v", wc.Status)
		case wc.Opcode != verbs.WCRecvWriteImm:
			sent++
		case wc.Imm == redn.Miss:
			ends, e.recvs = ends+1, e.recvs-1
		default:
			hits, e.recvs = hits+1, e.recvs-1
		}
	}
	return sent, hits, ends, err
}

// receive posts receives until there are n.
func (e *chainEnd) receive(n int) error {
	for ; e.recvs < n; e.recvs++ {
		if err := e.qp.PostRecv(verbs.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

// read READs n bytes of the server's data and waits for them.
func (e *chainEnd) read(off, n int) error {
	wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(0, n)}, RemoteAddr: e.base + uint64(off), RKey: e.rkey}
	if err := e.qp.PostSend(wr); err != nil {
		return err
	}
	_, _, _, err := e.await()
	return err
}

// send SENDs a request, from a place of the buffer.
func (e *chainEnd) send(place int, b []byte) error {
	copy(e.buf[place*chainSend:], b)
	return e.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(place*chainSend, len(b))}})
}
