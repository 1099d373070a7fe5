package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// computeHosts is the number of compute hosts that the clients of a store share. A client of FUSEE
// that dies has a further host for itself (tablePlan.hostOf).
const computeHosts = 4

// passiveRack returns the rack file of a store that needs memory servers and compute hosts alone.
func passiveRack(servers, hosts int) string {
	return fmt.Sprintf("name: sim\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n", servers-1, hosts-1)
}

// clientRack returns a rack file with clients cn0, cn1 and so on, and memory servers ms0, ms1 and so
// on, in this order.
func clientRack(clients, servers int) string {
	return fmt.Sprintf("name: sim\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n  - {name: \"ms[0-%d]\", role: memory}\n", clients-1, servers-1)
}

// numbered returns n names: the prefix with each of the numbers from 0 to n-1.
func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

func memoryServers(n int) []string { return numbered("ms", n) }

// passiveHosts returns the names of the memory servers and of the compute hosts.
func passiveHosts(servers int) []string {
	return append(memoryServers(servers), numbered("cn", computeHosts)...)
}

// wirePlan has the choices that the seed makes about faults of links and of memory, and about the
// parameters of NICs and connections. The plans of several scenarios embed it: those of stores, of
// RedN, and of rules with which the switch uses servers' memory.
type wirePlan struct {
	links  string // the names of the links' faults, for the report
	rules  []fault.Rule
	rack   simrack.Options
	params rdmacm.Params
}

// drawWire draws the faults of the links of hosts, and the parameters of NICs and connections. For
// each of the servers, it draws with the probability torn that memory copies there are torn: a
// concurrent reader sees a part of a copy.
func (p *wirePlan) drawWire(e *env, hosts, servers []string, torn float64) {
	d := e.draw
	p.links, p.rules = d.links(hosts)
	for _, h := range servers {
		if d.chance(torn) {
			p.tear(h, 0.05+d.Float64()*0.5, d.span(0, 20*time.Microsecond))
		}
	}
	p.rack = simrack.Options{Delay: d.span(200*time.Nanosecond, 5*time.Microsecond), Window: one(d, 4, 16, 64), Datagrams: d.chance(0.3)}
	e.v6 = d.chance(0.2)
	p.params = rdmacm.Params{PathMTU: one(d, verbs.MTU256, verbs.MTU1024), Timeout: uint8(d.between(6, 8)), RdAtomic: one(d, 2, 16)}
}

// widen gives the NICs of a few runs as many packets in flight as hardware NICs allow.
func (e *env) widen(rack *simrack.Options) {
	if d := newDraw(e.seed ^ windowLane); d.chance(0.1) {
		rack.Window = one(d, 1024, 16384)
	}
}

// tear adds a fault of kind Tear for a host: with this probability, a memory copy there pauses in
// the middle, so that a concurrent reader sees a part of it.
func (p *wirePlan) tear(host string, probability float64, pause time.Duration) {
	p.rules = append(p.rules, fault.Rule{Link: host, Kind: fault.Tear, Probability: probability, Delay: pause})
	p.links += "tear:" + host + " "
}

// untear removes all faults of kind Tear.
func (p *wirePlan) untear() {
	p.rules = slices.DeleteFunc(p.rules, func(r fault.Rule) bool { return r.Kind == fault.Tear })
}

// belated keeps torn copies, and replaces all other faults of links: some packets, and copies of
// packets, are late by up to 15 ms. That is so long, and the retry count is so small, that
// requesters may give up their connections.
func (p *wirePlan) belated(d *draw, hosts []string) {
	p.links, p.rules = p.links+"late ", slices.DeleteFunc(p.rules, func(r fault.Rule) bool { return r.Kind != fault.Tear })
	for _, h := range hosts {
		for _, k := range []fault.Kind{fault.Reorder, fault.Duplicate} {
			p.rules = append(p.rules, fault.Rule{Link: h, Kind: k, Probability: 0.02, Delay: d.span(time.Millisecond, 15*time.Millisecond)})
		}
	}
	p.params.RetryCount = uint8(d.between(1, 3))
}

// setFaults gives each link those of the rules that name its host.
func (e *env) setFaults(rules []fault.Rule) {
	for _, h := range e.rack.Hosts() {
		h.SetFaults(slices.DeleteFunc(slices.Clone(rules), func(f fault.Rule) bool { return f.Link != h.Spec.Name }))
	}
}

