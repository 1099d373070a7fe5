package memservice_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Clients that die during connection set-up delay no fence, and leave nothing behind.
func TestDeathInAHandshake(t *testing.T) {
	s, err := rackfile.Parse([]byte("{name: t, hosts: [{name: ms0, role: memory}, {name: 'cn[0-9]', role: compute}]}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, simrack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	srv := r.Host("ms0")
	srv.Go("server", true, func(ctx verbs.Context) {
		m, err := memservice.New(ctx, srv.Manager(ctx), memservice.Config{Region: 4096, Locks: 1024})
		if err == nil {
			err = m.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	rg := &rig{Rack: r, t: t, srv: srv}
	for i, name := range []string{"cn1", "cn2", "cn3", "cn4", "cn5", "cn6", "cn7", "cn8", "cn9"} {
		h := r.Host(name)
		h.Go("victim", false, func(ctx verbs.Context) {
			r.At(ctx.Runtime().Now().Add(time.Duration(i+1)*1500*time.Nanosecond), h.Crash)
			_, _ = rg.dialOwned(ctx, h.Manager(ctx), memservice.Claim{Owner: uint32(i + 1)})
		})
	}
	h := r.Host("cn0")
	h.Go("fence", false, func(ctx verbs.Context) {
		rt, m := ctx.Runtime(), h.Manager(ctx)
		rt.Sleep(100 * time.Microsecond)
		begun := 0
		for i := range uint32(9) {
			who, err := memservice.WhoIs(ctx, m, srv.Addr(), i+1, rt.Now().Add(time.Second))
			if err != nil {
				t.Error(err)
			}
			begun += who.QPs
			began := rt.Now()
			err = memservice.Fence(ctx, m, srv.Addr(), i+1, began.Add(time.Second))
			if took := rt.Now().Sub(began); err != nil || took > 50*time.Millisecond {
				t.Errorf("fence of a client that died in its handshake: after %v: %v", took, err)
			}
		}
		if begun < 2 {
			t.Errorf("%d of 9 clients had begun a handshake when they died", begun)
		}
		rt.Sleep(10 * time.Second) // longer than the server waits for them
		c, err := rg.dialOwned(ctx, m, memservice.Claim{Owner: 100})
		if err != nil || !c.works(rt.Now().Add(time.Second)) {
			t.Error("a new client after all those:", err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if n := srv.Engine().Tables.Objects().QPs; n != 1 {
		t.Errorf("%d queue pairs are left, want that of the last client", n)
	}
}

// More clients than there are threads for handshakes get no answer. The service goes on with other
// requests, and takes new connections when it has given those clients up.
func TestManyUnfinishedHandshakes(t *testing.T) {
	s, err := rackfile.Parse([]byte("{name: t, hosts: [{name: ms0, role: memory}, {name: 'cn[0-1]', role: compute}]}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, simrack.Options{Datagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	srv, deaf := r.Host("ms0"), r.Host("cn1")
	srv.Go("server", true, func(ctx verbs.Context) {
		m, err := memservice.New(ctx, srv.Manager(ctx), memservice.Config{Region: 4096, Locks: 1024})
		if err == nil {
			err = m.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	rg := &rig{Rack: r, t: t, srv: srv}
	deaf.SetFaults([]fault.Rule{{Link: "cn1", Kind: fault.Loss, Dir: fault.Down}})
	const clients = 70
	for i := range clients {
		deaf.Go("deaf", false, func(ctx verbs.Context) {
			if _, err := rg.dialOwned(ctx, deaf.Manager(ctx), memservice.Claim{Owner: uint32(i + 1)}); err == nil {
				t.Error("a client is connected that got no answer")
			}
		})
	}
	h := r.Host("cn0")
	h.Go("other", false, func(ctx verbs.Context) {
		rt, m := ctx.Runtime(), h.Manager(ctx)
		rt.Sleep(time.Millisecond)
		began, begun := rt.Now(), 0
		for i := range uint32(clients) {
			who, err := memservice.WhoIs(ctx, m, srv.Addr(), i+1, rt.Now().Add(time.Second))
			if err != nil {
				t.Error(err)
			}
			begun += who.QPs
		}
		if err := memservice.Fence(ctx, m, srv.Addr(), clients, rt.Now().Add(time.Second)); err != nil {
			t.Error(err)
		}
		if took := rt.Now().Sub(began); begun != clients || took > 50*time.Millisecond {
			t.Errorf("%d of %d handshakes have begun; questions about them and a fence took %v", begun, clients, took)
		}
		rt.Sleep(6 * time.Second) // longer than the server waits for 64 of them
		c, err := rg.dialOwned(ctx, m, memservice.Claim{Owner: 100})
		if err != nil || !c.works(rt.Now().Add(time.Second)) {
			t.Error("a new client after all those:", err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if n := srv.Engine().Tables.Objects().QPs; n != 1 {
		t.Errorf("%d queue pairs are left, want that of the last client", n)
	}
}
