package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const ucService = "uc"

// ucRun is a run of unreliable connections: clients SEND and WRITE, and an oracle predicts, from
// the packets that reach the server, which messages the server's NIC must deliver.
type ucRun struct {
	env    *env
	mtu    int
	maxLen int // the most bytes of a message
	recvs  int // receives of each queue pair; with shared, they are all in one queue
	shared bool
	late   bool // the server posts each receive again only after a pause
	pairs  []*ucPair
	byQPN  map[wire.QPN]*ucPair
}

// letter is a message as the client has sent it.
type letter struct {
	op    verbs.WROpcode
	size  int
	imm   uint32
	first int // number of its first packet on the connection, from 0
	n     int // number of its packets
	off   int // offset of a WRITE's bytes in the server's region
}

func (l *letter) takesReceive() bool { return l.op != verbs.OpWrite }

type ucPair struct {
	pair
	run      *ucRun
	firstPSN wire.PSN
	letters  []letter // all messages so far, by number
	packets  int      // packets of these messages
	region   []byte   // memory of the server; each WRITE has its own place in it
	used     int      // bytes of region that have been given to WRITEs
	oracle   ucOracle
}

func (r *ucRun) run(e *env) error {
	d := e.draw
	m := d.faultMix()
	*r = ucRun{env: e, mtu: int(one(d, verbs.MTU256, verbs.MTU1024, verbs.MTU4096)), shared: d.chance(0.4), late: d.chance(0.4), byQPN: make(map[wire.QPN]*ucPair)}
	r.maxLen, r.recvs = d.between(1, 6*r.mtu), d.between(1, 24)
	opt := simrack.Options{Delay: d.span(200*time.Nanosecond, 10*time.Microsecond), Window: one(d, 1, 16, 128)}
	if m.slow {
		opt.Rate, opt.Queue = int64(d.between(5, 40))*1e9, d.between(16, 64)
	}
	wrap := d.nearWrap(&opt)
	pairs := d.between(1, 4)
	e.report.Plan = fmt.Sprintf("faults=%s mtu=%d pairs=%d recvs=%d shared=%v late=%v wrap=%v", m.name, r.mtu, pairs, r.recvs, r.shared, r.late, wrap)
	opt.Wrap = e.watching(r.see)
	if err := e.build(transportRack, opt); err != nil {
		return err
	}
	e.disturb(m)
	for i := range pairs {
		p := &ucPair{run: r, pair: d.pair(i)}
		p.oracle.cur = noLetter
		p.region = make([]byte, p.ops*r.maxLen)
		r.pairs = append(r.pairs, p)
		e.client(p.host, fmt.Sprintf("uc-%d", i), p.client)
	}
	e.serve(ucService, r.serve)
	return e.complete(r, nil)
}

// disturb draws whether the links of both clients' hosts or the link of the server have faults, and
// applies the rules of m there.
func (e *env) disturb(m faultMix) {
	for _, link := range one(e.draw, []string{"cn0", "cn1"}, []string{server}) {
		rules := m.rules(e.draw)
		for i := range rules {
			rules[i].Link = link
		}
		e.rack.Host(link).SetFaults(rules)
	}
}

func (p *ucPair) client(ctx verbs.Context) error {
	r := p.run
	slot := max(r.maxLen, 1)
	o, mem, err := p.open(r.env, ctx, verbs.UC, ucService, rdmacm.Params{PathMTU: verbs.MTU(r.mtu)}, slot)
	if err != nil {
		return err
	}
	attr, err := o.qp.Query()
	if err != nil {
		return err
	}
	p.firstPSN = attr.RTS.SendPSN
	err = o.send(func(k int) verbs.SendWR {
		l := p.next(k)
		at := k % p.depth * slot
		p.msgs.Fill(o.buf[at:at+l.size], uint64(k))
		wr := verbs.SendWR{Op: l.op, Imm: l.imm, SGL: []verbs.SGE{o.mr.SGE(at, l.size)}}
		if l.op == verbs.OpWrite || l.op == verbs.OpWriteImm {
			wr.RemoteAddr, wr.RKey = mem.addr+uint64(l.off), mem.rkey
		}
		return wr
	})
	if err != nil {
		return err
	}
	return o.close()
}

// next draws message k of the connection.
func (p *ucPair) next(k int) letter {
	d := p.draw
	l := letter{op: one(d, verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm), size: d.size(p.run.mtu, p.run.maxLen), first: p.packets}
	if l.op == verbs.OpSendImm || l.op == verbs.OpWriteImm {
		l.imm = d.Uint32()
	}
	l.n = max(1, (l.size+p.run.mtu-1)/p.run.mtu)
	p.packets += l.n
	if l.op == verbs.OpWrite || l.op == verbs.OpWriteImm {
		l.off = p.used
		p.used += l.size
	}
	if len(p.letters) != k {
		panic("scenario: messages are numbered in order")
	}
	p.letters = append(p.letters, l)
	return l
}
