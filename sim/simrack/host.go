package simrack

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// defaultTearPause is the longest pause of a torn copy, unless the fault rule names one.
const defaultTearPause = 20 * time.Microsecond

// Host is one machine of the rack: its NIC and its applications. It is a simnet.Node.
type Host struct {
	Spec  *rackfile.Host
	rack  *Rack
	index int
	node  simnet.NodeID
	link  *simnet.Link
	eng   *engine.Engine
	rules []fault.Rule
	card  *cost.Card // the time that the NIC's work takes, by the cost model; nil if the rack has none

	activity  uint64
	waiters   []*waiter
	apps      []*shell
	listeners map[string]*listener
	taken     []*request // requests that the host's applications have taken from listeners, and may not have answered yet
	managers  []*rdmacm.CM
	crashed   bool
	hung      []*simnet.Proc // threads that HangApps has stopped
}

var _ simnet.Node = (*Host)(nil)

func gids(h *rackfile.Host) []verbs.GID {
	var out []verbs.GID
	for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
		if a.IsValid() {
			out = append(out, verbs.GIDOf(a))
		}
	}
	return append(out, verbs.LinkLocalGID(h.MAC))
}

func (h *Host) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	h.eng.Frame(now, port, f, out)
	h.look()
}

func (h *Host) Tick(now clock.Time, out *packetio.Batch) {
	h.eng.Tick(now, out)
	h.look()
}

func (h *Host) Deadline() clock.Time { return h.eng.Deadline() }

// look is called after each step of the NIC. If the NIC's Activity has changed, it checks the
// conditions of waiting threads.
func (h *Host) look() {
	if a := h.eng.Events.Activity(); a != h.activity {
		h.activity = a
		h.ask()
	}
}

// ask checks the condition of every waiting thread, in the order in which they began to wait, and
// wakes the threads whose condition holds. The check of a condition that holds may consume an
// event, so ask does not check it a second time.
func (h *Host) ask() {
	for _, w := range h.waiters {
		if !w.met && w.cond.Ready(h.eng) {
			w.met = true
			w.proc.Wake()
		}
	}
}

// Addr returns the host's address: its IPv4 address if it has one, otherwise its IPv6 address.
func (h *Host) Addr() netip.Addr {
	if h.Spec.IPv4.IsValid() {
		return h.Spec.IPv4
	}
	return h.Spec.IPv6
}

// Go starts an application: f runs as a coroutine, with a verbs context of its own on the host's
// NIC. Rack.Run does not wait for a daemon.
func (h *Host) Go(name string, daemon bool, f func(ctx verbs.Context)) {
	b := h.app(name, daemon)
	b.start(b.name, func() { f(verbsengine.New(b)) })
}

// Context makes the verbs context of an application without a thread: any thread of the simulation
// may use it. Rack.Run does not wait for threads that the context starts.
func (h *Host) Context(name string) verbs.Context { return verbsengine.New(h.app(name, true)) }

func (h *Host) app(name string, daemon bool) *shell {
	b := &shell{
		host: h, name: h.Spec.Name + "/" + name, daemon: daemon,
		rand: rand.New(rand.NewPCG(h.rack.seed, uint64(laneApp)<<32|uint64(h.index)<<16|uint64(len(h.apps)))),
	}
	h.apps = append(h.apps, b)
	return b
}

func (h *Host) Counters() metrics.NIC { return *h.eng.Counters() }

// Engine returns the host's NIC, for checks after a run.
func (h *Host) Engine() *engine.Engine { return h.eng }

func (h *Host) Link() *simnet.Link { return h.link }

// SetFaults replaces the fault rules of the host's link, and the rule for torn copies in its
// memory.
func (h *Host) SetFaults(rules []fault.Rule) {
	h.rules = rules
	h.link.SetFaults(h.rack.injectors(h.Spec.Name, rules))
	h.tear()
}

// Inject puts a frame on one direction of the host's link, without the link's faults. The trace
// shows rules as the reason. Functions that Rack.At calls may call Inject.
func (h *Host) Inject(d fault.Dir, frame []byte, rules []string) {
	h.net().Inject(h.link, d, packetio.Frame{Data: frame}, rules)
}

