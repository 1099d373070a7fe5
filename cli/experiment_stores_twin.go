package cli

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// twinSettle is how long senders of the twin send before clients work: until each has sent a message.
const twinSettle = time.Millisecond

// inSim runs the clients in the simulator, on a rack of the same file with the rack's cost model.
func (b *besideBulk) inSim(model *cost.Model) (out experiment.StoreResult, err error) {
	s, err := b.flags().newSimRun(b.on.cmd, b.desc, b.on.rack, model)
	if err != nil {
		return out, err
	}
	defer s.rack.Close()
	s.hosts = s.hosts[:b.clients]
	bulk := insim.BulkFlows{Rack: s.rack, From: b.from, To: b.to}
	bulk.Lend()
	s.rack.Host(s.hosts[0]).Go("run", false, func(ctx verbs.Context) {
		var err error
		out, err = b.twin(s, &bulk, ctx.Runtime())
		s.rack.Stop(err)
	})
	if err = s.rack.Run(); errors.Is(err, simnet.ErrCancelled) {
		err = s.ended.Err()
	}
	return out, err
}

// twin starts the store, and runs its clients when the senders send.
func (b *besideBulk) twin(s *simRun, bulk *insim.BulkFlows, rt verbs.Runtime) (out experiment.StoreResult, err error) {
	call := s.call()
	if err := s.flags.startStore(call, true); err != nil {
		return out, err
	}
	s.flags.start = ""
	if err := s.ready(call); err != nil {
		return out, err
	}
	bulk.Start()
	rt.Sleep(twinSettle)
	first, began := bulk.Sent(), rt.Now()
	res, err := s.all(false)
	if err != nil {
		return out, err
	}
	out.Result = *res
	out.Bulk = b.share(bulk.Sent()-first, s.rack.Queues(0).Config().Rate, rt.Now().Sub(began))
	return out, nil
}
