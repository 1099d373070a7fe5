package scenario

import (
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// folder is the hardened machine with the published program's registers: it takes a key for its
// remainder.
type folder struct{ *cloversteer.Machine }

// Request shows the machine another key than the node has.
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

// Hole 46 planted in the hardened machine is found; its other scenarios find nothing there, because
// their keys have tails of their own.
func TestPlantedSharedTailIsCaught(t *testing.T) {
	t.Parallel()
	for _, o := range steerHoles() {
		if o.number == 31 {
			continue // the switch is restarted: this one is not
		}
		e := newEnv(Scenario{}, 1, Options{})
		o.params, o.rack.Program = holeParams, steering(folder{cloversteer.New(cloversteer.Config{})})
		h := &holeRun{hole: &o, env: e, mode: recordedHardened, seen: make([]int, holeClients)}
		err := h.play()
		e.finish()
		if found := err != nil || len(h.damage) > 0; found != (o.number == 46) {
			t.Errorf("hole %d: %v %v", o.number, err, h.damage)
		}
	}
}
