package rack

import (
	"context"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// settleWait bounds how long settle waits for the switch to notice that a link has changed.
const settleWait = time.Second

// settle waits until the switch has noticed a change of a host's link, so that the change applies
// to the next frame. If the switch hangs or does not answer, settle does not wait.
func (r starter) settle(ctx context.Context, host string) {
	h, _, ok := r.Spec.Host(host)
	if !ok {
		return
	}
	l, err := nl.LinkByName(r.Paths.Netns(rackfile.SwitchName), h.Port)
	if err != nil {
		return
	}
	if hung, err := r.keep.hung(rackfile.SwitchName); err != nil || hung {
		return
	}
	_ = waitFor(settleWait, "the switch", func() (bool, error) { // an error means only that the switch notices the change later
		var s struct {
			Ports []struct {
				Host  string `json:"host"`
				State string `json:"state"`
			} `json:"ports"`
		}
		if err := answer(ctx, r.Control(rackfile.SwitchName), &s); err != nil {
			return true, nil
		}
		for _, p := range s.Ports {
			if p.Host == host {
				return (p.State == "up") == l.Carrier, nil
			}
		}
		return true, nil
	})
}
