package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// slowRack is a rack in slow motion for a measurement that the simulator makes with the same rack file. file is one that
// users can bring up.
type slowRack struct {
	on   *rackPlatform
	file string
}

// ready makes the switch forward only, and returns the cost model of the rack. It fails for a rack at full speed, and for
// one with stores.
func (s slowRack) ready(ctx context.Context) (*cost.Model, error) {
	p := s.on
	if p.rack.Slow == 0 {
		return nil, fmt.Errorf("rack %s is not in slow motion, and would measure the speed of this machine: bring up %s", p.rack.Name, s.file)
	}
	if err := errors.Join(p.noStores(), p.box.set(ctx, &experiment.Switch{}, nil, "")); err != nil {
		return nil, err
	}
	return costs.Builtin(p.rack.Cost)
}

const (
	// sendersSpan is how long flows send by default, sendersSample how far samples of the switch's counters are
	// apart: both in real time.
	sendersSpan, sendersSample = 40 * time.Second, 20 * time.Millisecond
	// sendersSetup is how long it may take until all flows send, and sendersSpare how many times longer than it is
	// measured their run lasts.
	sendersSetup, sendersSpare = 30 * time.Second, 8
	// senderMTU is the path MTU of their connections.
	senderMTU = 1024
)

// rackFlow is a connection by which a host WRITEs to another one, or READs, all the time.
type rackFlow struct {
	from, to string
	requests insim.Requests
}

// test is the benchmark that runs the flow for a time.
func (f *rackFlow) test(span time.Duration) *perf.Config {
	cfg := &perf.Config{
		Test: perf.WriteBW, Size: f.requests.Bytes, Depth: f.requests.Depth, To: f.to, OneWord: perf.OneWord{Span: span},
		Path: perf.Path{MTU: senderMTU, Timeout: insim.SenderTimeout},
	}
	if f.requests.Read {
		cfg.Test, cfg.RdAtomic = perf.ReadBW, f.requests.Depth
	}
	return cfg
}

// rackFlows are flows of a rack in slow motion, observed for the time span by the rack's clock.
type rackFlows struct {
	on    *rackPlatform
	list  []rackFlow
	span  time.Duration
	ended chan error // has a value if the flows have ended by themselves
}

// run runs the flows while f observes them.
func (r *rackFlows) run(ctx context.Context, f func(ctx context.Context) error) error {
	if len(r.list) == 0 {
		err := f(ctx)
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.ended = make(chan error, 1)
	hosts := make([]string, len(r.list))
	for i := range r.list {
		hosts[i] = r.list[i].from
	}
	go func() {
		r.ended <- atOnce(hosts, func(i int, host string) error {
			_, err := r.on.perf(ctx, host, r.list[i].test(sendersSpare*r.span))
			return withNode(err, host)
		})
	}()
	err := f(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	stop()
	if err == nil {
		late := <-r.ended
		_ = late // of an end in the middle there is nothing to tell
	}
	return err
}

// going returns an error if the flows have ended: theirs, or one that says when.
func (r *rackFlows) going(when string) error {
	select {
	case err := <-r.ended:
		return cmp.Or(err, errors.New("the senders have stopped "+when))
	default:
		return nil
	}
}

// allSend waits until sent reports that all flows have sent something, and returns when that was.
func (r *rackFlows) allSend(ctx context.Context, sent func() (bool, error)) (began time.Time, err error) {
	for limit := time.Now().Add(sendersSetup); time.Now().Before(limit); {
		if all, err := sent(); all || err != nil {
			return time.Now(), err
		}
		if err := r.going("at once"); err != nil {
			return began, err
		}
		if err := pause(ctx, sendersSample); err != nil {
			return began, err
		}
	}
	return began, fmt.Errorf("after %v not all hosts send: this machine is too busy for this factor of slow motion", sendersSetup)
}
