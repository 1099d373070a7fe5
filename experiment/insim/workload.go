package insim

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// workload is what the loads of all stores have in common: a rack, the workload of its clients, and
// the operations that the clients have counted.
type workload struct {
	rack  *simrack.Rack
	cfg   kv.RunConfig
	total kv.Result
	// history has the operations of all clients; nil means that they are not recorded.
	history *kv.History
	// sent has the bytes of bulk senders' WRITEs that ended while operations were counted; servers is how many there are.
	sent, servers int
}

// measure runs the simulation and returns the result. All clients begin to work at the time warm.
// The bytes of the switch are counted in the same time as the operations.
func (w *workload) measure(ctx context.Context, warm clock.Time) (experiment.StoreResult, error) {
	var bytes uint64
	count := func() { bytes = switchBytes(w.rack) - bytes }
	from := warm.Add(w.cfg.Warmup)
	w.rack.At(from, count)
	w.rack.At(from.Add(w.cfg.Duration), count)
	if err := run(ctx, w.rack); err != nil {
		return experiment.StoreResult{}, err
	}
	out := experiment.StoreResult{Result: w.total}
	if w.history != nil {
		out.Checked, out.Bulk = w.history.Len(), w.bulkShare(w.servers)
		if err := w.history.Check(kv.MostStates); err != nil {
			out.Unexplained = err.Error()
		}
	}
	out.Span = w.cfg.Duration
	if n := out.Total(); n > 0 {
		out.BytesPerOp = float64(bytes) / float64(n)
	}
	return out, nil
}

// prepare makes client id ready to work. First the client loads its part of the keys, which must
// end before the time loaded. Then client 0 reads all keys, as if it had worked for a while, and
// becomes *first. At the time warm the other clients learn from *first where the keys are.
func prepare[C interface {
	kv.Store
	Learn(C)
}](w *workload, c C, first *C, rt verbs.Runtime, id int, loaded, warm clock.Time) error {
	load := w.cfg
	load.Client, load.Patience = id, time.Second // long, because all clients connect at once
	if _, err := kv.Load(c, rt, load); err != nil {
		return err
	}
	if err := waitUntil(loaded, rt, id, "loaded"); err != nil {
		return err
	}
	if id == 0 {
		for key := range load.Keys {
			if _, err := c.Get(key, nil, warm); err != nil {
				return err
			}
		}
		*first = c
	}
	err := waitUntil(warm, rt, id, "warm")
	if err == nil && id != 0 {
		c.Learn(*first)
	}
	return err
}

// waitUntil waits until the time t. If t has passed already, it returns an error: client id was not
// ready in time. The text `ready` names in that error what the client should have been.
func waitUntil(t clock.Time, rt verbs.Runtime, id int, ready string) error {
	if rt.Now() >= t {
		return fmt.Errorf("client %d was %s only at %v, later than %v", id, ready, rt.Now(), t)
	}
	rt.Sleep(t.Sub(rt.Now()))
	return nil
}

// workFrom waits until the time warm and then calls work. It returns an error if the client is not
// ready by then.
func (w *workload) workFrom(warm clock.Time, s kv.Store, rt verbs.Runtime, id int) error {
	if err := waitUntil(warm, rt, id, "warm"); err != nil {
		return err
	}
	return w.work(s, rt, id)
}

// work executes the workload as client id, and adds up its operations.
func (w *workload) work(s kv.Store, rt verbs.Runtime, id int) error {
	cfg := w.cfg
	cfg.Client = id
	if w.history != nil {
		s = kv.Record(s, w.history, id, rt.Now)
	}
	res, err := kv.Run(s, rt, cfg, nil)
	if err == nil {
		w.total.Merge(res)
	}
	return err
}
