package simrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const boxed = `
name: boxed
switch:
  program: swordbox
  rules:
    - {id: locks, server: ms0, action: atomics, shards: 2}
hosts:
  - {name: cn0, role: compute}
  - {name: cn1, role: compute}
  - {name: ms0, role: memory}
`

// programOf returns the switch program of a rack.
func programOf(t *testing.T, r *Rack) *swordbox.Program {
	t.Helper()
	p, ok := r.Program().(*swordbox.Program)
	if !ok {
		t.Fatalf("the program is %T", r.Program())
	}
	return p
}

// The rack file chooses the program. The switch connects to the server's service without a command.
func TestSwordBox(t *testing.T) {
	r := newRack(t, boxed, Options{Datagrams: true})
	ms, cn := r.Host("ms0"), r.Host("cn0")
	ms.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, ms.Manager(ctx), memservice.Config{Region: 1 << 16})
		if err == nil {
			err = s.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	var err error
	cn.Go("client", false, func(ctx verbs.Context) {
		ctx.Runtime().Sleep(100 * time.Millisecond)
		cfg := perf.Config{Test: "atomic_lat", Service: memservice.Service, Iters: 100, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
		_, err = perf.Run(ctx, cn.Manager(ctx), ms.Addr(), cfg, nil)
	})
	if rerr := r.Run(); rerr != nil || err != nil {
		t.Fatal(rerr, err)
	}
	p := programOf(t, r)
	list := p.Own().Dialer().List()
	if len(list) != 2 || list[0].State != switchconn.Up || list[1].State != switchconn.Up {
		t.Errorf("%+v", list)
	}
	count := make(map[string]uint64)
	for _, g := range p.Counters(r.Now()) {
		for _, c := range g.Counters {
			count[g.Name+" "+c.Name] = c.Value
		}
	}
	// The first atomic on a word is sent on the client's connection, the second one unchanged on the
	// shared connection.
	if count["hardened moved"] != 99 || count["hardened replaced"] != 98 || count["dialing established"] != 2 {
		t.Errorf("%v", count)
	}
}
