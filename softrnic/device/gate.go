package device

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// gate lets one goroutine of an application wait until another one opens the gate; see verbs.Gate.
type gate struct {
	clock *real.Clock
	open  chan struct{} // capacity 1
}

func (r *Runtime) NewGate() verbs.Gate { return &gate{clock: r.clock, open: make(chan struct{}, 1)} }

func (g *gate) Wait(deadline clock.Time) error {
	select {
	case <-g.open:
		return nil
	default:
	}
	if deadline == clock.Never {
		<-g.open
		return nil
	}
	t := time.NewTimer(g.clock.Until(deadline))
	defer t.Stop()
	select {
	case <-g.open:
		return nil
	case <-t.C:
		return &verbs.OpError{Op: "wait at gate", Err: verbs.ErrTimeout}
	}
}

func (g *gate) Open() {
	select {
	case g.open <- struct{}{}:
	default:
	}
}
