package simrack

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// These tests repeat the measurements of "Understanding the Micro-Behaviors of Hardware Offloaded Network
// Stacks with Lumina" (SIGCOMM 2023), whose fifteen findings about four NICs are U1 to U15 here. The link of
// host cn0 injects events into chosen packets, as Lumina's switch does.

// lumina is a load: queue pairs of cn0, each of which posts messages to ms0 at once.
type lumina struct {
	rack     string
	opt      Options
	qps      int
	op       verbs.WROpcode
	bytes    int
	messages int
	params   func(qp int) rdmacm.Params
	// events injects faults into the links of hosts, when the queue pairs are connected and nothing has
	// been posted.
	events func(list []*luminaQP) map[string][]fault.Rule
}

type luminaQP struct {
	own, peer   wire.QPN
	left        int
	begun, done clock.Time
	status      verbs.Status
	bytes       []clock.Time // when each message completed
}

// luminaPacket is a packet that left a NIC (sent, also if its link lost it), or that reached one.
type luminaPacket struct {
	at   clock.Time
	host string
	sent bool
	wire.BTH
	syndrome wire.Syndrome
	marked   bool
}

type luminaResult struct {
	qps     []*luminaQP
	packets []luminaPacket
	client  metrics.NIC
	server  metrics.NIC
}

const luminaRack = "name: lumina\nmtu: 1280\nhosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n"

func (l lumina) run(t *testing.T) *luminaResult {
	t.Helper()
	res := &luminaResult{}
	l.opt.Trace = res.record
	if l.rack == "" {
		l.rack = luminaRack
	}
	r := newRack(t, l.rack, l.opt)
	ms, cn := r.Host("ms0"), r.Host("cn0")
	ms.Go("memory", true, func(ctx verbs.Context) { r.Stop(ms.Lend(ctx, Passive{Bytes: 1 << 20, Service: "lumina"})) })
	cn.Go("client", false, func(ctx verbs.Context) {
		if err := l.client(ctx, r, res); err != nil {
			t.Error(err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	res.client, res.server = cn.Counters(), ms.Counters()
	return res
}

func (res *luminaResult) record(ev *simnet.Event) {
	var f wire.Frame
	if wire.ParseFrame(ev.Frame, &f) != nil || f.BTH.DestQP <= 1 {
		return
	}
	ecn, _ := wire.ECNOf(ev.Frame)
	p := luminaPacket{at: ev.At, host: ev.Link(), BTH: f.BTH, syndrome: f.AETH.Syndrome, marked: ecn == wire.CE}
	switch up := ev.Dir() == fault.Up; {
	case up && (ev.Kind == simnet.Sent || ev.Kind == simnet.LostFault):
		p.sent = true
	case !up && ev.Kind == simnet.Delivered:
	default:
		return
	}
	res.packets = append(res.packets, p)
}

func (l *lumina) client(ctx verbs.Context, r *Rack, res *luminaResult) error {
	rt := ctx.Runtime()
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(l.qps * l.messages)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, l.bytes, verbs.LocalWrite)
	if err != nil {
		return err
	}
	m := r.Host("cn0").Manager(ctx)
	wr := verbs.SendWR{Op: l.op, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, l.bytes)}}
	var qps []verbs.QP
	for i := range l.qps {
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: l.messages})
		if err != nil {
			return err
		}
		p := rdmacm.Params{PathMTU: verbs.MTU1024, RdAtomic: 16}
		if l.params != nil {
			p = l.params(i)
		}
		private, err := m.Dial(qp, r.Host("ms0").Addr(), "lumina", p, nil, clock.Never)
		if err != nil {
			return err
		}
		if wr.RemoteAddr, wr.RKey, err = ParseMemory(private); err != nil {
			return err
		}
		attr, err := qp.Query()
		if err != nil {
			return err
		}
		qps = append(qps, qp)
		res.qps = append(res.qps, &luminaQP{own: attr.QPN, peer: attr.RTR.DestQPN, left: l.messages})
	}
	if l.events != nil {
		for host, rules := range l.events(res.qps) {
			for i := range rules {
				rules[i].Link = host
			}
			r.Host(host).SetFaults(rules)
		}
	}
	rt.Sleep(time.Millisecond)
	for i, qp := range qps {
		res.qps[i].begun = rt.Now()
		for range l.messages {
			if err := qp.PostSend(wr); err != nil {
				return err
			}
		}
	}
	return l.wait(rt, cq, res)
}

func (l *lumina) wait(rt verbs.Runtime, cq verbs.CQ, res *luminaResult) error {
	var list [16]verbs.WC
	for left := l.qps * l.messages; left > 0; {
		if err := cq.Wait(clock.Never); err != nil {
			return err
		}
		n, err := cq.Poll(list[:])
		if err != nil {
			return err
		}
		for _, wc := range list[:n] {
			i := slices.IndexFunc(res.qps, func(q *luminaQP) bool { return q.own == wc.QPN })
			q := res.qps[i]
			q.done, q.status = rt.Now(), max(q.status, wc.Status)
			q.bytes = append(q.bytes, q.done)
			q.left--
			left--
		}
	}
	return nil
}
