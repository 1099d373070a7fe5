package cli

import (
	"context"
	"errors"

	"github.com/rdmalab/rdmalab/experiment"
)

// Congestion is a load of the simulator alone.
func (*rackPlatform) Congestion(context.Context, experiment.Congestion) (experiment.CongestionResult, error) {
	return experiment.CongestionResult{}, errors.ErrUnsupported
}
