package container

import (
	"context"
	"time"
)

// Quiet is how long an engine must show nothing of a rack whose controller died before the rack was
// up. Nothing can take back what the controller has asked for: the engine goes on with it, and a
// container may appear after all others were removed.
const Quiet = 2 * time.Second

// RemoveLate removes what Remove does, and what the engine still makes, until nothing has come for
// the time of quiet.
func (h *Hosts) RemoveLate(ctx context.Context, quiet time.Duration) error {
	for last := time.Now(); ; {
		found, err := h.Remove(ctx)
		switch {
		case err != nil:
			return err
		case found:
			last = time.Now()
		case time.Since(last) >= quiet:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(goneStep):
		}
	}
}
