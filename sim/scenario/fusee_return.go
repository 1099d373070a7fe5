package scenario

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxBlows bounds the blows (see tableBlow) of one run.
const maxBlows = 3

// tableBlow is a further crash at the time at which a memory server comes back after its first
// crash. It hits a memory server, perhaps the same one, or the master, its standby or a client.
type tableBlow struct {
	trialFault
	// client is the client that dies; negative means that the blow is the embedded trialFault.
	client int
	// The crash comes when a server that has come back has reached stage, and the time `late`
	// (trialFault) has passed since then.
	stage returnStage
}

// returnStage says how far the masters have brought a memory server that has come back.
type returnStage uint8

const (
	// isUp: the server's memory is empty.
	isUp returnStage = iota
	// isClaimed: the master has claimed the server, and clears the server's memory or copies into
	// it.
	isClaimed
	// isFilled: the server has a superblock. The master copies data to it, or has copied all data.
	isFilled
	// isMember: the server has a view that says that it is a member of the store.
	isMember
)

var returnStages = [...]string{isUp: "up", isClaimed: "claimed", isFilled: "being filled", isMember: "a member"}

func (x *tableBlow) String() string {
	when := fmt.Sprintf("%v after a server that has come back is %s", x.late, returnStages[x.stage])
	if x.client >= 0 {
		return fmt.Sprintf("client %d dies %s", x.client, when)
	}
	return fmt.Sprintf("%s %s %s, restarts after %v", x.victim, x.what, when, x.down)
}

// returns reports whether memory servers come back while clients still have operations to do. Then
// all servers must be members at the end of the run.
func (p *tablePlan) returns() bool { return p.pause > 0 }

// drawReturn draws whether clients work so long that crashed memory servers come back meanwhile,
// and the further crashes at that time (the blows, see tableBlow).
func (p *tablePlan) drawReturn(d *draw) {
	dies := func(x trialFault) bool { return x.what == trialServerDies }
	if !slices.ContainsFunc(p.faults, dies) || d.chance(0.25) {
		return
	}
	p.pause = d.span(30*time.Millisecond, 300*time.Millisecond)
	for i := range p.faults {
		if x := &p.faults[i]; dies(*x) { // an early crash, so that clients still have operations to do when the server comes back
			x.after = max(1, x.after/3)
		}
	}
	for range d.between(0, maxBlows) {
		x := tableBlow{client: -1, stage: one(d, isUp, isClaimed, isClaimed, isFilled, isFilled, isMember)}
		x.late, x.down = one(d, 0, d.span(0, time.Millisecond), d.span(0, 20*time.Millisecond), d.span(0, 2*p.rule)), d.span(time.Millisecond, 900*time.Millisecond)
		switch what := d.IntN(6); {
		case what == 0 && len(p.deaths) < min(maxDeaths, p.clients-1):
			x.client = len(p.deaths)
			p.deaths = append(p.deaths, tableDeath{client: x.client, nic: d.chance(0.3), blow: true})
		case what < 3 && !p.vigil && (p.masters == 1 || p.standby):
			x.what, x.victim = trialMasterDies, masterHost(d.IntN(p.masters))
		default:
			x.what, x.victim = trialServerDies, fmt.Sprintf("ms%d", d.IntN(p.servers))
		}
		p.more += x.down
		p.blows = append(p.blows, x)
	}
}

// watchEvery is the interval at which await looks at the stages of servers that have come back.
const watchEvery = 100 * time.Microsecond

// await makes the planned blows happen (tableBlow: a client dies or a fault is injected while
// memory servers come back). Each blow waits until some server that was down has reached the blow's
// stage.
func (r *tableRun) await() {
	// A master may take a server for crashed that it only cannot reach, and remove this server from
	// the members. So the run crashes only a server without which the store survives at that time.
	if (r.plan.returns() || r.plan.cut) && r.plan.masters > 0 {
		r.spare = r.expendable
	}
	if !r.plan.returns() || len(r.plan.blows) == 0 {
		return
	}
	h := r.env.rack.Host(survivor)
	h.Go("blows", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		left := slices.Clone(r.plan.blows)
		away := make([]bool, r.plan.servers) // servers that have been down
		for ; len(left) > 0; rt.Sleep(watchEvery) {
			for i, host := range memoryServers(r.plan.servers) {
				if r.down[host] {
					away[i] = true
					continue
				}
				stage := r.stage(i)
				left = slices.DeleteFunc(left, func(x tableBlow) bool {
					if !away[i] || stage < x.stage {
						return false
					}
					r.env.rack.At(rt.Now().Add(x.late), func() { r.deal(x) })
					return true
				})
			}
		}
	})
}

func (r *tableRun) deal(x tableBlow) {
	switch {
	case x.client < 0:
		r.inject(x.trialFault)
	case !r.gone[x.client]:
		r.kill(r.plan.deaths[x.client])
	}
}

// stage returns the stage of server i by the words that masters write into its memory.
func (r *tableRun) stage(i int) returnStage {
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(r.memory[i][at:]) }
	switch {
	case word(layout.ViewWord) != 0:
		return isMember
	case word(0) != 0:
		return isFilled
	case word(layout.MasterWord) != 0:
		return isClaimed
	}
	return isUp
}

// expendable reports whether the store survives the crash of the server victim now, because the
// other members that are up have a replica of all data.
func (r *tableRun) expendable(victim string) bool {
	last, rest := r.latest(), layout.View(0)
	for i, host := range memoryServers(r.plan.servers) {
		if v := r.viewAt(i); host != victim && !r.down[host] && last.Has(i) && v.Epoch() == last.Epoch() {
			rest = rest.With(i)
		}
	}
	return r.super.Shape.Survives(rest)
}

func (r *tableRun) viewAt(i int) layout.View {
	return layout.View(binary.LittleEndian.Uint64(r.memory[i][layout.ViewWord:]))
}

// latest returns the latest view that any server has in its memory.
func (r *tableRun) latest() (last layout.View) {
	for i := range r.plan.servers {
		if v := r.viewAt(i); v.Newer(last) {
			last = v
		}
	}
	return last
}

// whole returns an error unless all servers are members of the store.
func (r *tableRun) whole() error {
	if last := r.latest(); last.Members() != r.plan.servers {
		return fmt.Errorf("%d of %d memory servers are members in the end", last.Members(), r.plan.servers)
	}
	return nil
}
