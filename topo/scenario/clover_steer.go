package scenario

import (
	"fmt"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
)

// runCloverSteer is runClover with a switch that steers.
func runCloverSteer(e *env) error { return runCloverSteered(e, nil) }

// runCloverSteered changes the plan for tests; nil: leaves it.
func runCloverSteered(e *env, change func(*storePlan)) error {
	p := drawStore(e)
	d := e.draw
	p.steer = one(d, "write", "read", "both", "both")
	p.box = steerBox(p.steer)
	p.rack.Datagrams = !d.chance(0.2) // without, the switch must learn connections from their packets
	if d.chance(0.5) {
		p.keys = d.between(1, 3) // so that there is something to steer
	}
	if change != nil {
		change(p)
	}
	r := &storeRun{env: e, plan: p}
	err := r.run()
	r.noteSteering()
	return err
}

// steerBox is the switch section of a rack file.
func steerBox(what string) string {
	s := "switch:\n  program: swordbox\n  rules:\n"
	for _, ms := range []string{"ms0", "ms1"} {
		s += fmt.Sprintf("    - {server: %s, action: steer, steer: %s}\n", ms, what)
	}
	return s
}

// noteSteering says what the switch did since its start.
func (r *storeRun) noteSteering() {
	if r.env.rack == nil {
		return
	}
	box, ok := r.env.rack.Program().(*serialize.Program)
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
