package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// runSteered is storePlan.runMixed with a switch that steers: it sends appends, READs or both to the
// newest node of their key. steer is "write", "read" or "both"; "" means that the seed decides.
// mixes names the mixes of the run (see --mix). change, if not nil, changes the plan.
func (p *storePlan) runSteered(e *env, steer, mixes string, change func(*storePlan)) error {
	p.draw(e)
	d := e.draw
	if p.steer = one(d, "write", "read", "both", "both"); steer != "" {
		p.steer = steer
	}
	p.box = steerBox(p.steer, one(d, "all", "all", "hot:1", "hot:4"))
	p.rack.Datagrams = !d.chance(0.2) // without datagrams, the switch must learn connections from their packets alone
	if d.chance(0.5) {
		p.keys = d.between(1, 3) // with few keys, more appends and READs need steering
	}
	if d.chance(0.5) {
		p.drawAppendLoss(e)
	}
	without := []string{mixServices, "format"} // the switch reads the keys of nodes, which some formats lack
	if change != nil {
		change(p)
		without = append(without, "sizes", "wear")
	}
	p.blend(e, mixes, without...)
	r := &storeRun{env: e, plan: p}
	err := r.run()
	r.noteSteering()
	return err
}

// steeredServers is the number of memory servers of a run with a switch that steers.
const steeredServers = 2

// storeRest is a period in which the switch has no steering rules for some servers: from operation
// number `from` to operation number `to`, counted over all clients.
type storeRest struct {
	from, to int
	servers  []string
}

// changeRules removes steering rules or sets them again, if a storeRest of the plan begins or ends
// with the present operation. A switch that is down finds the rules in its journal when it
// restarts.
func (r *storeRun) changeRules() {
	for i := range r.plan.rests {
		rest := &r.plan.rests[i]
		switch r.ops {
		case rest.from:
			r.setRules(rest.servers)
		case rest.to:
			r.setRules(nil)
		}
	}
}

// setRules gives the switch the rules of the rack file except those for the servers in without.
func (r *storeRun) setRules(without []string) {
	rack := r.env.rack
	rack.At(rack.Now(), func() {
		list := slices.DeleteFunc(slices.Clone(rack.Spec.Switch.Rules), func(x rules.Rule) bool {
			return slices.ContainsFunc(without, func(name string) bool { return x.Of(r.env.addrOf(name)) })
		})
		if err := rack.SetRules(list...); err != nil {
			rack.Stop(err)
		}
	})
}

// prompt reports whether each operation must end before its deadline: steering rules come and go,
// and there are no faults but crashes of clients and of the switch. In such a run, an operation
// that does not end shows that the switch steers to a stale tail.
func (p *storePlan) prompt() bool {
	return len(p.rests) > 0 && !slices.ContainsFunc(p.faultList(), func(s *storeFaultAt) bool {
		return s.what != storeNothing && s.what != storeClientCrash && s.what != storeSwitchCrash
	})
}

// steerBox returns the switch section of a rack file with rules of action steer. `what` says which
// requests are steered (write, read or both), and `keys` for which keys (all or hot:N).
func steerBox(what, keys string) string {
	s := "switch:\n  program: swordbox\n  rules:\n"
	for _, ms := range memoryServers(steeredServers) {
		s += fmt.Sprintf("    - {server: %s, action: steer, steer: %s, keys: %q}\n", ms, what, keys)
	}
	return s
}

// appendLoss is a failure in the middle of a PUT: the CMP_SWAP that the switch has forwarded is
// lost, or its answer is. After that the client, the switch, or both may die.
type appendLoss struct {
	env *env
	// at has the numbers of the CMP_SWAPs that are hit, counted over both servers from 1. n is how
	// many CMP_SWAPs have come so far.
	at map[int]bool
	n  int
	// answer: true if the answers of these CMP_SWAPs are lost instead of the requests. client: true
	// if the client of the first of them crashes. box: true if the switch crashes.
	answer, client, box bool
	// later is the time from the first loss to the switch's crash, down the time from the crash to
	// the switch's restart.
	later, down time.Duration
	injected    bool
}

// drawAppendLoss draws an appendLoss. It replaces the plan's faults of machines, of the switch, and
// cuts of links; the fault rules of links stay.
func (p *storePlan) drawAppendLoss(e *env) {
	d := e.draw
	a := &appendLoss{
		env: e, at: make(map[int]bool), answer: d.chance(0.4), client: d.chance(0.6), box: d.chance(0.6),
		later: d.span(0, 30*time.Microsecond), down: d.span(time.Millisecond, 20*time.Millisecond),
	}
	for range d.between(1, 8) {
		a.at[d.between(1, p.clients*p.rounds)] = true
	}
	what := "compare-and-swaps are lost"
	if a.answer {
		what = "answers of compare-and-swaps are lost"
	}
	p.storeFaultAt, p.then, p.loses, p.pace = storeFaultAt{}, nil, 0, 0
	if a.client {
		p.what, what = storeClientCrash, what+", the client of the first one dies"
	}
	if a.box {
		p.what, what = storeSwitchCrash, what+fmt.Sprintf(", the switch dies %v after the first one, for %v", a.later, a.down)
	}
	p.steer += fmt.Sprintf("; %d %s", len(a.at), what)
	p.rack.Wrap = func(name string, n simnet.Node) simnet.Node {
		if name != "ms0" && name != "ms1" {
			return n
		}
		return &losing{n, a}
	}
}

// losing is a node in front of a memory server. It drops appends, or the server's answers to them,
// as its appendLoss says.
type losing struct {
	simnet.Node
	*appendLoss
}

// Frame passes a frame on to the server, drops it, or drops the frames with which the server
// answers it.
func (l *losing) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	hit := false
	if wire.ParseFrame(f.Data, &g) == nil && g.BTH.Opcode == wire.RCCmpSwap {
		l.n++
		hit = l.at[l.n]
	}
	if hit {
		l.inject(&g)
	}
	if hit && !l.answer {
		return
	}
	made := len(out.Frames)
	l.Node.Frame(now, port, f, out)
	if hit {
		out.Frames = out.Frames[:made]
	}
}

// inject is called each time that an append or the answer to it is lost. The first time, it crashes
// the client, the switch or both, as planned.
func (l *appendLoss) inject(g *wire.Frame) {
	if l.injected {
		return
	}
	l.injected = true
	rack := l.env.rack
	now := rack.Now()
	if l.client {
		for _, h := range rack.Hosts() {
			if g.SrcAddr() == h.Addr() {
				rack.At(now, h.CrashApps)
			}
		}
	}
	if l.box {
		rack.At(now.Add(l.later), rack.CrashSwitch)
		rack.At(now.Add(l.later+l.down), l.env.restartSwitch)
	}
}

// noteSteering adds to the report the switch's counters of steering since the switch's start.
func (r *storeRun) noteSteering() {
	if r.env.rack == nil {
		return
	}
	box, ok := r.env.rack.Program().(*swordbox.Program)
	if !ok {
		return
	}
	for _, g := range box.Counters(r.env.rack.Now()) {
		if g.Name != "steer" {
			continue
		}
		text := ""
		for _, c := range g.Counters {
			if c.Value != 0 {
				text += fmt.Sprintf(" %s %d", c.Name, c.Value)
			}
		}
		r.env.note("steering:%s", text)
	}
}