// serveMemory starts the memory service of a host. begun, if not nil, is called with the service
// before it serves.
func (e *env) serveMemory(host string, cfg memservice.Config, begun func(*memservice.Server)) {
	h := e.rack.Host(host)
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), cfg)
		if err == nil {
			if begun != nil {
				begun(s)
			}
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			e.fail("memory service of %s: %w", host, err)
		}
	})
}

// restartSwitch restarts the switch after a crash. If that fails, the run ends.
func (e *env) restartSwitch() {
	if err := e.rack.RestartSwitch(); err != nil {
		e.rack.Stop(err)
	}
}

// goOnUntil keeps a run going until the time `over`, at which a fault ends, even if all clients
// have ended before. It starts an application that sleeps until then.
func (e *env) goOnUntil(over clock.Time) {
	e.rack.Host(survivor).Go("survivor", false, func(ctx verbs.Context) {
		for ctx.Runtime().Now() <= over {
			ctx.Runtime().Sleep(over.Sub(ctx.Runtime().Now()) + 1)
		}
	})
}

// opWatch ends the run when an operation of its client takes longer than limit. Without it, an
// operation that repeats its requests for ever would end the run only after maxEvents.
type opWatch struct {
	rack   *simrack.Rack
	client string
	limit  time.Duration
	began  clock.Time
	key    uint64
	busy   bool // an operation on the key `key` began at the time `began` and has not ended
	set    bool // the rack will call look
}

// begin is called when an operation on a key begins. The caller calls end when the operation has
// ended.
func (w *opWatch) begin(key uint64) (end func()) {
	w.began, w.key, w.busy = w.rack.Now(), key, true
	w.wait()
	return func() { w.busy = false }
}

// wait makes the rack call look when the operation has lasted for limit, unless such a call is
// scheduled already.
func (w *opWatch) wait() {
	if !w.set {
		w.set = true
		w.rack.At(w.began.Add(w.limit)+1, w.look)
	}
}

// look ends the run if the client's operation has lasted too long.
func (w *opWatch) look() {
	w.set = false
	switch now := w.rack.Now(); {
	case !w.busy:
	case now > w.began.Add(w.limit):
		w.rack.Stop(fmt.Errorf("%s: an operation on key %d, which began at %v, has not ended after %v", w.client, w.key, w.began, now.Sub(w.began)))
	default: // the present operation began later than the one for which look was scheduled
		w.wait()
	}
}

// planMix is a variation of a store's plan that only some runs have: kinds of keys, links, faults
// or memory that the base plan does not draw. A run has the mixes that `--mix` names; without the
// flag each mix is drawn with the probability chance. Each mix draws from its own random numbers,
// so its choices do not depend on the other mixes of the run.
type planMix[P any] struct {
	name   string
	chance float64
	apply  func(p P, d *draw)
	// The field not lists the mixes that cannot be in one run with this mix.
	not []string
}

// planMixes is a list of mixes in the order in which blend applies them.
type planMixes[P any] []planMix[P]

// mixNone is the value of --mix for a run without mixes.
const mixNone = "none"

func (list planMixes[P]) names() string {
	names := []string{mixNone}
	for _, m := range list {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// check checks a value of --mix: names separated by commas, mixNone or "".
func (list planMixes[P]) check(value string) error {
	if value == "" || value == mixNone {
		return nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		i := slices.IndexFunc(list, func(m planMix[P]) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("--mix %.40q: use %s", name, list.names())
		}
		for _, other := range names {
			if slices.Contains(list[i].not, other) {
				return fmt.Errorf("--mix %s: not together with %s", name, other)
			}
		}
	}
	return nil
}

// choose returns the names of the mixes of a run: those that value names, or, if it is "", those
// that the seed draws. It leaves out the mixes that `without` names, because the scenario cannot
// have them. Of two mixes that exclude each other, the later one stays.
func (list planMixes[P]) choose(seed uint64, value string, without ...string) (chosen []string) {
	d := newDraw(seed ^ 0x6d69786573)
	for _, m := range list {
		drawn := d.chance(m.chance)
		if value != "" {
			drawn = slices.Contains(strings.Split(value, ","), m.name)
		}
		if !drawn || slices.Contains(without, m.name) {
			continue
		}
		chosen = slices.DeleteFunc(chosen, func(name string) bool { return slices.Contains(m.not, name) })
		chosen = append(chosen, m.name)
	}
	return chosen
}

func (list planMixes[P]) blend(p P, seed uint64, chosen []string) {
	for i, m := range list {
		if slices.Contains(chosen, m.name) {
			m.apply(p, newDraw(^seed-uint64(i)<<48))
		}
	}
}
