package meta

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// halting calls halt when the answer `at` of a memory server to a request without a connection has
// arrived: while a metadata server starts, the memory servers have then given it its number.
type halting struct {
	rdmacm.Manager
	at   int
	halt func()
}

func (d *halting) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	b, err := d.Manager.Dial(qp, to, service, p, private, deadline)
	var rej *rdmacm.RejectError
	if errors.As(err, &rej) && rej.Private != nil {
		if d.at--; d.at == 0 {
			d.halt()
		}
	}
	return b, err
}

// The numbers of an incarnation are used up while another metadata server takes over. That one stops when
// some memory servers have given it its number, or does not come at all. Then it goes on. The first one
// does not go on with the same number: it ends, unless the other one gets a greater number later.
func TestNumbersRunOutDuringATakeOver(t *testing.T) {
	for at := range 4 { // 0: there is no other metadata server; 3: it has asked no memory server yet
		testRollover(t, at)
	}
}

func testRollover(t *testing.T, at int) {
	file, err := spec.Parse([]byte("{name: t, hosts: [{name: \"md[0-1]\", role: metadata}, {name: \"ms[0-1]\", role: memory}]}"))
	if err != nil {
		t.Fatal(err)
	}
	rack, err := simrack.New(file, simrack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rack.Close()
	cfg := Config{Format: layout.Hardened, Keys: 64, Lease: time.Second, Grace: time.Second}
	for _, name := range []string{"ms0", "ms1"} {
		h := rack.Host(name)
		cfg.Servers = append(cfg.Servers, h.Addr())
		h.Go("memory", true, func(ctx verbs.Context) {
			if s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: 1 << 20}); err == nil {
				_ = s.Serve() // until the rack ends
			}
		})
	}
	begin := func(host string, wrap func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager, f func(s *Server, rt verbs.Runtime)) {
		h := rack.Host(host)
		h.Go("meta", false, func(ctx verbs.Context) {
			c, rt := cfg, ctx.Runtime()
			c.Context, c.Manager = ctx, wrap(h.Manager(ctx), rt)
			s, err := New(c)
			if err != nil {
				t.Errorf("at %d: %s: %v", at, host, err)
				return
			}
			f(s, rt)
		})
	}
	waits, again := false, false
	second := func() {
		begin("md1", func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
			return &halting{m, at, func() {
				for waits = true; !again; {
					rt.Sleep(time.Microsecond)
				}
			}}
		}, func(s *Server, _ verbs.Runtime) {
			if n, err := s.number(); err != nil || n>>incarnationBits != s.owner {
				t.Errorf("at %d: the other metadata server gives out %#x in incarnation %d: %v", at, n, s.owner, err)
			}
		})
	}
	begin("md0", func(m rdmacm.Manager, _ verbs.Runtime) rdmacm.Manager { return m }, func(s *Server, rt verbs.Runtime) {
		if at == 1 || at == 2 {
			for second(); !waits; {
				rt.Sleep(time.Microsecond)
			}
		}
		before := s.owner
		s.nextID = s.endID - 1
		n, err := s.number()
		again = true
		if at == 0 || at == 3 {
			if err != nil || n != (before+1)<<incarnationBits+1 {
				t.Errorf("at %d: number %#x after incarnation %d: %v", at, n, before, err)
			}
			if at == 0 {
				return
			}
			second()
			rt.Sleep(time.Second)
			s.nextID = s.endID - 1
			_, err = s.number()
		}
		if err == nil {
			t.Errorf("at %d: the first metadata server goes on in incarnation %d", at, s.owner)
		}
		if !s.deposed {
			t.Errorf("at %d: the first metadata server is not deposed: %v", at, err)
		}
	})
	if err := rack.Run(); err != nil {
		t.Error(err)
	}
}
