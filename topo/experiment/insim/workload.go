package insim

import (
	"context"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// workload is what the loads of all stores have in common: a rack, the workload of its clients, and
// the operations that the clients have counted.
type workload struct {
	rack  *simrack.Rack
	cfg   kv.RunConfig
	total kv.Result
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
	out.Span = w.cfg.Duration
	if n := out.Total(); n > 0 {
		out.BytesPerOp = float64(bytes) / float64(n)
	}
	return out, nil
}

// workFrom waits until the time warm and then calls work. It returns an error if the client is not
// ready by then.
func (w *workload) workFrom(warm clock.Time, s kv.Store, rt verbs.Runtime, id int) error {
	if rt.Now() >= warm {
		return fmt.Errorf("client %d was warm at %v, after %v", id, rt.Now(), warm)
	}
	rt.Sleep(warm.Sub(rt.Now()))
	return w.work(s, rt, id)
}

// work executes the workload as client id, and adds up its operations.
func (w *workload) work(s kv.Store, rt verbs.Runtime, id int) error {
	cfg := w.cfg
	cfg.Client = id
	res, err := kv.Run(s, rt, cfg, nil)
	if err == nil {
		w.total.Merge(res)
	}
	return err
}
