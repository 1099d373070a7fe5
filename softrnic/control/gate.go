package control

import (
	"context"
	"sync/atomic"
)

// Gate makes a Server answer nothing for a while, as if its process had been stopped. Its zero value is
// open.
type Gate struct {
	until atomic.Pointer[<-chan struct{}]
}

// Shut makes requests wait until the channel is closed.
func (g *Gate) Shut(until <-chan struct{}) { g.until.Store(&until) }

// wait returns when the gate is open, or ctx has ended. g may be nil: then it is always open.
func (g *Gate) wait(ctx context.Context) {
	if g == nil {
		return
	}
	if until := g.until.Load(); until != nil {
		select {
		case <-*until:
		case <-ctx.Done():
		}
	}
}
