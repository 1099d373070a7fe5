package ucma

import (
	"cmp"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// options are the options of an identifier (rdma_cm_id).
type options struct {
	tos        uint8 // traffic class of the identifier's packets
	ackTimeout uint8 // code of the ACK timeout; 0 means the default
	reuse      bool  // other identifiers with this option may have the same address and port
	// only: the unspecified address means only the addresses of its family. The default is true for
	// IPv4 and false for IPv6; familyChosen means that the program has set the option.
	only, familyChosen bool
}

// defaultAckTimeout is the code of 134 ms. It suits a shared machine: see docs/explain/patience.md.
const defaultAckTimeout = 15

// timeout returns the code of the ACK timeout. It is at least 1, because 0 would mean no timeout.
func (o *options) timeout() uint8 { return cmp.Or(o.ackTimeout, defaultAckTimeout) }

// Options (RDMA_OPTION_ID_*) of the level of identifiers.
const (
	levelID          = 0
	optionTOS        = 0
	optionReuse      = 1
	optionOnly       = 2
	optionAckTimeout = 3
	maxAckTimeout    = 31
)

// setOption executes SetOption. b has the arguments and, behind them, the value of the option.
func (m *Manager) setOption(_ call, b []byte) (Result, error) {
	a, ok := decode[setOption](b)
	if !ok {
		return Result{}, unix.EINVAL
	}
	x, err := m.nic.find(a.ID)
	if err != nil {
		return Result{}, err
	}
	v := b[len(encode(a)):]
	if uint64(len(v)) < uint64(a.Len) {
		return Result{}, unix.EINVAL
	}
	v = v[:a.Len]
	o := &x.options
	switch {
	case a.Level != levelID:
		return Result{}, unix.EOPNOTSUPP
	case a.Name == optionTOS && len(v) == 1:
		o.tos = v[0]
	case a.Name == optionAckTimeout && len(v) == 1 && v[0] <= maxAckTimeout && (x.qpType == typeRC || x.qpType == typeXRCInitiator):
		o.ackTimeout = v[0]
	case a.Name == optionReuse && len(v) == 4 && (x.state == Fresh || x.state != Listening && flagOf(v)):
		o.reuse = flagOf(v)
	case a.Name == optionOnly && len(v) == 4 && (x.state == Fresh || x.state == Bound):
		o.only, o.familyChosen = flagOf(v), true
	default:
		return Result{}, unix.EINVAL
	}
	return Result{}, nil
}

// flagOf reports whether an option that is a C int is not 0.
func flagOf(v []byte) bool { return binary.NativeEndian.Uint32(v) != 0 }
