package simrack

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// faultCase injects a fault at one millisecond and ends it at two, unless heal is nil. The client
// WRITEs all the time and gives up after about eight milliseconds.
type faultCase struct {
	name  string
	fault func(r *Rack)
	heal  func(r *Rack)
	want  verbs.Status
}

var faultCases = []faultCase{
	{"link", func(r *Rack) { r.Host("ms0").SetLink(false) }, func(r *Rack) { r.Host("ms0").SetLink(true) }, verbs.Success},
	{"hang", func(r *Rack) { r.Host("ms0").Hang() }, func(r *Rack) { r.Host("ms0").Resume() }, verbs.Success},
	{"hang of the client", func(r *Rack) { r.Host("cn0").Hang() }, func(r *Rack) { r.Host("cn0").Resume() }, verbs.Success},
	{"switch crash", func(r *Rack) { r.CrashSwitch() }, func(r *Rack) { _ = r.RestartSwitch() }, verbs.Success},
	{"partition", func(r *Rack) { r.Partition([]string{"ms0"}) }, func(r *Rack) { r.Partition(nil) }, verbs.Success},
	{
		"blackhole", func(r *Rack) { r.Host("cn0").SetFaults([]fault.Rule{{Link: "cn0", Kind: fault.Blackhole}}) },
		func(r *Rack) { r.Host("cn0").SetFaults(nil) }, verbs.Success,
	},
	{"link for good", func(r *Rack) { r.Host("cn0").SetLink(false) }, nil, verbs.RetryExcErr},
	// A restarted NIC or host has lost its queue pairs.
	{"NIC crash", func(r *Rack) { r.Host("ms0").CrashNIC() }, func(r *Rack) { r.Host("ms0").RestartNIC() }, verbs.RetryExcErr},
	{"crash", func(r *Rack) { r.Host("ms0").Crash() }, func(r *Rack) { r.Host("ms0").Restart() }, verbs.RetryExcErr},
	// If only the application has crashed, the NIC and the memory remain.
	{"application crash", func(r *Rack) { r.Host("ms0").CrashApps() }, nil, verbs.Success},
}

func TestFaultsActAsNamed(t *testing.T) { byBoth(t, testFaultsActAsNamed) }

func testFaultsActAsNamed(t *testing.T, opt Options) {
	for _, tc := range faultCases {
		t.Run(tc.name, func(t *testing.T) {
			r := newRack(t, small, opt)
			var srv conn
			echoServer(t, r.Host("ms0"), &srv)
			r.At(clock.Time(time.Millisecond), func() { tc.fault(r) })
			if tc.heal != nil {
				r.At(clock.Time(2*time.Millisecond), func() { tc.heal(r) })
			}
			cn := r.Host("cn0")
			cn.Go("client", false, func(ctx verbs.Context) {
				got, after := writeUntil(t, dialEcho(t, r, cn, ctx), &srv, clock.Time(20*time.Millisecond))
				if got != tc.want {
					t.Errorf("status %v, want %v", got, tc.want)
				}
				if got == verbs.Success && after == 0 {
					t.Error("no WRITE succeeded after the fault")
				}
			})
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
			if lost := r.Host("cn0").Counters().LocalAckTimeoutErr; lost == 0 && tc.name != "application crash" {
				t.Error("nothing was lost")
			}
		})
	}
}

// A host loses all frames for half a second, as if it got no processor. Its connections survive
// this with the default attributes of applications, also when it happens to two hosts one after the
// other.
func TestHalfASecondWithoutProcessor(t *testing.T) { byBoth(t, testHalfASecondWithoutProcessor) }

func testHalfASecondWithoutProcessor(t *testing.T, opt Options) {
	const stall = 500 * time.Millisecond
	for name, hosts := range map[string][]string{"server": {"ms0"}, "client": {"cn0"}, "both": {"ms0", "cn0"}} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, small, opt)
			var srv conn
			echoServer(t, r.Host("ms0"), &srv)
			at := clock.Time(time.Millisecond)
			for _, n := range hosts {
				h := r.Host(n)
				r.At(at, h.Hang)
				at = at.Add(stall)
				r.At(at, h.Resume)
			}
			cn := r.Host("cn0")
			cn.Go("client", false, func(ctx verbs.Context) {
				c := newConn(t, ctx).dial(t, r, cn, rdmacm.Params{})
				for until := at.Add(stall); ctx.Runtime().Now() < until; {
					if status, _ := writeUntil(t, c, &srv, ctx.Runtime().Now().Add(time.Millisecond)); status != verbs.Success {
						t.Errorf("at %v: %v", ctx.Runtime().Now(), status)
						return
					}
					ctx.Runtime().Sleep(10 * time.Millisecond)
				}
			})
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// writeUntil posts WRITEs to the server until a time or an error. It returns the status of the last
// one and how many succeeded after two milliseconds.
func writeUntil(t *testing.T, c, srv *conn, end clock.Time) (status verbs.Status, after int) {
	rt := c.ctx.Runtime()
	var wc [1]verbs.WC
	for rt.Now() < end {
		wr := verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{c.mr.SGE(0, 64)},
			RemoteAddr: srv.mr.Addr(), RKey: srv.mr.RKey(),
		}
		if err := c.qp.PostSend(wr); err != nil {
			t.Error(err)
			return status, after
		}
		if err := c.cq.Wait(rt.Now().Add(5 * time.Second)); err != nil {
			t.Error(err)
			return status, after
		}
		if _, err := c.cq.Poll(wc[:]); err != nil {
			t.Error(err)
		}
		if status = wc[0].Status; status != verbs.Success {
			return status, after
		}
		if rt.Now() > clock.Time(2*time.Millisecond) {
			after++
		}
		rt.Sleep(10 * time.Microsecond)
	}
	return status, after
}

// When a NIC crashes, its application gets an event, and ErrClosed from every object.
func TestOwnNICCrashes(t *testing.T) {
	r := newRack(t, small, Options{})
	echoServer(t, r.Host("ms0"))
	cn := r.Host("cn0")
	r.At(clock.Time(time.Millisecond), cn.CrashNIC)
	cn.Go("client", false, func(ctx verbs.Context) {
		c := dialEcho(t, r, cn, ctx)
		if err := c.cq.Wait(clock.Never); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("Wait: %v, want %v", err, verbs.ErrClosed)
		}
		ev, err := ctx.NextAsyncEvent(clock.Never)
		if err != nil || ev.Kind != verbs.EventDeviceFatal {
			t.Errorf("event %v, %v", ev, err)
		}
		cn.RestartNIC()
		newConn(t, ctx) // the restarted NIC can be used
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
}

// A torn copy is complete before an application can read it.
func TestTear(t *testing.T) {
	r := newRack(t, small+"faults: [{link: ms0, kind: tear}]\n", Options{})
	var srv conn
	echoServer(t, r.Host("ms0"), &srv)
	cn := r.Host("cn0")
	cn.Go("client", false, func(ctx verbs.Context) {
		c := dialEcho(t, r, cn, ctx)
		wr := verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{c.mr.SGE(0, 4096)},
			RemoteAddr: srv.mr.Addr(), RKey: srv.mr.RKey(),
		}
		if err := c.qp.PostSend(wr); err != nil {
			t.Error(err)
		}
		if err := c.cq.Wait(clock.Never); err != nil {
			t.Error(err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if n := r.Host("ms0").Counters().TornCopies; n == 0 {
		t.Error("no copy was torn")
	}
}
