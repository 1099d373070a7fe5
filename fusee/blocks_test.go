package fusee_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// dialing is a dialer that calls hook for each request to a service; hook calls next to send the
// request.
type dialing struct {
	rdmacm.Dialer
	hook func(private []byte, next func() ([]byte, error)) ([]byte, error)
}

// Dial implements rdmacm.Dialer.
func (d dialing) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	return d.hook(private, func() ([]byte, error) { return d.Dialer.Dial(qp, to, service, p, private, deadline) })
}

// takeRequest is the kind of memservice.Take on the wire.
const takeRequest = 10

// A request for a block whose answer is lost is repeated, and takes no second block.
func TestALostAnswerTakesNoSecondBlock(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Replicas: 1, Block: 16 << 10})
	lost, asked := errors.New("the answer is lost"), 0
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		cfg, rt := g.config(h, ctx), ctx.Runtime()
		cfg.Manager = dialing{cfg.Manager, func(private []byte, next func() ([]byte, error)) ([]byte, error) {
			b, err := next()
			if len(private) > 1 && private[1] == takeRequest {
				if asked++; asked%4 != 0 {
					return nil, lost
				}
			}
			return b, err
		}}
		c, err := fusee.Open(cfg, soon(rt))
		if err != nil {
			t.Error(err)
			return
		}
		inserted := 0
		for key := uint64(0); inserted < 100; { // objects of two lengths, so that the client needs several blocks
			err := c.Insert(key, kv.MakeValue(key, 1, 100+int(key%2)*200), soon(rt))
			switch {
			case err == nil:
				inserted++
				key++
			case !errors.Is(err, lost) || !errors.Is(err, kv.ErrNoEffect):
				t.Errorf("INSERT of key %d: %v", key, err)
				return
			}
		}
		s := c.Super().Shape
		used := 0
		for _, m := range g.memory {
			for i := range s.Blocks {
				if binary.LittleEndian.Uint64(m[s.BlockTable(0)+8*uint64(i):]) != 0 {
					used++
				}
			}
		}
		// a block has 63 units: 1 block for 50 objects of one unit, 2 for 50 objects of two, and up
		// to 2 requests whose blocks are not used yet
		if want := 1 + 2 + 2; used > want {
			t.Errorf("%d blocks are taken, want at most %d", used, want)
		}
		t.Logf("%d requests for %d blocks", asked, used)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	g.run()
}

// A client that has read the superblocks of a store, and is connected as an owner only after
// another store was made in its place, does not open. It would write with the arrangement of the
// old store.
func TestOpenWhileAStoreIsMade(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Block: 16 << 10, Generation: 1})
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error { // this client has number 1
		return c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt))
	})
	g.run()
	ready, made := false, false
	h, other := g.Host("cn0"), g.Host("cn2")
	h.Go("client", false, func(ctx verbs.Context) {
		cfg, rt, dials := g.config(h, ctx), ctx.Runtime(), 0
		cfg.Manager = dialing{cfg.Manager, func(_ []byte, next func() ([]byte, error)) ([]byte, error) {
			if dials++; dials == 3 { // connections to both servers, and then to the first one as an owner
				for ready = true; !made; {
					rt.Sleep(time.Microsecond)
				}
			}
			return next()
		}}
		if c, err := fusee.Open(cfg, soon(rt)); err == nil {
			t.Errorf("a client of generation %d is open", c.Super().Generation)
		} else {
			t.Log(err)
		}
		if dials < 3 {
			t.Errorf("%d dials", dials)
		}
	})
	other.Go("format", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for !ready {
			rt.Sleep(time.Microsecond)
		}
		if _, err := fusee.Format(g.config(other, ctx), fusee.FormatConfig{Groups: 20, Block: 32 << 10, Generation: 2}, soon(rt)); err != nil {
			t.Error(err)
		}
		made = true
	})
	g.run()
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		return errors.Join(c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)), c.Put(1, kv.MakeValue(1, 2, 100), soon(rt)))
	})
	g.run()
}
