package scenario

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Seeds that once failed succeed now.
func TestCloverSeedsThatFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		seed uint64
		why  string
	}{
		{"clover", 1109, "a node was appended when the loss of its memory had been worked on"},
		{"clover", 1392, "a key was opened with a node in memory that was lost"},
		{"clover", 7000032, "memory of a restarted server was taken for the store's after a check that was interrupted"},
		{"clover-shared", 7100247, "the end of a number that was never used ended the connections of a living client"},
		{"clover-shared", 7100252, "a client whose old connections were being ended got its new ones ended, again and again"},
		{"clover-steer-write", 1064, "the same"},
		{"clover-steer-write", 1834, "a tombstone was appended again, to the next incarnation of its key"},
		{"clover-steer-both", 1834, "the same"},
		{"clover-steer-both", 62000277, "a memory server lost its memory between a metadata server's look at it and the takeover"},
		{"clover-steer-shared", 8800004, "the metadata server fences twelve clients one after the other on a lossy link"},
	} {
		params := Params{}
		for _, a := range aliases {
			if a.name == c.name {
				params = a.params
			}
		}
		params.Mix = "sizes" // the only mix when the seeds were recorded
		s, err := mustFind(t, "clover").Vary(params)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Run(c.seed, Options{}); r.Err != nil {
			t.Errorf("%s, seed %d (%s): %v", c.name, c.seed, c.why, r.Err)
		}
	}
}

// In the history of this seed many operations on one key have no answer. A search that tries all
// their outcomes would not end; Check decides it in few states.
func TestAHistoryWithManyOpenOutcomesIsDecided(t *testing.T) {
	t.Parallel()
	s, err := mustFind(t, "clover").Vary(Params{Steer: "any", ShareQP: true})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Run(930000395, Options{}); r.Err != nil {
		t.Error(r.Err)
	}
}

// buggy is a store with a bug in every third operation of a kind.
type buggy struct {
	kv.Store
	n     int
	stale map[uint64][]byte
	get   func(b *buggy, key uint64, fresh []byte) []byte
	put   func(b *buggy, key uint64, value []byte, deadline clock.Time) error
	// insert and remove replace every third INSERT and DELETE, as put replaces PUT; nil: no bug.
	insert func(b *buggy, key uint64, value []byte, deadline clock.Time) error
	remove func(b *buggy, key uint64, deadline clock.Time) error
}

func (b *buggy) third() bool { b.n++; return b.n%3 == 0 }

func (b *buggy) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	v, err := b.Store.Get(key, dst, deadline)
	if err == nil && b.get != nil {
		v = b.get(b, key, v)
	}
	return v, err
}

func (b *buggy) Put(key uint64, value []byte, deadline clock.Time) error {
	if b.put != nil && b.third() {
		return b.put(b, key, value, deadline)
	}
	return b.Store.Put(key, value, deadline)
}

// Insert has the planted bug in every third call, if there is one.
func (b *buggy) Insert(key uint64, value []byte, deadline clock.Time) error {
	if b.insert != nil && b.third() {
		return b.insert(b, key, value, deadline)
	}
	return b.Store.Insert(key, value, deadline)
}

func (b *buggy) Delete(key uint64, deadline clock.Time) error {
	if b.remove != nil && b.third() {
		return b.remove(b, key, deadline)
	}
	return b.Store.Delete(key, deadline)
}

