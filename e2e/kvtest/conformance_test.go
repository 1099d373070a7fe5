package kvtest

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

func env(s kv.Store) Env {
	now := clock.Time(0)
	return Env{A: s, B: s, Now: func() clock.Time { now++; return now }, Largest: 4096, Exact: true}
}

func TestMapConforms(t *testing.T) {
	if err := Check(env(kv.NewMap(4096))); err != nil {
		t.Error(err)
	}
}

// broken is a store with a bug.
type broken struct {
	kv.Store
	get func(v []byte, err error) ([]byte, error)
	put func(err error) error
	n   int
}

func (b *broken) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	v, err := b.Store.Get(key, dst, deadline)
	if b.get == nil {
		return v, err
	}
	return b.get(v, err)
}

func (b *broken) Put(key uint64, v []byte, deadline clock.Time) error {
	if b.put == nil {
		return b.Store.Put(key, v, deadline)
	}
	if b.n++; b.n%7 == 0 {
		return b.put(nil)
	}
	return b.put(b.Store.Put(key, v, deadline))
}

func TestTheSuiteSeesBugs(t *testing.T) {
	for name, s := range map[string]*broken{
		"short values":    {get: func(v []byte, err error) ([]byte, error) { return v[:len(v)/2], err }},
		"empty for error": {get: func(v []byte, err error) ([]byte, error) { return v, nil }},
		"lost writes":     {put: func(err error) error { return err }},
		"wrong error": {put: func(err error) error {
			if err != nil {
				return errors.New("something")
			}
			return nil
		}},
	} {
		s.Store = kv.NewMap(4096)
		if err := Check(env(s)); err == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}
