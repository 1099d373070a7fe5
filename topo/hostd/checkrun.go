package hostd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of a check.
const (
	maxCheckClients = 64
	maxCheckRounds  = 10_000
	checkPatience   = 10 * time.Second
	decidePatience  = 30 * time.Second
)

// checkRun is a history in the making, of the store or of the tree.
type checkRun struct {
	ctx context.Context
	rt  verbs.Runtime

	mu            sync.Mutex // guards what follows, and the history
	history       *kv.History
	unknown, lost int
	err           error
}

func newCheckRun(ctx context.Context, v verbs.Context) *checkRun {
	c := &checkRun{ctx: ctx, rt: v.Runtime(), history: kv.NewHistory()}
	c.history.Guard = &c.mu
	return c
}

// run lets so many clients make the history, side by side, and decides about it. The verdict counts what they did
// even where the error says that there is none about the order.
func (c *checkRun) run(clients int, client func(id int) error) (out StoreVerdict, err error) {
	for i := range clients {
		c.rt.Go(fmt.Sprintf("check-%d", i), func() {
			err := client(i)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = errors.Join(c.err, err)
		})
	}
	c.rt.Wait()
	out.Operations, out.Unknown, out.Lost = c.history.Len(), c.unknown, c.lost
	if c.err != nil {
		return out, c.err
	}
	if err := ended(c.ctx, "check"); err != nil { // the clients were killed: nobody is left to wait for a verdict
		return out, err
	}
	if err := c.history.Check(decidePatience); err != nil {
		out.Why = err.Error()
	}
	out.Linearizable = out.Why == ""
	return out, nil
}

// ended says that a job was ended before it had done all that it was asked for; nil: it was not.
func ended(ctx context.Context, job string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the %s was ended: %w", job, context.Cause(ctx))
}

// counted counts how an operation ended, and gives back what is wrong with it or with what it read.
func (c *checkRun) counted(s *kv.Recorded, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, kv.ErrTimeout):
		c.unknown++
	case errors.Is(err, kv.ErrLost):
		c.lost++
	}
	return errors.Join(err, s.Err())
}
