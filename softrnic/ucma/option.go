package ucma

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// options are the options of an identifier.
type options struct {
	tos        uint8
	ackTimeout uint8 // code; 0 means the default
	reuse      bool  // other identifiers with this option may have the same port
	only       bool  // a listener at the unspecified IPv6 address accepts no IPv4 requests
}

// defaultAckTimeout is the code of 134 ms. It suits a shared machine: see docs/explain/patience.md.
const defaultAckTimeout = 15

// timeout returns the code of the ACK timeout, at least 1.
func (o *options) timeout() uint8 {
	if o.ackTimeout == 0 {
		return defaultAckTimeout
	}
	return o.ackTimeout
}

// Options (RDMA_OPTION_ID_*) of the level of identifiers.
const (
	levelID          = 0
	optionTOS        = 0
	optionReuse      = 1
	optionOnly       = 2
	optionAckTimeout = 3
	maxAckTimeout    = 31
)

// setOption sets an option. The value follows the arguments.
func (m *Manager) setOption(_ call, b []byte) (Result, error) {
	a, ok := decode[setOption](b)
	if !ok {
		return Result{}, unix.EINVAL
	}
	x, err := m.find(a.ID)
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
	case a.Name == optionAckTimeout && len(v) == 1 && v[0] <= maxAckTimeout:
		o.ackTimeout = v[0]
	case a.Name == optionReuse && len(v) == 4 && x.state == Fresh:
		o.reuse = binary.NativeEndian.Uint32(v) != 0
	case a.Name == optionOnly && len(v) == 4 && x.state == Fresh:
		o.only = binary.NativeEndian.Uint32(v) != 0
	default:
		return Result{}, unix.EINVAL
	}
	return Result{}, nil
}
