package rackfile

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// RecoveryKind returns the value of Recovery; go-back-N if it is "" or unknown.
func (h *Host) RecoveryKind() selective.Kind {
	k, _ := selective.KindOf(h.Recovery)
	return k
}

// parseRecovery reads the name of a kind of recovery. The default is "".
func parseRecovery(s string) (string, error) {
	s, err := word(selective.Kinds()...)(s)
	if k, _ := selective.KindOf(s); k == selective.GoBackN {
		s = ""
	}
	return s, err
}

// unpaced says why a host cannot have both selective retransmission and congestion control: the timers of
// the first and the pace of the second do not know of each other. "" means that the host does not have both.
func (h *Host) unpaced() string {
	if h.RecoveryKind() == selective.GoBackN || h.Congestion == nil || h.Congestion.Algorithm == congestion.AlgorithmNone {
		return ""
	}
	return fmt.Sprintf("recovery: %s and congestion control do not go together: take recovery: go-back-n, or congestion with algorithm: none", h.Recovery)
}
