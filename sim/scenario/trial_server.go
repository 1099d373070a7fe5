package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Faults of the host that runs a store's server, besides those of trialFault. During the fault or
// later, another server is started on one of the two serverHosts (serverFault.next). For a store
// with a Resident server (see store.TrialServer), whose memory survives its process, another server
// is started only after trialServerStops and trialServerNIC, and always on the same host.
const (
	trialServerStops = "server crashes"
	// trialServerAgain: a second server is started though the first one works.
	trialServerAgain = "another server starts"
	// trialServerHangs: the server's process hangs, while its NIC goes on.
	trialServerHangs = "server hangs"
	// trialServerNIC: the server's NIC crashes. The memory of a Resident server is lost. When the
	// NIC has restarted, a server begins with an empty store.
	trialServerNIC = "server's NIC crashes"
)

var serverHosts = []string{"md0", "md1"}

// serverFault is a fault of the host that runs the store's server. again is the time from the
// beginning of the fault until another server is started, on the host next. After trialServerNIC a
// server is started at the end of the fault instead.
type serverFault struct {
	trialFault
	next  string
	again time.Duration
}

// drawServers draws the faults of the store's servers, if the store has any.
func (p *trialPlan) drawServers(seed uint64) {
	d := newDraw(seed ^ serverLane)
	if p.Server == nil || !p.Crashes || d.chance(0.3) {
		return
	}
	at, resident := serverHosts[0], p.Server.Resident != nil
	what := []string{trialServerStops, trialServerStops, trialServerAgain, trialNICHang, trialHostHang, trialLinkCut}
	down, again := 120*time.Millisecond, 60*time.Millisecond
	if resident { // the memory survives the server, so the next server is on the same host
		what = []string{trialServerStops, trialServerStops, trialServerStops, trialServerHangs, trialServerHangs, trialServerNIC, trialServerNIC, trialNICHang, trialHostHang, trialLinkCut}
		down, again = 300*time.Millisecond, 300*time.Millisecond
	}
	for range d.between(1, 3) {
		x := serverFault{next: at}
		if !resident {
			x.next = one(d, serverHosts...)
		}
		x.victim, x.after, x.late = at, d.between(1, max(1, p.clients*p.rounds*3/4)), d.span(0, 30*time.Microsecond)
		x.down, x.again, x.what = d.span(time.Millisecond, down), d.span(0, again), one(d, what...)
		if !resident && x.what != trialServerStops && x.what != trialServerAgain { // the host may be down for a long time, so the next server is on the other host
			x.next = serverHosts[0]
			if at == x.next {
				x.next = serverHosts[1]
			}
		}
		p.serverFaults = append(p.serverFaults, x)
		at = x.next
	}
}

// failResident injects a fault of a Resident server, whose memory survives the server, and
// schedules the end of the fault.
func (r *trialRun) failResident(x serverFault) {
	rack, h := r.env.rack, r.env.rack.Host(x.victim)
	over := rack.Now().Add(x.down)
	if r.down[x.victim] {
		return
	}
	switch x.what {
	case trialServerStops:
		h.EndProcesses()
		over = rack.Now().Add(x.again)
		rack.At(over, func() {
			if !r.down[x.next] { // otherwise a server is started when the NIC has restarted
				r.startServer(x.next)
			}
		})
	case trialServerNIC:
		r.down[x.victim] = true
		h.EndProcesses()
		h.CrashNIC()
		r.wipe()
		rack.At(over, func() {
			h.RestartNIC()
			delete(r.down, x.victim)
			r.settled = false
			r.startServer(x.next)
		})
	case trialServerHangs:
		h.HangApps()
		rack.At(over, h.ResumeApps)
	default:
		r.inject(x.trialFault)
		return
	}
	r.env.goOnUntil(over)
}

// wipe records in the history that all keys are lost at this moment: each gets a value that no GET
// may return, and is deleted.
func (r *trialRun) wipe() {
	s := kv.Record(wiped{}, r.history, r.plan.clients, r.env.rack.Now)
	for key := range uint64(r.plan.keys) {
		_ = s.Upsert(key, s.Value(key, kv.MinValue), clock.Never) // wiped returns no errors
		_ = s.Delete(key, clock.Never)
	}
}

// wiped is a store whose operations do nothing. wipe uses it to enter operations into the history
// that no client has executed.
type wiped struct{ kv.Store }

func (wiped) Upsert(uint64, []byte, clock.Time) error { return nil }
func (wiped) Delete(uint64, clock.Time) error         { return nil }

func (x serverFault) String() string {
	return fmt.Sprintf("; %s: %s after %d operations and %v, for %v, the next on %s after %v", x.victim, x.what, x.after, x.late, x.down, x.next, x.again)
}

// startServer runs a server of the store on a host. If it cannot start or ends too early, it is
// started again.
func (r *trialRun) startServer(host string) {
	h, s := r.env.rack.Host(host), r.plan.Server
	h.Go("server", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for !r.ready {
			rt.Sleep(50 * time.Microsecond)
		}
		if s.Resident != nil && !r.settled {
			r.settled = true
			if err := s.Resident(h.Context("resident")); err != nil {
				r.env.fail("server of the store on %s: %w", host, err)
				return
			}
		}
		for {
			serve, err := s.Start(r.config(h, ctx), h.Manager(ctx), rt.Now().Add(trialPatience))
			if err == nil {
				err = serve()
			}
			switch {
			case err == nil, errors.Is(err, verbs.ErrClosed), errors.Is(err, s.Replaced), r.losses > 0:
				return
			case !errors.Is(err, rdmacm.ErrInUse) && !errors.Is(err, kv.ErrTimeout) && !errors.Is(err, verbs.ErrTimeout) && !errors.Is(err, kv.ErrLost):
				r.env.fail("server of the store on %s: %w", host, err)
				return
			}
			rt.Sleep(5 * time.Millisecond)
		}
	})
}

// failServer injects a fault of the host that runs the store's server. It schedules the end of the
// fault and the start of the next server.
func (r *trialRun) failServer(x serverFault) {
	if r.plan.Server.Resident != nil {
		r.failResident(x)
		return
	}
	rack, h := r.env.rack, r.env.rack.Host(x.victim)
	again := x.again
	switch x.what {
	case trialServerStops:
		h.CrashApps() // requests that the server has posted may still be executed
		if x.next == x.victim {
			again = max(again, x.down)
		}
		over := rack.Now().Add(x.down)
		rack.At(over, func() { // the crash of the host also ends a server that was started there meanwhile, so a server is started again
			h.Crash()
			h.Restart()
			r.startServer(x.next)
		})
		r.env.goOnUntil(over)
	case trialServerAgain:
	default:
		r.inject(x.trialFault)
	}
	next := rack.Now().Add(again)
	rack.At(next, func() { r.startServer(x.next) })
	r.env.goOnUntil(next)
}

func (r *trialRun) open(cfg passive.Config, deadline clock.Time) (kv.Store, error) {
	if r.plan.Server == nil {
		return r.plan.Open(cfg, deadline)
	}
	return r.plan.Server.Open(cfg, r.env.addrsOf(serverHosts), deadline)
}
