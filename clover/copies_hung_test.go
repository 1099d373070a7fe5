package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// hangService makes the memory service of a host hang, while its NIC goes on.
func (y *copyStory) hangService(name string) {
	h := y.Host(name)
	h.HangAll()
	h.Resume()
}

// away returns how many memory servers do not count.
func (y *copyStory) away() uint64 { return y.server.Snapshot().Away }

// The memory service of ms1 hangs while its NIC serves data, and nothing else fails. The clients that
// have their connections go on. A new one gets no connection to ms1: the store goes on without ms1, and
// takes it back when its service runs again.
func TestAClientThatComesWhileAServiceHangs(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		y := newCopyStory(t, replicas)
		hung, end := false, false
		h := y.Host("cn1")
		h.Go("new", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !hung {
				rt.Sleep(time.Millisecond)
			}
			began := rt.Now()
			c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host("md0").Addr()}, soon(rt))
			if err == nil {
				err = errors.Join(y.write(c, rt, 2), c.Close())
			}
			if d := rt.Now().Sub(began); err != nil || d > 5*time.Second {
				t.Errorf("%d copies: the PUTs of a new client took %v: %v", replicas, d, err)
			}
			end = true
		})
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := y.write(c, rt, 1); err != nil {
				return err
			}
			y.hangService("ms1")
			for hung = true; !end; rt.Sleep(time.Millisecond) {
			}
			if y.away() != 1 {
				t.Errorf("%d copies: %d servers are out", replicas, y.away())
			}
			if err := y.write(c, rt, 3); err != nil {
				return err
			}
			y.Host("ms1").ResumeAll()
			for until := rt.Now().Add(20 * time.Second); y.away() > 0; rt.Sleep(time.Millisecond) {
				if rt.Now() > until {
					return fmt.Errorf("%d copies: ms1 is not back", replicas)
				}
			}
			lost, err := y.read(c, rt)
			if lost > 0 {
				t.Errorf("%d copies: %d keys lost", replicas, lost)
			}
			return errors.Join(err, y.write(c, rt, 4))
		})
		y.run()
	}
}

// A memory service that does not answer for less than two seconds stays in, at whatever moment that
// begins.
func TestAServiceThatIsSlowStaysIn(t *testing.T) {
	for _, lasts := range []time.Duration{500 * time.Millisecond, 1900 * time.Millisecond} {
		for k := range 10 {
			y := newCopyStory(t, 3)
			y.client("cn0", func(_ *clover.Client, rt verbs.Runtime) error {
				rt.Sleep(time.Second + time.Duration(k)*103*time.Millisecond)
				y.hangService("ms1")
				y.At(rt.Now().Add(lasts), y.Host("ms1").ResumeAll)
				for end := rt.Now().Add(lasts + 4*time.Second); rt.Now() < end; rt.Sleep(time.Millisecond) {
					if y.away() > 0 {
						return fmt.Errorf("ms1 is out after its service has hung for %v", lasts)
					}
				}
				return nil
			})
			y.run()
		}
	}
}

// The beginnings of two requests to a memory service: see the protocol of package memservice.
const connects, asksWho = "\x01\x01", "\x01\x04"

// The metadata server hangs when it is about to ask the memory service of ms1, and goes on long after the
// time of the question. It does not take the service for one that hangs: it breaks no connection.
func TestAMetadataServerThatHungBreaksNothing(t *testing.T) {
	y := newCopyStory(t, 3)
	y.client("cn0", func(_ *clover.Client, rt verbs.Runtime) error {
		md0, hung, again := y.Host("md0"), false, 0
		ms1 := y.Host("ms1").Addr()
		y.fences.begins = func(to netip.Addr, private []byte) {
			switch {
			case !hung && to == ms1 && bytes.HasPrefix(private, []byte(asksWho)):
				hung = true
				y.At(rt.Now().Add(500*time.Microsecond), md0.HangAll) // the others have answered
				y.At(rt.Now().Add(5*time.Second), md0.ResumeAll)
				rt.Sleep(time.Millisecond)
			case hung && bytes.HasPrefix(private, []byte(connects)):
				again++
			}
		}
		rt.Sleep(10 * time.Second)
		if !hung || again > 0 || y.away() > 0 {
			t.Errorf("hung: %v; %d new connections to memory servers, %d of them are out", hung, again, y.away())
		}
		return nil
	})
	y.run()
}

// Two memory services hang while their NICs serve data, or one does while another server is out. With two
// copies, some nodes have theirs nowhere else. The servers stay in: those clients that have their
// connections go on, as a change of the view would stop them.
func TestHungServicesWithTheOnlyCopies(t *testing.T) {
	for _, both := range []bool{true, false} {
		y := newCopyStory(t, 2)
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := y.write(c, rt, 1); err != nil {
				return err
			}
			out := uint64(0)
			if both {
				y.hangService("ms0")
			} else {
				y.Host("ms0").HangAll()
				for ; y.away() == 0; rt.Sleep(time.Millisecond) {
				}
				out = 1
				if err := y.write(c, rt, 2); err != nil {
					return err
				}
			}
			y.hangService("ms1")
			for n := range 60 {
				began := rt.Now()
				if err := y.write(c, rt, 3+n); err != nil {
					return err
				}
				if d := rt.Now().Sub(began); d > time.Second || y.away() != out {
					t.Errorf("both %v: 20 PUTs took %v, %d servers are out", both, d, y.away())
				}
				rt.Sleep(100 * time.Millisecond)
			}
			for _, name := range []string{"ms0", "ms1"} {
				y.Host(name).ResumeAll()
			}
			for ; y.away() > 0; rt.Sleep(time.Millisecond) {
			}
			lost, err := y.read(c, rt)
			if lost > 0 {
				t.Errorf("both %v: %d keys lost", both, lost)
			}
			return err
		})
		y.run()
	}
}
