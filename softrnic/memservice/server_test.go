package memservice_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// rig is a rack in virtual time with a memory service and a client.
type rig struct {
	*simrack.Rack
	t        *testing.T
	srv, cli *simrack.Host
}

func newRig(t *testing.T, cfg memservice.Config) *rig {
	t.Helper()
	return newRigBy(t, cfg, simrack.Options{})
}

// newRigBy is newRig with a choice of the way in which connections are made.
func newRigBy(t *testing.T, cfg memservice.Config, opt simrack.Options) *rig {
	t.Helper()
	s, err := rackfile.Parse([]byte("{name: t, hosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	rg := &rig{Rack: r, t: t, srv: r.Host("ms0"), cli: r.Host("cn0")}
	rg.srv.Go("server", true, func(ctx verbs.Context) {
		srv, err := memservice.New(ctx, rg.srv.Manager(ctx), cfg)
		if err == nil {
			err = srv.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return rg
}

// client runs f as the client's application, to the end.
func (r *rig) client(f func(ctx verbs.Context, m rdmacm.Manager)) {
	r.t.Helper()
	r.cli.Go("client", false, func(ctx verbs.Context) { f(ctx, r.cli.Manager(ctx)) })
	if err := r.Run(); err != nil {
		r.t.Fatal(err)
	}
}

// queuePair makes a queue pair in RESET and its completion queue.
func (r *rig) queuePair(ctx verbs.Context) (verbs.QP, verbs.CQ) {
	r.t.Helper()
	pd, err := ctx.AllocPD()
	if err != nil {
		r.t.Fatal(err)
	}
	cq, err := ctx.CreateCQ(1)
	if err != nil {
		r.t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxInline: 8})
	if err != nil {
		r.t.Fatal(err)
	}
	return qp, cq
}

// A client without private data, such as the switch, keeps its connection when others need the
// room.
func TestServerKeepsTheSwitchsConnections(t *testing.T) {
	r := newRig(t, memservice.Config{Region: 4096})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		silent, cq := r.queuePair(ctx)
		far, err := memservice.Dial(m, silent, r.srv.Addr(), rdmacm.Params{}, clock.Never)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := ctx.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		for range 4200 { // more than the 4096 connections (maxPassive) of a passive service
			qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := memservice.DialOwned(m, qp, r.srv.Addr(), rdmacm.Params{}, memservice.Claim{}, clock.Never); err != nil {
				t.Fatal(err)
			}
			if err := qp.Destroy(); err != nil {
				t.Fatal(err)
			}
		}
		wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: far.Addr, RKey: far.RKey}
		if err := errors.Join(silent.PostSend(wr), cq.Wait(clock.Never)); err != nil {
			t.Fatal(err)
		}
		var wc [1]verbs.WC
		if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.Success {
			t.Errorf("%v, %v", wc[0].Status, err)
		}
	})
}

// All clients of a memory service use the same region.
func TestSharedRegion(t *testing.T) {
	r := newRig(t, memservice.Config{Region: 4096})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		var first memservice.Region
		for range 2 {
			qp, _ := r.queuePair(ctx)
			got, err := memservice.DialOwned(m, qp, r.srv.Addr(), rdmacm.Params{}, memservice.Claim{}, clock.Never)
			if err != nil {
				t.Fatal(err)
			}
			if first.Len != 0 && got.Region != first {
				t.Errorf("regions %+v and %+v", first, got.Region)
			}
			first = got.Region
		}
		if first.Len != 4096 {
			t.Errorf("region %+v", first)
		}
	})
}

// A request that a passive service cannot execute is refused with the reason, and leaves nothing
// behind.
func TestRefusals(t *testing.T) {
	r := newRig(t, memservice.Config{Memory: 1 << 20})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		for want, c := range map[string]memservice.Claim{
			"passive":                {Work: []byte{1}},
			"bytes of memory wanted": {Bytes: 2 << 20},
			"no shared region":       {},
		} {
			qp, _ := r.queuePair(ctx)
			_, err := memservice.DialService(m, qp, r.srv.Addr(), memservice.Service, rdmacm.Params{}, c, clock.Never)
			if !errors.Is(err, rdmacm.ErrRejected) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want a refusal about %q", c, err, want)
			}
		}
		qp, _ := r.queuePair(ctx)
		for text, want := range map[string]string{`{"o":"open"}`: "version", "\x01\x63": "kind 99", "\x01": "at least"} {
			_, err := m.Dial(qp, r.srv.Addr(), memservice.Service, rdmacm.Params{}, []byte(text), clock.Never)
			if !errors.Is(err, rdmacm.ErrRejected) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want a refusal about %q", text, err, want)
			}
		}
		if err := memservice.End(ctx, m, r.srv.Addr(), 1, clock.Never); err != nil { // an owner without connection: it has ended
			t.Error(err)
		}
		for _, c := range []memservice.Claim{{Bytes: -1}, {Bytes: 1 << 30}, {Work: make([]byte, 65)}} {
			if _, err := memservice.DialOwned(m, qp, r.srv.Addr(), rdmacm.Params{}, c, clock.Never); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%d bytes: %v", c.Bytes, err)
			}
		}
	})
	if n := r.srv.Engine().Tables.Objects().QPs; n != 0 {
		t.Errorf("%d queue pairs are left", n)
	}
}
