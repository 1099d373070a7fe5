package scenario

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Seeds that once found a defect find none any more.
func TestFUSEEKeptSeeds(t *testing.T) {
	t.Parallel()
	for seed, why := range map[uint64]string{
		55:         "operations that found no memory were recorded as if they might have happened, and no order was found in time",
		610:        "the same, with one key",
		585:        "the run ended while a second master was in the middle of a change",
		7700737:    "a master gave up the store after the third lost packet of a server without replicas",
		8400005173: "a client that began kept a number that was fenced, and reached no server under it",
		9930007927: "a master that was cut off from all servers removed those that answered later than the first one, while another master had taken charge of them",
		9104200114: "a client that began took an absent member that had lost its memory for the store's loss",
		9500004816: "a master that began ended because no server said in time who has its number",
		9500006842: "the same, with a standby and without the switch",
	} {
		if r := mustFind(t, "fusee").Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d (%s): %.3000v", seed, why, r.Err)
		}
	}
}

// buggyTable is a store with a bug in every third operation of a kind.
type buggyTable struct {
	kv.Store
	n      int
	stale  map[uint64][]byte
	skip   func(b *buggyTable, key uint64) error // in place of an INSERT
	forget bool                                  // PUTs that never happen
	deny   bool                                  // PUTs that happen and deny it
}

func (b *buggyTable) third() bool { b.n++; return b.n%3 == 0 }

func (b *buggyTable) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	v, err := b.Store.Get(key, dst, deadline)
	if err == nil && b.stale != nil {
		if b.n++; b.stale[key] != nil && b.n%2 == 0 {
			return b.stale[key], nil
		}
		b.stale[key] = append([]byte(nil), v...)
	}
	return v, err
}

func (b *buggyTable) Put(key uint64, value []byte, deadline clock.Time) error {
	if b.forget && b.third() {
		return nil
	}
	err := b.Store.Put(key, value, deadline)
	if err == nil && b.deny && b.third() {
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	return err
}

func (b *buggyTable) Insert(key uint64, value []byte, deadline clock.Time) error {
	if b.skip != nil && b.third() {
		return b.skip(b, key)
	}
	return b.Store.Insert(key, value, deadline)
}

// The histories find the bugs for which they exist; the published losing INSERT, which reports
// success, is one.
func TestPlantedTableBugsAreCaught(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(kv.Store) kv.Store{
		"stale reads":                    func(s kv.Store) kv.Store { return &buggyTable{Store: s, stale: map[uint64][]byte{}} },
		"writes that never happen":       func(s kv.Store) kv.Store { return &buggyTable{Store: s, forget: true} },
		"writes that happen and deny it": func(s kv.Store) kv.Store { return &buggyTable{Store: s, deny: true} },
		"INSERTs that lose and report success": func(s kv.Store) kv.Store {
			return &buggyTable{Store: s, skip: func(*buggyTable, uint64) error { return nil }}
		},
	} {
		caught := false
		for seed := uint64(1); seed <= 40 && !caught; seed++ {
			s := Scenario{Name: "fusee", run: func(e *env) error { return new(tablePlan).runWith(e, plant) }}
			caught = s.Run(seed, Options{}).Err != nil
		}
		if !caught {
			t.Errorf("%s: not caught with 40 seeds", name)
		}
	}
}
