package rackfile

import "github.com/rdmalab/rdmalab/softrnic/selective"

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
