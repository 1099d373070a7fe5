package main

import (
	"iter"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// section is one table: the fates of one kind of packets or operations of one type of queue pair.
type section struct {
	title  string
	of     string // type of the queue pair
	states []string
	rows   []row
	fates  []string
	// never lists the impossible cells, with reasons. If several elements match a cell, the reason of
	// the first one is printed.
	never []never
	// may lists cells that need not be reached.
	may []never
}

// cells are the cells of the table, by row, state and fate, each with its row.
func (s *section) cells() iter.Seq2[cell, row] {
	return func(yield func(cell, row) bool) {
		for _, r := range s.rows {
			for _, state := range s.states {
				for _, fate := range s.fates {
					if !yield(cell{s.of, state, r.name, fate}, r) {
						return
					}
				}
			}
		}
	}
}

// row is an opcode or an operation.
type row struct {
	name  string
	flags wire.OpFlags
	heads wire.Headers
}

// never selects cells of a section by state, fate and row; nil selects all. why is the reason why
// no test can reach these cells or, in section.may, why none must.
type never struct {
	states []string // nil means all
	fates  []string // nil means all
	rows   func(r row) bool
	why    string
}

func (n *never) fits(state string, r row, fate string) bool {
	return (n.states == nil || slices.Contains(n.states, state)) && (n.fates == nil || slices.Contains(n.fates, fate)) && (n.rows == nil || n.rows(r))
}

// reason returns why a cell is impossible; "" if it is possible.
func (s *section) reason(state string, r row, fate string) string {
	if i := slices.IndexFunc(s.never, func(n never) bool { return n.fits(state, r, fate) }); i >= 0 {
		return s.never[i].why
	}
	return ""
}

// must reports whether a test has to reach a cell.
func (s *section) must(state string, r row, fate string) bool {
	return s.reason(state, r, fate) == "" && !slices.ContainsFunc(s.may, func(n never) bool { return n.fits(state, r, fate) })
}

func has(f wire.OpFlags) func(row) bool   { return func(r row) bool { return r.flags&f != 0 } }
func lacks(f wire.OpFlags) func(row) bool { return func(r row) bool { return r.flags&f == 0 } }
func not(f func(row) bool) func(row) bool { return func(r row) bool { return !f(r) } }
func oneOf(names ...string) func(row) bool {
	return func(r row) bool { return slices.Contains(names, r.name[strings.LastIndexByte(r.name, ' ')+1:]) }
}

func reserved(r row) bool { return r.name == "reserved" }

// needsReceive matches requests that need a receive if they are the first packet of a message.
func needsReceive(r row) bool {
	return r.flags&wire.OpSend != 0 && r.flags&(wire.OpFirst|wire.OpOnly) != 0 || r.flags&wire.OpWrite != 0 && r.flags&wire.OpImm != 0
}

// namesMemory matches requests that name memory of the responder.
func namesMemory(r row) bool { return r.heads&(wire.HasRETH|wire.HasAtomicETH) != 0 }

// hasOperands matches requests with the operands of an atomic, which have no payload.
func hasOperands(r row) bool { return r.heads&wire.HasAtomicETH != 0 }

// opcodes returns the rows for a transport service's requests or responses.
func opcodes(service wire.Opcode, want wire.OpFlags) (rows []row) {
	for i := range 1 << 8 {
		if op := wire.Opcode(i); op.Service() == service && op.Is(want) {
			info := op.Info()
			rows = append(rows, row{op.String(), info.Flags, info.Headers})
		}
	}
	return rows
}

// States of queue pairs, by type: rcStates are those of RC. In the states of deaf a queue pair
// takes no packets; in those of hears it does.
var (
	rcStates = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "ERR"}
	allState = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	deaf     = []string{"RESET", "INIT", "ERR"}
	hears    = []string{"RTR", "RTS", "SQD", "SQE"}
)

// onWire are the fates of packets that the links of tests decide. The fates in dropped are those of
// packets that the engine drops before a queue pair gets them. It drops a corrupt one, by its ICRC,
// before it looks at the state of the queue pair.
var onWire = []string{"lost", "duplicated", "delayed"}

var dropped = []string{"corrupt", "wrong peer", "P_Key"}

const (
	whyDeaf     = "the state takes no packets: all that are not corrupt have the fate \"state\""
	whyHears    = "the state takes packets"
	whyReserved = "refused for its opcode before anything else is looked at"
	whyKnown    = "the opcode is none of the reserved ones"
	whyRight    = "it needs no right of its own: a SEND has none, and the rest of a WRITE was let in with its beginning"
	whyDepth    = "it takes no responder resource"
	whyReceive  = "it needs no receive when it comes"
	whyNoSend   = "it goes into no receive"
	whyAtomic   = "only atomics must be aligned"
	whyNoKey    = "it invalidates no key"
	whyCodec    = "the codec refuses an atomic with payload"
	whyNoMemory = "it touches no memory that a key of its own guards"
)

// requestRules are the impossible cells that RC and UC have in common.
func requestRules() []never {
	return []never{
		{states: deaf, fates: minus(connFates, "state", "corrupt"), why: whyDeaf},
		{states: hears, fates: []string{"state"}, why: whyHears},
		{fates: []string{"reserved"}, rows: not(reserved), why: whyKnown},
		{fates: minus(connFates, "ahead", "behind", "reserved", "state", "lost", "duplicated", "delayed", "corrupt", "wrong peer", "P_Key"), rows: reserved, why: whyReserved},
		{fates: []string{"not enabled"}, rows: not(namesMemory), why: whyRight},
		{fates: []string{"too many"}, rows: lacks(wire.OpAnswered), why: whyDepth},
		{fates: []string{"not ready"}, rows: not(needsReceive), why: whyReceive},
		{fates: []string{"too long", "local"}, rows: lacks(wire.OpSend), why: whyNoSend},
		{fates: []string{"length"}, rows: hasOperands, why: whyCodec},
		{fates: []string{"access"}, rows: has(wire.OpSend), why: whyNoMemory},
		{fates: []string{"misaligned"}, rows: lacks(wire.OpAtomic), why: whyAtomic},
		{fates: []string{"invalidate"}, rows: lacks(wire.OpInv), why: whyNoKey},
	}
}

// connFates are the possible fates of a request of a connection.
var connFates = []string{
	"taken", "ahead", "behind", "gap", "ends another", "no beginning", "out of place", "reserved", "not enabled", "too many", "not ready",
	"length", "too long", "access", "misaligned", "invalidate", "local", "state", "lost", "duplicated", "delayed", "corrupt", "wrong peer", "P_Key",
}

func minus(list []string, drop ...string) (out []string) {
	for _, x := range list {
		if !slices.Contains(drop, x) {
			out = append(out, x)
		}
	}
	return out
}
