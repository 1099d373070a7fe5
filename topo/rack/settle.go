package rack

import (
	"context"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
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
	if hung, err := r.keep.hung(r.Spec.LeafOf(h)); err != nil || hung {
		return
	}
	_ = waitFor(settleWait, "the switch", func() (bool, error) { // an error means only that the switch notices the change later
		var s struct {
			Ports []struct {
				Host  string `json:"host"`
				State string `json:"state"`
			} `json:"ports"`
		}
		if err := answer(ctx, r.Control(r.Spec.LeafOf(h)), &s); err != nil {
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

// trunksWait bounds how long the switches of a rack may take until they know that all trunks work.
const trunksWait = 10 * time.Second

// awaitTrunks waits until each switch of the rack knows that all trunks work, so that frames reach all
// hosts when the rack is up.
func (r starter) awaitTrunks(ctx context.Context) error {
	if r.Spec.Fabric == nil || slices.ContainsFunc(r.Spec.Faults, func(f fault.Rule) bool { _, trunk := r.Spec.TrunkNamed(f.Link); return trunk }) {
		return nil // with a fault from the beginning, a trunk may never work
	}
	if r.Spec.Machine != "" {
		return nil // the other machines may come up later
	}
	return each(r.Spec.SwitchNames(), func(name string) error {
		return waitFor(trunksWait, name+" to know all trunks", func() (bool, error) {
			var s struct {
				Trunks []struct {
					Up bool `json:"up"`
				} `json:"trunks"`
			}
			if err := answer(ctx, r.Control(name), &s); err != nil {
				return false, err
			}
			for _, c := range s.Trunks {
				if !c.Up {
					return false, nil
				}
			}
			return len(s.Trunks) > 0, nil
		})
	})
}
