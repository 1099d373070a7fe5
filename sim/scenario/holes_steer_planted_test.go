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
		h := &holeRun{hole: &o, env: e, mode: recordedHardened, seen: make([]int, holeClients)}
		err := h.play()
		e.finish()
		if found := err != nil || len(h.damage) > 0; found != (o.number == 46) {
			t.Errorf("hole %d: %v %v", o.number, err, h.damage)
		}
	}
}
