// Package qpattr says which attributes a program must and may name when it modifies a queue pair, by
// transition and transport service. A kernel checks this before a driver sees the command (IBTA
// 11.2.5.2/attributes). The package is a table and one function. It knows no values: whether a port
// or a path MTU exists is for the caller, who has the NIC.
//
// The table has a line for each attribute. So it answers the question of a program's author: where
// does this attribute belong?
package qpattr

import (
	"math/bits"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Mask is a set of attributes. Its bits are those of enum ibv_qp_attr_mask.
type Mask uint32

// The attributes of a queue pair.
const (
	State Mask = 1 << iota
	CurrentState
	SQDNotify
	Access
	PKeyIndex
	Port
	QKey
	Dest
	PathMTU
	Timeout
	RetryCount
	RNRRetry
	RecvPSN
	MaxRdAtomic
	AltPath
	MinRNRTimer
	SendPSN
	MaxDestRdAtomic
	Migration
	Cap
	DestQPN
)

// All has all attributes that there are.
const All = DestQPN<<1 - 1

// names are the names in libibverbs, without the prefix IBV_QP_.
var names = [...]string{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT",
	"RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
}

// String returns the names of the attributes, in the order of their bits.
func (m Mask) String() string {
	var all []string
	for rest := m & All; rest != 0; rest &= rest - 1 {
		all = append(all, names[bits.TrailingZeros32(uint32(rest))])
	}
	if m&^All != 0 {
		all = append(all, "unknown ones")
	}
	return strings.Join(all, ", ")
}

// Check reports whether a queue pair of a service may change its state in this way with these
// attributes. If the state does not change, from and to are the same. An error says what is missing,
// or does not belong there; it wraps verbs.ErrState if there is no such transition, and otherwise
// verbs.ErrInvalid.
func Check(service verbs.QPType, from, to verbs.QPState, named Mask) error {
	const op = "modify QP"
	e := edge{from, to}
	if !e.legal() {
		return verbs.Errorf(op, verbs.ErrState, "no transition leads from %v to %v", from, to)
	}
	must, may := Of(service, from, to)
	if missing := must &^ named; missing != 0 {
		return verbs.Errorf(op, verbs.ErrInvalid, "%v from %v to %v needs %v, too", service, from, to, missing)
	}
	if extra := named &^ (must | may | State); extra != 0 {
		return verbs.Errorf(op, verbs.ErrInvalid, "%v from %v to %v takes no %v", service, from, to, extra)
	}
	return nil
}

// CheckRoCE is Check for a command of a program to a NIC on Ethernet, where a kernel refuses more. An
// alternate path needs an InfiniBand port. A path that changes in SQD may leave by another port, so
// the port counts as named, which UC cannot change. The error wraps verbs.ErrNotSupported for
// attributes that do not exist.
func CheckRoCE(service verbs.QPType, from, to verbs.QPState, named Mask) error {
	const op = "modify QP"
	if unknown := named &^ All; unknown != 0 {
		return verbs.Errorf(op, verbs.ErrNotSupported, "attributes %#x do not exist, or are not those of this NIC", uint32(unknown))
	}
	checked := named
	if named&Dest != 0 && (to != verbs.StateRTR || named&State == 0) {
		checked |= Port
	}
	if err := Check(service, from, to, checked); err != nil {
		return err
	}
	if named&AltPath != 0 {
		return verbs.Errorf(op, verbs.ErrInvalid, "RoCE has no alternate paths (ALT_PATH)")
	}
	return nil
}

// Of returns the attributes that a command must name, and those that it may name, for a transition.
// State is in neither: it is always allowed.
func Of(service verbs.QPType, from, to verbs.QPState) (must, may Mask) {
	for i := range table {
		l := &table[i]
		if of(l.must, service, edge{from, to}) {
			must |= l.attribute
		}
		if of(l.may, service, edge{from, to}) {
			may |= l.attribute
		}
	}
	return must, may
}
