package nic

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Command is an operation that a program gives to a slot.
type Command struct {
	Op onerma.Op
	// Class is the class of service, 0 or 1; class 0 is preferred (see the package comment).
	Class uint8
	// Length is 1 to 4096 bytes; for a REKEY it is 16.
	Length int
	// Target is the address of the NIC that has the region Remote. Offset is an offset in this
	// region, in bytes.
	Target netip.Addr
	Remote RegionID
	Offset uint64
	// Key is the cipher of K_d, the key that is derived from the key of region Remote for this
	// process and this operation.
	Key *Cipher
	// Local and LocalOffset name the memory that a WRITE sends, or into which a READ puts the data.
	// The memory belongs to the NIC until the completion is polled. After a READ whose status is not
	// OK, its bytes are undefined. A REKEY has no local memory.
	Local       *Region
	LocalOffset uint64
	// NewKey is the new K_r of a REKEY.
	NewKey Key
	// Tag is a number of the program that the completion returns.
	Tag uint64
}

// Completion says how a command ended.
type Completion struct {
	Tag    uint64
	Slot   uint16
	Op     onerma.Op
	Status Status
	Length int
	// IssueDelay is the time from Issue until the command entered service. TotalDelay is the time
	// from Issue until it ended.
	IssueDelay, TotalDelay time.Duration
}

// same reports whether two completions are of the same command, with the same outcome.
func (c *Completion) same(o *Completion) bool {
	return c.Tag == o.Tag && c.Slot == o.Slot && c.Op == o.Op && c.Status == o.Status
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

// peer is the NIC at the other end of an operation.
type peer struct {
	addr [4]byte
	mac  wire.MAC
}

// slot holds one command in flight. generation distinguishes the commands that use the slot one
// after the other: it grows with each.
type slot struct {
	state      slotState
	generation uint32
	portal     *Portal
	cmd        Command
	to         peer
	issued     clock.Time
	entered    clock.Time
	// request is the initialisation vector of the request. prev is that of the operation's last
	// message: the request, and later the pull. ticket is the number that the pull carries.
	request    vector
	prev       vector
	ticket     uint32
	landed     pieces
	completion Completion
}

// pieces is a bit set with a bit for each unit (onerma.Unit, 64 bytes) of an operation whose bytes
// have been written to memory.
type pieces uint64

// maskOf returns the set of the units that n bytes fill, from offset `at` on.
func maskOf(at, n int) pieces {
	units := (n + onerma.Unit - 1) / onerma.Unit
	if units == 64 {
		return ^pieces(0)
	}
	return (1<<units - 1) << (at / onerma.Unit)
}

// complete reports whether all units of an operation of length bytes are in the set.
func (p pieces) complete(length int) bool { return p == maskOf(0, length) }
