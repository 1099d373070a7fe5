package insim

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Clients of each store work beside bulk senders that fill their servers' ports: no operation fails, one order explains
// all answers, and operations take longer than without bulk senders.
func TestStoresBesideBulkSenders(t *testing.T) {
	model, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	half, err := kv.FindWorkload("50")
	if err != nil {
		t.Fatal(err)
	}
	p := &Sim{Cost: model}
	const clients, keys, warm, span = 8, 64, 5 * time.Millisecond, 10 * time.Millisecond
	for name, run := range map[string]func(b experiment.Bulk) (experiment.StoreResult, error){
		"Clover": func(b experiment.Bulk) (experiment.StoreResult, error) {
			return p.Clover(t.Context(), experiment.Clover{Clients: clients, Keys: keys, Writes: 50, Bulk: b, Warm: warm, Run: span})
		},
		"FUSEE": func(b experiment.Bulk) (experiment.StoreResult, error) {
			return p.Fusee(t.Context(), experiment.Fusee{Clients: clients, Keys: keys, Workload: half, Bulk: b, Warm: warm, Run: span})
		},
		"Sherman": func(b experiment.Bulk) (experiment.StoreResult, error) {
			return p.Sherman(t.Context(), experiment.Sherman{Clients: clients, Keys: keys, Workload: half, Bulk: b, Warm: warm, Run: span})
		},
	} {
		idle, err := run(experiment.Bulk{Control: experiment.BulkIdle})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, b := range []experiment.Bulk{
			{Control: experiment.BulkDCQCN}, {Control: experiment.BulkPFC}, {Control: experiment.BulkNone, Recovery: selective.IRN},
		} {
			out, err := run(b)
			if err != nil {
				t.Fatalf("%s, %+v: %v", name, b, err)
			}
			if out.Failed+out.Wrong+out.NotFound > 0 || out.Unexplained != "" || out.Checked == 0 {
				t.Errorf("%s, %+v: %d failed, %d wrong (%s); %d checked: %s", name, b, out.Failed, out.Wrong, out.FirstError, out.Checked, out.Unexplained)
			}
			if out.Bulk < 0.3 || out.Bulk > 1 || out.Total() == 0 || out.Total() > idle.Total()/2 {
				t.Errorf("%s, %+v: bulk senders have %.2f of the ports, the clients %d operations (%d without them)", name, b, out.Bulk, out.Total(), idle.Total())
			}
		}
		if idle.Bulk != 0 || idle.Checked == 0 || idle.Unexplained != "" {
			t.Errorf("%s, idle: %+v", name, idle.Unexplained)
		}
	}
}

// stale is a store that forgets each second PUT.
type stale struct {
	kv.Store
	n int
}

func (s *stale) Put(key uint64, value []byte, deadline clock.Time) error {
	if s.n++; s.n%2 == 0 {
		return nil
	}
	return s.Store.Put(key, value, deadline)
}

// A store that forgets what it has acknowledged has a history that no order explains, and the result says so.
func TestHistoryOfAStoreThatForgets(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		spec, err := simrack.PassiveRack("forgets", 1, "", "bulk", "")
		if err != nil {
			t.Fatal(err)
		}
		rack, err := simrack.New(spec, simrack.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		w := &workload{rack: rack, cfg: kv.RunConfig{
			Workload: kv.Workload{Read: 0.5, Update: 0.5}, Keys: 2, Value: kv.MinValue, Clients: 1, Ops: 50, Patience: time.Second, Verify: true,
		}}
		w.bulk(experiment.Bulk{Control: experiment.BulkIdle}, 1, 0)
		start(rack, "cn0", "client", func(_ *simrack.Host, ctx verbs.Context) error {
			m := kv.NewMap(kv.MinValue)
			for key := range w.cfg.Keys {
				if err := m.Insert(key, kv.MakeValue(key, key, kv.MinValue), clock.Never); err != nil {
					return err
				}
			}
			if forgets {
				return w.work(&stale{Store: m}, ctx.Runtime(), 0)
			}
			return w.work(m, ctx.Runtime(), 0)
		})
		w.cfg.Duration = time.Second // of the rates; the client ends after its operations
		out, err := w.measure(t.Context(), clock.Time(time.Second))
		rack.Close()
		if err != nil {
			t.Fatal(err)
		}
		if out.Checked < 50 || forgets != strings.Contains(out.Unexplained, "not linearizable") {
			t.Errorf("forgets %v: %d checked, %q", forgets, out.Checked, out.Unexplained)
		}
	}
}
