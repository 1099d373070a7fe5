package rack

import (
	"context"
	"time"

	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// settleWait bounds how long the switch may take to notice that a link changed.
const settleWait = time.Second

// portStatus is the part of the switch's status that tells whether it uses a port.
type portStatus struct {
	Ports []struct {
		Host  string `json:"host"`
		State string `json:"state"`
	} `json:"ports"`
}

// settle waits until the switch has noticed the state of a host's link, so that the next frame
// finds what the command line said. A switch that does not answer notices nothing, and is not
// waited for.
func (r starter) settle(ctx context.Context, host string) {
	h, _, ok := r.Spec.Host(host)
	if !ok {
		return
	}
	l, err := nl.LinkByName(r.Paths.Netns(spec.SwitchName), h.Port)
	if err != nil {
		return
	}
	if hung, err := r.keep.hung(spec.SwitchName); err != nil || hung {
		return
	}
	_ = waitFor(settleWait, "the switch", func() (bool, error) { // what it does not notice now, it will
		var s portStatus
		if err := answer(ctx, r.Control(spec.SwitchName), &s); err != nil {
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
