package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const srqService = "srq"

// srqRun is a run of reliable connections that share one receive queue. The server first fills the
// queue. After that it posts receives only when a limit event says that fewer receives are left
// than the limit, or when none is left: then no event can come.
type srqRun struct {
	env    *env
	params rdmacm.Params
	maxLen int // the most bytes of a message
	recvs  int // number of receives that the server has memory for
	limit  int // limit of the receive queue
	pairs  []*srqPair
	srv    *srqServer
}

// srqPair is one connection of a run, with the server's queue pair.
type srqPair struct {
	pair
	run *srqRun
	qp  verbs.QP // the server's queue pair
}

func (r *srqRun) run(e *env) error {
	d := e.draw
	m := d.faultMix()
	mtu := one(d, verbs.MTU256, verbs.MTU1024, verbs.MTU4096)
	*r = srqRun{env: e, maxLen: d.between(1, 4*int(mtu)), recvs: d.between(2, 64)}
	r.limit = d.between(1, r.recvs)
	opt := simrack.Options{Delay: d.span(200*time.Nanosecond, 10*time.Microsecond), Window: one(d, 4, 16, 128)}
	r.params = rdmacm.Params{PathMTU: mtu, Timeout: uint8(d.between(8, 11)), MinRNRTimer: uint8(d.between(1, 12))}
	if m.slow {
		opt.Rate, opt.Queue = int64(d.between(5, 40))*1e9, d.between(16, 64)
		opt.Window, r.params.Timeout = one(d, 4, 16), 12
	}
	e.congested.patient(&r.params)
	d.nearWrap(&opt)
	pairs := d.between(2, 6)
	e.report.Plan = fmt.Sprintf("faults=%s mtu=%d connections=%d receives=%d limit=%d rnr-timer=%d", m.name, mtu, pairs, r.recvs, r.limit, r.params.MinRNRTimer)
	if err := e.build(transportRack, opt); err != nil {
		return err
	}
	e.disturb(m)
	for i := range pairs {
		p := &srqPair{run: r, pair: d.pair(i)}
		r.pairs = append(r.pairs, p)
		e.client(p.host, fmt.Sprintf("srq-%d", i), p.client)
	}
	e.serve(srqService, r.serve)
	return e.complete(r, nil)
}

// message describes message k of a connection. It depends only on k, so that the server knows it,
// too.
func (p *srqPair) message(k int) (op verbs.WROpcode, size int, imm uint32) {
	d := newDraw(p.msgs.Seed ^ uint64(k)*0x9e3779b97f4a7c15)
	op, size = one(d, verbs.OpSend, verbs.OpSendImm, verbs.OpWriteImm), d.size(int(p.run.params.PathMTU), p.run.maxLen)
	if op != verbs.OpSend {
		imm = d.Uint32()
	}
	return op, size, imm
}

func (p *srqPair) client(ctx verbs.Context) error {
	slot := max(p.run.maxLen, 1)
	o, mem, err := p.open(p.run.env, ctx, verbs.RC, srqService, p.run.params, slot)
	if err != nil {
		return err
	}
	err = o.send(func(k int) verbs.SendWR {
		op, size, imm := p.message(k)
		at := k % p.depth * slot
		p.msgs.Fill(o.buf[at:at+size], uint64(k))
		return verbs.SendWR{Op: op, Imm: imm, SGL: []verbs.SGE{o.mr.SGE(at, size)}, RemoteAddr: mem.addr, RKey: mem.rkey}
	})
	if err != nil {
		return o.limit(err, p.host)
	}
	return o.close()
}

// judge checks after the run that no message and no limit event is missing.
func (r *srqRun) judge() error {
	for _, p := range r.pairs {
		if p.received != p.ops {
			return fmt.Errorf("connection %d sent %d messages, %d were delivered", p.index, p.ops, p.received)
		}
	}
	s := r.srv
	if s.low > 0 {
		return fmt.Errorf("limit event %d is missing: the queue has been below %d since %v", s.events+1, r.limit, s.low)
	}
	r.env.note("%d messages, %d limit events", s.received, s.events)
	return r.env.checkConservation()
}
