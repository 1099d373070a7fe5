package fusee_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Histories of clients on a few keys, which share two combined buckets, are linearizable while links
// lose, double and delay packets, and copies are torn. So are those of clients whose connections
// fail now and then, because packets are late by milliseconds.
func TestHistoriesUnderFaults(t *testing.T) {
	for seed := range uint64(12) {
		if err := history(t, seed+1, nil); err != nil {
			t.Errorf("seed %d: %v", seed+1, err)
		}
	}
}

func history(t *testing.T, seed uint64, wrap func(verbs.Context) verbs.Context) error {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s := stores[seed%uint64(len(stores))]
	g := newRig(t, s.servers, simrack.Options{Seed: seed, Datagrams: seed%3 == 0, Delay: time.Duration(200 + r.IntN(3000))})
	g.params = rdmacm.Params{PathMTU: verbs.MTU256, Timeout: 7}
	s.Groups = 1 + r.IntN(2)
	g.format(s.FormatConfig)
	var rules []fault.Rule
	if wrap == nil {
		rules = []fault.Rule{
			{Kind: fault.Loss, Probability: 0.02},
			{Kind: fault.Duplicate, Probability: 0.05, Delay: 300 * time.Microsecond},
			{Kind: fault.Delay, Probability: 0.05, Delay: 200 * time.Microsecond},
			{Kind: fault.Tear, Probability: 0.3, Delay: 20 * time.Microsecond},
		}
		if seed%4 == 3 {
			rules = append(rules, fault.Rule{Kind: fault.Reorder, Probability: 0.02, Delay: 8 * time.Millisecond})
			g.params.RetryCount = 1
		}
	}
	for _, h := range g.Hosts() {
		var its []fault.Rule
		for _, f := range rules {
			if f.Link = h.Spec.Name; f.Kind != fault.Tear || f.Link[0] == 'm' {
				its = append(its, f)
			}
		}
		h.SetFaults(its)
	}
	g.wrap = wrap
	log := kv.NewHistory()
	unknown := 0
	for id := range 2 + r.IntN(5) {
		own := rand.New(rand.NewPCG(seed, uint64(id)))
		g.client(fmt.Sprintf("cn%d", id%4), func(c *fusee.Client, rt verbs.Runtime) error {
			s := kv.Record(c, log, id, rt.Now)
			for range 40 {
				key := own.Uint64N(5)
				deadline := rt.Now().Add(2 * time.Second)
				var err error
				switch own.IntN(8) {
				case 0, 1, 2:
					_, err = s.Get(key, nil, deadline)
				case 3, 4:
					err = s.Put(key, s.Value(key, 16+own.IntN(400)), deadline)
				case 5, 6:
					err = s.Insert(key, s.Value(key, 16+own.IntN(400)), deadline)
				default:
					err = s.Delete(key, deadline)
				}
				switch {
				case errors.Is(err, kv.ErrTimeout):
					unknown++
				case err != nil && !errors.Is(err, kv.ErrNotFound) && !errors.Is(err, kv.ErrExists):
					if wrap != nil {
						return nil
					}
					return err
				}
			}
			if wrap != nil {
				return nil
			}
			return s.Err()
		})
	}
	if err := g.Run(); err != nil {
		return err
	}
	if testing.Verbose() {
		t.Logf("seed %d: %d operations, %d unknown", seed, log.Len(), unknown)
	}
	return log.Check(kv.MostStates)
}
