package container

import (
	"context"
	"time"
)

// Quiet is how long RemoveLate waits for more containers of a rack whose controller died before the
// rack was up. The engine may still execute requests of the dead controller, so a container may
// appear after all others were removed.
const Quiet = 2 * time.Second

// RemoveLate calls Remove until no new container or network has appeared for the time quiet.
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