// tear applies the host's fault rule of kind fault.Tear, if there is one, to the NIC's memory.
func (h *Host) tear() {
	t := h.eng.Tables.Mem()
	if t == nil {
		return
	}
	t.SetTear(nil)
	for _, r := range h.rules {
		if r.Kind != fault.Tear || r.Link != h.Spec.Name {
			continue
		}
		p, pause := cmp.Or(r.Probability, 1), cmp.Or(r.Delay, defaultTearPause)
		t.SetTear(mem.SeededTear(h.rack.seed^uint64(laneTear)<<32^uint64(h.index), p, pause))
	}
}

func (h *Host) SetLink(up bool) {
	h.link.SetUp(up)
	h.eng.SetLink(up)
	h.look()
}

// CrashNIC crashes the NIC alone. All objects of the NIC are gone, and applications get errors.
func (h *Host) CrashNIC() {
	h.eng.Down(h.net().Now())
	h.powerCycle()
	h.look()
}

// powerCycle drops the frames that wait in the queue of the host's NIC, and makes the simulator read the
// deadline of the host's node again: without a NIC it has none.
func (h *Host) powerCycle() {
	h.net().SetUp(h.node, false)
	h.net().SetUp(h.node, true)
}

// RestartNIC starts the NIC with empty tables.
func (h *Host) RestartNIC() {
	h.eng.Up()
	h.tear()
	h.charge()
}

// CrashApps ends the applications alone. The NIC goes on, and the memory that they have registered
// stays.
func (h *Host) CrashApps() {
	for _, b := range h.apps {
		for _, p := range b.threads {
			p.Kill()
		}
	}
	h.apps = nil
}

// Crash crashes the host: its applications and listeners end, and its NIC crashes.
func (h *Host) Crash() {
	h.crashed = true
	h.CrashApps()
	for _, l := range h.listeners {
		l.closed = true
	}
	clear(h.listeners)
	h.waiters = nil
	h.CrashNIC()
}

// Restart starts a crashed host. No application runs on it yet.
func (h *Host) Restart() {
	h.crashed = false
	h.RestartNIC()
}

// Reboot restarts a host as in its first incarnation: it uses the same QPNs, keys and memory
// addresses again. The counters of its NIC begin at zero.
func (h *Host) Reboot() error {
	eng, err := h.rack.newEngine(h.index)
	if err != nil {
		return err
	}
	h.eng.Down(h.net().Now())
	h.eng, h.activity, h.crashed = eng, eng.Events.Activity(), false
	h.tear()
	h.charge()
	h.powerCycle()
	return nil
}

// Hang stops the NIC until Resume. The NIC keeps its state. Frames that arrive meanwhile are lost.
func (h *Host) Hang() { h.net().SetUp(h.node, false) }

func (h *Host) Resume() { h.net().SetUp(h.node, true) }

// EndProcesses does what a host's daemon does when a process ends: after CrashApps, it closes the
// listeners and connection managers of the applications, and rejects the requests that they have
// taken from listeners and not answered.
func (h *Host) EndProcesses() {
	h.CrashApps()
	for _, service := range slices.Sorted(maps.Keys(h.listeners)) {
		_ = h.listeners[service].Close() // Close of a listener returns no error
	}
	for _, r := range h.taken {
		if !r.over() {
			r.answer("the process has ended")
		}
	}
	for _, m := range h.managers {
		_ = m.Close() // Close of a connection manager returns no error
	}
	h.taken, h.managers = nil, nil
}

// HangAll stops the NIC, and all threads that run on the host now, as when a virtual machine is
// paused.
func (h *Host) HangAll() {
	h.Hang()
	h.HangApps()
}

// HangApps stops all threads that run on the host now, until ResumeApps. The NIC goes on.
func (h *Host) HangApps() {
	for _, b := range h.apps {
		for _, p := range b.threads {
			p.Hang()
			h.hung = append(h.hung, p)
		}
	}
}

func (h *Host) ResumeAll() {
	h.Resume()
	h.ResumeApps()
}

func (h *Host) ResumeApps() {
	for _, p := range h.hung {
		p.Resume()
	}
	h.hung = nil
}