// storeBugs are bugs of a store that the checks must find, by name.
var storeBugs = map[string]func(kv.Store) kv.Store{
	"stale reads": func(s kv.Store) kv.Store {
		return &buggy{Store: s, stale: make(map[uint64][]byte), get: func(b *buggy, key uint64, fresh []byte) []byte {
			if old := b.stale[key]; old != nil && b.third() {
				return old
			}
			b.stale[key] = append([]byte(nil), fresh...)
			return fresh
		}}
	},
	"stale reads after each own PUT": func(s kv.Store) kv.Store {
		return &ownStale{Store: s, before: make(map[uint64][]byte)}
	},
	"writes that never happen": func(s kv.Store) kv.Store {
		return &buggy{Store: s, put: func(*buggy, uint64, []byte, clock.Time) error { return nil }}
	},
	"writes that are said to have failed": func(s kv.Store) kv.Store {
		return &buggy{Store: s, put: func(b *buggy, key uint64, value []byte, deadline clock.Time) error {
			if err := b.Store.Put(key, value, deadline); err != nil {
				return err
			}
			return kv.ErrNotFound
		}}
	},
	"values that come back": func(s kv.Store) kv.Store {
		return &buggy{Store: s, put: func(b *buggy, key uint64, value []byte, deadline clock.Time) error {
			old, missing := b.Store.Get(key, nil, deadline)
			err := b.Store.Put(key, value, deadline)
			if err == nil && missing == nil {
				_ = b.Store.Put(key, old, deadline)
			}
			return err
		}}
	},
	"inserts of keys that exist": func(s kv.Store) kv.Store {
		return &buggy{Store: s, insert: func(b *buggy, key uint64, value []byte, deadline clock.Time) error {
			if err := b.Store.Insert(key, value, deadline); !errors.Is(err, kv.ErrExists) {
				return err
			}
			return nil
		}}
	},
	"keys that are deleted and stay": func(s kv.Store) kv.Store {
		return &buggy{Store: s, remove: func(*buggy, uint64, clock.Time) error { return nil }}
	},
	"torn values": func(s kv.Store) kv.Store {
		return &buggy{Store: s, get: func(b *buggy, _ uint64, fresh []byte) []byte {
			if b.third() {
				fresh[len(fresh)-1] ^= 0x10
			}
			return fresh
		}}
	},
}

// ownStale is a store in which a GET after a PUT of the same client returns the value before.
type ownStale struct {
	kv.Store
	before map[uint64][]byte
}

func (o *ownStale) Put(key uint64, value []byte, deadline clock.Time) error {
	old, missing := o.Store.Get(key, nil, deadline)
	err := o.Store.Put(key, value, deadline)
	if delete(o.before, key); err == nil && missing == nil {
		o.before[key] = old
	}
	return err
}

func (o *ownStale) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if old := o.before[key]; old != nil {
		delete(o.before, key)
		return old, nil
	}
	return o.Store.Get(key, dst, deadline)
}

// The checks find each planted bug of a store.
func TestPlantedStoreBugsAreCaught(t *testing.T) {
	t.Parallel()
	for name, plant := range storeBugs {
		const seeds, least = 30, 5
		if caught := catch(mixNone, plant, seeds, least); caught < least {
			t.Errorf("%s: caught with %d of %d seeds", name, caught, seeds)
		}
	}
}

// The checks find them with each mix of keys, memory, links and faults.
func TestPlantedStoreBugsAreCaughtInEveryMix(t *testing.T) {
	for _, m := range storeMixes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for name, plant := range storeBugs {
				const seeds = 40
				if catch(m.name, plant, seeds, 1) == 0 {
					t.Errorf("%s: not caught with %d seeds", name, seeds)
				}
			}
		})
	}
}

// catch returns in how many of the seeds the checks find a bug; it stops at enough. A run that does
// not end within several times the events of a correct one is not counted: a bug is not caught by a
// hang.
func catch(mix string, plant func(kv.Store) kv.Store, seeds uint64, enough int) (caught int) {
	for seed := uint64(1); seed <= seeds && caught < enough; seed++ {
		s := Scenario{Name: "clover", run: func(e *env) error { return new(storePlan).runMixed(e, mix, plant) }}
		r := s.Run(seed, Options{events: 3_000_000})
		if stuck := new(simnet.StuckError); r.Err != nil && !errors.As(r.Err, &stuck) {
			caught++
		}
	}
	return caught
}
