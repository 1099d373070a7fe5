package nic

import (
	"net/netip"
	"time"

	onerma "github.com/rdmalab/rdmalab/onerma/wire"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Command is what a program writes into a slot.
type Command struct {
	Op onerma.Op
	// Class is 0 or 1; see the package comment.
	Class uint8
	// Length is 1 to 4096 bytes; 16 of a REKEY.
	Length int
	// Target is the address of the NIC that has the region Remote. Offset is in bytes.
	Target netip.Addr
	Remote RegionID
	Offset uint64
	// Key has K_d.
	Key *Cipher
	// Local and LocalOffset are the memory to write from or read to. It belongs to the NIC until the
	// completion was polled. A REKEY has none.
	Local       *Region
	LocalOffset uint64
	// NewKey is what a REKEY makes K_r.
	NewKey Key
	// Tag is returned in the completion.
	Tag uint64
}

// Completion says how a command ended.
type Completion struct {
	Tag    uint64
	Slot   uint16
	Op     onerma.Op
	Status Status
	Length int
	// IssueDelay is the time from Issue until the command entered service, TotalDelay until it ended.
	IssueDelay, TotalDelay time.Duration
}

// slotState is the state of a command:
//
//	idle ── Issue ──▶ queued ── READ: window ──▶ waiting ── data ──▶ ended ── Poll ──▶ idle
//	                    │                           │ NACK, AUTHFAIL, time-out ──▶ ended
//	                    │ dispatch time-out ──▶ ended
//	                    └─ WRITE, REKEY: at once ──▶ offered ── pull ──▶ serving ── done ──▶ ended
//	                                                    │                   │ refusal under K_d, time-out ──▶ ended
//	                                                    │ NACK, AUTHFAIL, time-out ──▶ ended
type slotState uint8

const (
	idle slotState = iota
	queued
	waiting
	offered
	serving
	ended
)

// peer is the other NIC.
type peer struct {
	addr [4]byte
	mac  wire.MAC
}

// slot is one command in flight.
type slot struct {
	state      slotState
	generation uint32
	portal     *Portal
	cmd        Command
	to         peer
	issued     clock.Time
	entered    clock.Time
	// request is the vector of the request; prev is the same until the pull, and then that of the
	// pull. ticket is the pull's.
	request    vector
	prev       vector
	ticket     uint32
	landed     pieces
	completion Completion
}

// pieces says which units of an operation have landed, a bit each.
type pieces uint64

// maskOf returns the units of n bytes from at on.
func maskOf(at, n int) pieces {
	units := (n + onerma.Unit - 1) / onerma.Unit
	if units == 64 {
		return ^pieces(0)
	}
	return (1<<units - 1) << (at / onerma.Unit)
}

// complete reports whether all units of an operation have landed.
func (p pieces) complete(length int) bool { return p == maskOf(0, length) }
