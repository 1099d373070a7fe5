package switchd

import (
	"context"
	"fmt"
)

// maxWaitErrors is how many times in succession waiting for frames may fail before the loop ends.
const maxWaitErrors = 100

// loop runs rounds until ctx ends.
func (d *Daemon) loop(ctx context.Context) error {
	failed := 0
	for ctx.Err() == nil {
		d.runCommands()
		if d.traffic.round() {
			continue
		}
		err := d.ports.waiter.Wait(d.traffic.clk.Until(d.traffic.deadline()))
		if err == nil {
			failed = 0
			continue
		}
		// The usual cause is that a port was closed while the waiter used it. In the next round
		// Recv fails for this port.
		if failed++; failed > maxWaitErrors {
			return fmt.Errorf("switch: wait: %w", err)
		}
		if err := d.ports.renewWaiter(); err != nil {
			return fmt.Errorf("switch: wait: %w", err)
		}
	}
	return nil
}
