package scenario

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
)

// ms1 is cut off and goes out. Then ms0 and the metadata server lose their memory. With two servers,
// nothing is left that knows of the changes since, and the history ends. With a third server,
// a part of the store counts on, and every answer is judged.
func TestOnlyATotalLossIsNotJudged(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 3} {
		for seed := range uint64(verbstest.Tries(10, 3)) {
			seed++
			total := false
			s := Scenario{Name: "clover", run: func(e *env) error {
				e.replicas = 2
				p := new(storePlan).draw(e)
				p.servers, p.rules, p.links, p.loses, p.lease = servers, nil, "none", 0, 20*time.Millisecond
				p.keys, p.clients, p.rounds, p.pace = 8, 4, 100, 4*time.Millisecond
				p.sizes, p.shares, p.region = []int{40}, [layout.Classes]int{60, 40}, 48<<10
				p.storeFaultAt = storeFaultAt{what: storeLinkCut, victim: "ms1", after: 40, down: 400 * time.Millisecond}
				p.then = []storeFaultAt{
					{what: storeMemoryCrash, victim: "ms0", later: 150 * time.Millisecond, down: 20 * time.Millisecond},
					{what: storeMetaCrash, victim: "md0", later: time.Millisecond, down: 20 * time.Millisecond},
				}
				r := &storeRun{env: e, plan: p}
				err := r.run()
				total = r.totalLoss
				return err
			}}
			if r := s.Run(seed, Options{}); r.Err != nil || total != (servers == 2) {
				t.Errorf("%d servers, seed %d: a total loss: %v; %.600v", servers, seed, total, r.Err)
			}
		}
	}
}
