package sherman_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An operation returns at once when its NIC is closed or its application is killed. If it waited
// until its deadline, other clients of its node would wait for the lock for which it is queued, and
// so would the caller of Close.
func TestOperationsEndWhenTheNICCloses(t *testing.T) {
	g := newRig(t, simrack.Options{}, region)
	g.format(sherman.FormatConfig{})
	n := g.node(sherman.NodeConfig{})
	h := g.Host("cn1")
	for op, do := range map[verbs.WROpcode]func(c *sherman.Client, rt verbs.Runtime) error{
		verbs.OpRead:    func(c *sherman.Client, rt verbs.Runtime) error { _, err := c.Get(1, nil, soon(rt)); return err },
		verbs.OpCmpSwap: func(c *sherman.Client, rt verbs.Runtime) error { return c.Put(1, value(1, 1), soon(rt)) },
		verbs.OpWrite:   func(c *sherman.Client, rt verbs.Runtime) error { return c.Put(1, value(1, 2), soon(rt)) },
	} {
		h.Go("closed", false, func(ctx verbs.Context) {
			rt, armed := ctx.Runtime(), false
			closing := func(wrs []verbs.SendWR) []verbs.SendWR {
				if armed && wrs[0].Op == op {
					armed = false
					if err := ctx.Close(); err != nil {
						t.Error(err)
					}
				}
				return wrs
			}
			c, err := n.Open(sherman.Config{Context: bent{ctx, closing}, Manager: h.Manager(ctx)}, soon(rt))
			if err == nil {
				err = c.Upsert(1, value(1, 0), soon(rt))
			}
			if err != nil {
				t.Error(err)
				return
			}
			began := rt.Now()
			armed = true
			err = do(c, rt)
			if took := rt.Now().Sub(began); !errors.Is(err, verbs.ErrClosed) || took > time.Second {
				t.Error(fmt.Errorf("%v: after %v: %w", op, took, err))
			}
			_ = c.Close()
		})
		g.run()
	}
	h.Go("again", false, func(ctx verbs.Context) {
		rt, writes := ctx.Runtime(), 0
		closing := func(wrs []verbs.SendWR) []verbs.SendWR {
			if wrs[0].Op == verbs.OpWrite {
				if writes++; writes == 3 {
					if err := ctx.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			return wrs
		}
		began := rt.Now()
		_, err := sherman.Format(sherman.Config{Context: bent{ctx, closing}, Manager: h.Manager(ctx)}, g.servers, sherman.FormatConfig{}, soon(rt))
		if took := rt.Now().Sub(began); !errors.Is(err, verbs.ErrClosed) || took > time.Second {
			t.Error(fmt.Errorf("format: after %v: %w", took, err))
		}
	})
	g.run()
}
