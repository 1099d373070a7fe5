package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/costs"
)

// Default times of a run on a rack in slow motion, by the rack's clock. The warm-up is so long that
// most clients know where most keys are.
const (
	slowWarmup   = 5 * time.Millisecond
	slowDuration = 5 * time.Millisecond
)

// parseRack reads a rack file, and checks that its cost model exists.
func parseRack(name string, data []byte) (*rackfile.Rack, error) {
	return rackParser(rackfile.ParseFile).rack(name, data)
}

// rackParser reads a rack file within the bounds of machines, or of virtual time.
type rackParser func(name string, data []byte) (*rackfile.Rack, error)

func (parse rackParser) rack(name string, data []byte) (*rackfile.Rack, error) {
	r, err := parse(name, data)
	if err != nil || r.Cost == "" {
		return r, err
	}
	if _, err := costs.Builtin(r.Cost); err != nil {
		return nil, fmt.Errorf("%s: cost: %w", name, err)
	}
	return r, nil
}

// slowMotion describes that a rack is in slow motion; "" means that it is not.
func slowMotion(r *rackfile.Rack) string {
	if r.Slow == 0 {
		return ""
	}
	return fmt.Sprintf("slow motion: the clock of rack %q is %d times slower than real time, and its NICs, links and switch are those of cost model %s", r.Name, r.Slow, r.Cost)
}

// tellSlowMotion prints on standard error, before a measurement, that times and rates are those of the
// rack's slow clock, if it has one.
func tellSlowMotion(cmd *cobra.Command, quiet bool) error {
	r, _, err := rackOf(cmd)
	if err == nil && r.Slow > 0 && !quiet {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s; times below are by that clock, and rates in real time are %d times lower\n", slowMotion(r), r.Slow)
	}
	return err
}

// writeReal prints a rate and a time of the rack's clock in real time, if the rack is in slow motion.
func writeReal(w io.Writer, slow int, rate, seconds float64) {
	if slow > 0 {
		_, _ = fmt.Fprintf(w, "in slow motion by %d: %.1f operations a second of real time, in %.1f s; all other numbers are by the rack's clock\n", slow, rate/float64(slow), seconds*float64(slow))
	}
}
