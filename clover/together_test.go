package clover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// beginMeta starts a metadata server on a host with a connection manager that wrap returns. begun gets
// the outcome of the start, ended is called when a server that was started has ended.
func (y *copyStory) beginMeta(host string, wrap func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager, begun func(s *meta.Server, err error), ended func()) {
	h := y.Host(host)
	h.Go("meta", true, func(ctx verbs.Context) {
		cfg := y.cfg
		cfg.Context, cfg.Manager = ctx, wrap(h.Manager(ctx), ctx.Runtime())
		for _, name := range []string{"ms0", "ms1", "ms2"} {
			cfg.Servers = append(cfg.Servers, y.Host(name).Addr())
		}
		s, err := meta.New(cfg)
		begun(s, err)
		if err == nil {
			_ = s.Serve() // of two metadata servers, one ends the other
			ended()
		}
	})
}

// asItIs is a wrap of beginMeta that changes nothing.
func asItIs(m rdmacm.Manager, _ verbs.Runtime) rdmacm.Manager { return m }

// restartMD crashes the metadata server's host and starts it again, without a metadata server.
func (y *copyStory) restartMD(rt verbs.Runtime) {
	y.Host("md0").Crash()
	rt.Sleep(10 * time.Millisecond)
	y.Host("md0").Restart()
}

// await waits until another thread has set a variable.
func await(rt verbs.Runtime, until *bool) {
	for !*until {
		rt.Sleep(time.Millisecond)
	}
}

// Two metadata servers take over the memory servers at the same time: each stops when a memory server has
// retired the numbers of their predecessors for it, and they go on together. They do not take the same
// incarnation number: otherwise the memory servers would end the connections of none of them, and both
// would give out the same nodes. Then the store is as before.
func TestTwoMetadataServersTakeDifferentNumbers(t *testing.T) {
	for first := 1; first <= 3; first++ {
		for second := 1; second <= 3; second++ {
			for _, later := range []time.Duration{0, 20 * time.Microsecond, time.Millisecond} {
				testTogether(t, first, second, later)
			}
		}
	}
}

// testTogether stops the two servers at these answers. The second one goes on later than the first one.
func testTogether(t *testing.T, first, second int, later time.Duration) {
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		y.restartMD(rt)
		waits, tried, serving := 0, 0, 0
		begin := func(host string, at int, later time.Duration) {
			y.beginMeta(host, func(m rdmacm.Manager, rt verbs.Runtime) rdmacm.Manager {
				return &stopsAt{m, rt, at, func() {
					for waits++; waits < 2; {
						rt.Sleep(10 * time.Microsecond)
					}
					rt.Sleep(later)
				}}
			}, func(s *meta.Server, err error) {
				if tried++; err == nil {
					y.server = s
					serving++
				}
			}, func() { serving-- })
		}
		begin("md0", first, 0)
		begin("cn2", second, later)
		for tried < 2 {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(10 * y.cfg.Lease)
		if waits != 2 || serving > 1 {
			return fmt.Errorf("answers %d and %d, the second one %v later: %d have stopped there; %d metadata servers serve", first, second, later, waits, serving)
		}
		y.Host("cn2").CrashApps() // clients ask md0
		y.restartMD(rt)
		y.meta()
		lost, err := y.read(c, rt)
		if lost > 0 {
			t.Errorf("%d keys lost", lost)
		}
		if err == nil {
			err = y.write(c, rt, 2)
		}
		return err
	})
	y.run()
}

// Two metadata servers start at the same time, and each starts again when its start has failed. After a
// few starts one of them serves, and goes on: they do not end each other for ever.
func TestTwoMetadataServersThatStartAgain(t *testing.T) {
	for k := range 12 {
		y := newCopyStory(t, 2)
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := y.write(c, rt, 1); err != nil {
				return err
			}
			y.restartMD(rt)
			starts, serving := 0, 0
			var begin func(host string)
			begin = func(host string) {
				starts++
				y.beginMeta(host, asItIs, func(_ *meta.Server, err error) {
					switch {
					case err == nil:
						serving++
					case starts < 20:
						begin(host)
					}
				}, func() { serving-- })
			}
			begin("md0")
			rt.Sleep(time.Duration(k) * 50 * time.Microsecond)
			begin("cn2")
			rt.Sleep(10 * y.cfg.Lease)
			if serving != 1 || starts > 8 {
				t.Errorf("the second one %v later: %d serve after %d starts", time.Duration(k)*50*time.Microsecond, serving, starts)
			}
			y.Host("cn2").CrashApps() // clients ask md0
			y.restartMD(rt)
			y.meta()
			lost, err := y.read(c, rt)
			if lost > 0 {
				t.Errorf("%d keys lost", lost)
			}
			return err
		})
		y.run()
	}
}
