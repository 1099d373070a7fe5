package cli

import (
	"context"
	"errors"

	"github.com/rdmalab/rdmalab/experiment"
)

// Scene is a load of the simulator alone.
func (*rackPlatform) Scene(context.Context, experiment.Scene) (experiment.SceneResult, error) {
	return experiment.SceneResult{}, errors.ErrUnsupported
}

// Congestion is a load of the simulator alone.
func (*rackPlatform) Congestion(context.Context, experiment.Congestion) (experiment.CongestionResult, error) {
	return experiment.CongestionResult{}, errors.ErrUnsupported
}
