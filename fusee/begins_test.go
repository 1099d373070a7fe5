package fusee_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A memory server crashes at each packet of a client that begins, and stays down. The client begins
// as soon as the master has removed the server, and does not wait for it until its deadline.
func TestAServerCrashesWhileAClientBegins(t *testing.T) {
	for victim := range 2 {
		for n, sent := 1, true; sent; n++ {
			var g *rig
			left := -1
			g = newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
				if left > 0 && ev.Kind == simnet.Sent && ev.Link() == "cn1" {
					if left--; left == 0 {
						g.At(g.Now(), g.Host(fmt.Sprintf("ms%d", victim)).Crash)
					}
				}
			}})
			g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
			ready := false
			g.master("cn3", &ready)
			h := g.Host("cn1")
			h.Go("client", false, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				for !ready {
					rt.Sleep(time.Millisecond)
				}
				left = n
				c, err := fusee.Open(g.config(h, ctx), rt.Now().Add(4*time.Second))
				sent, left = left == 0, -1
				if err == nil {
					err = c.Close()
				}
				if err != nil {
					t.Errorf("ms%d crashes at packet %d: %v", victim, n, err)
				}
			})
			g.run()
		}
	}
}

// dialled calls a function before each connection.
type dialled struct {
	rdmacm.Dialer
	call func(to netip.Addr)
}

func (d dialled) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	d.call(to)
	return d.Dialer.Dial(qp, to, service, p, private, deadline)
}

// The number of a client that begins is fenced before it connects to a server: two clients had it,
// because the primary was replaced, and the other one has died. The client begins with another
// number.
func TestTheNumberOfAClientThatBeginsIsFenced(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		g := newRig(t, 2, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		h := g.Host("cn1")
		h.Go("client", false, func(ctx verbs.Context) {
			rt, cfg, dials, fenced := ctx.Runtime(), g.config(h, ctx), 0, uint32(0)
			plain := cfg.Manager
			cfg.Manager = dialled{plain, func(to netip.Addr) {
				number := uint32(g.word(0, layout.ClientWord))
				if number == 0 {
					return
				}
				if dials++; dials == nth {
					fenced = number
					if err := memservice.Fence(ctx, plain, to, number, soon(rt)); err != nil {
						t.Error(err)
					}
				}
			}}
			c, err := fusee.Open(cfg, soon(rt))
			if err == nil {
				if c.Number() == fenced || fenced == 0 {
					t.Errorf("the client has the number %d, fenced is %d", c.Number(), fenced)
				}
				err = errors.Join(c.Insert(1, nil, soon(rt)), c.Close())
			}
			if err != nil {
				t.Errorf("connection %d: %v", nth, err)
			}
		})
		g.run()
	}
}
