package scenario

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// folder is the hardened machine with the tails of the published program, whose number is the
// remainder of the key.
type folder struct{ *cloversteer.Machine }

// Request replaces the key in the node by its remainder before the machine gets the request.
func (m folder) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	key, ok := layout.KeyOf(p.Payload)
	if !ok {
		return m.Machine.Request(c, s, r, p)
	}
	b := p.Payload[layout.HeaderLen:]
	binary.LittleEndian.PutUint64(b, key%rules.DefaultRegisters)
	defer binary.LittleEndian.PutUint64(b, key)
	return m.Machine.Request(c, s, r, p)
}

// Hole 46 is found when it is planted in the hardened machine. The scripts of the other holes find
// no damage then, because their keys have different tails.
func TestPlantedSharedTailIsCaught(t *testing.T) {
	t.Parallel()
	for _, o := range steerHoles() {
		if o.number == 31 {
			continue // this scenario restarts the switch, which the test's switch cannot do
		}
		e := newEnv(Scenario{}, 1, Options{})
		o.params, o.rack.Program = holeParams, steering(folder{cloversteer.New(cloversteer.Config{})})
		h := &holeRun{hole: &o, env: e, mode: recordedHardened}
		err := h.play()
		e.finish()
		if found := err != nil || len(h.damage) > 0; found != (o.number == 46) {
			t.Errorf("hole %d: %v %v", o.number, err, h.damage)
		}
	}
}

// Hole 32 is found when it is planted: a switch that sends a retransmitted append where its client
// named breaks a chain, under published rules as well.
func TestPlantedResentAppendIsCaught(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(steerHoles(), func(o hole) bool { return o.number == 32 })
	o := steerHoles()[i]
	o.params = holeParams
	type request struct {
		port int
		psn  wire.PSN
	}
	seen := map[request]bool{}
	e := newEnv(Scenario{}, 1, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if name != rackfile.SwitchName {
			return n
		}
		return &badSwitch{Node: n, in: func(port int, f *wire.Frame) (bool, bool) {
			if f.BTH.Opcode != wire.RCCmpSwap {
				return false, false
			}
			r := request{port, f.BTH.PSN}
			again := seen[r]
			seen[r] = true
			return false, again
		}}
	}})
	h := &holeRun{hole: &o, env: e, mode: recordedPublished}
	err := h.play()
	if e.finish(); err != nil || len(h.damage) == 0 {
		t.Errorf("%v, damage: %v", err, h.damage)
	}
}
