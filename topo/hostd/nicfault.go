package hostd

import (
	"errors"
	"net/http"
	"slices"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// failNIC makes the NIC fail as hardware does, and returns the queue pairs that failed.
func (h *Host) failNIC(f NICFault) (NICFaultResult, error) {
	fail := map[string]func(wire.QPN) error{
		FaultQPError: h.dev.FailQP, FaultCQOverrun: h.dev.OverrunCQs, FaultStop: h.dev.FailQP, FaultUnplug: nil,
	}
	hit, known := fail[f.Kind]
	res := NICFaultResult{QPNs: []wire.QPN{}}
	switch {
	case !known:
		return res, control.Errorf(http.StatusBadRequest, "NIC fault %.40q: %swant %s, %s, %s or %s", f.Kind, nearest.Meant(f.Kind, []string{FaultQPError, FaultStop, FaultCQOverrun, FaultUnplug}), FaultQPError, FaultStop, FaultCQOverrun, FaultUnplug)
	case f.Kind == FaultUnplug && f.QPN != 0:
		return res, control.Errorf(http.StatusBadRequest, "%s hits the whole NIC; leave the queue pair out", f.Kind)
	case f.Kind == FaultUnplug:
		res.QPNs = h.victims(f.Kind)
		return res, h.setNIC(StateDown)
	case !h.nicUp():
		return res, control.Errorf(http.StatusConflict, "the NIC of %s is down; `rdmalab restart %s --nic` brings it back", h.self.Name, h.self.Name)
	case f.QPN != 0 && f.Kind == FaultStop && !slices.Contains(h.victims(f.Kind), f.QPN):
		return res, control.Errorf(http.StatusConflict, "queue pair %#x executes no program; `rdmalab status -o json` lists those with a ring", uint32(f.QPN))
	case f.QPN != 0:
		if err := hit(f.QPN); err != nil {
			return res, control.Errorf(http.StatusConflict, "%v; `rdmalab status` lists the queue pairs", err)
		}
		res.QPNs = append(res.QPNs, f.QPN)
	default:
		victims := h.victims(f.Kind)
		for _, n := range victims {
			err := hit(n)
			if errors.Is(err, verbs.ErrState) || errors.Is(err, verbs.ErrInvalid) {
				err = nil // the queue pair has failed or was destroyed meanwhile
			}
			if err != nil {
				return res, control.Errorf(http.StatusConflict, "%v", err)
			}
		}
		res.QPNs = append(res.QPNs, victims...)
	}
	h.log.Info("NIC fault", "kind", f.Kind, "queue pairs", len(res.QPNs))
	return res, nil
}

// victims lists the queue pairs that a fault of this kind can hit: all except those in RESET or
// ERROR, and for FaultStop only those that execute a program.
func (h *Host) victims(kind string) []wire.QPN {
	out := []wire.QPN{}
	h.dev.With(func(e *engine.Engine) {
		rings := e.Listing().RingQPNs()
		for _, q := range e.Listing().QPAttrs() {
			can := kind != FaultStop || slices.Contains(rings, q.QPN)
			if can && q.State != verbs.StateReset && q.State != verbs.StateError {
				out = append(out, q.QPN)
			}
		}
	})
	return out
}
