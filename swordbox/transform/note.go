package transform

import (
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Note describes in a capture how the switch changed a packet. With it, a reader finds the packet
// on the other link:
//
//	CAS→WRITE conn 7 psn 12→4711 value 1, was 0
//	ACK→ATOMIC_ACK conn 7 psn 4711→12 msn 3, was 0
//
// A program formats a Note only if pipeline.Ctx.Observed returns true.
type Note struct {
	// From is the opcode of the received packet, To the opcode of the sent packet. If no packet was
	// received, From is To.
	From, To wire.Opcode
	// Conn is the number of the shared connection; 0 means the client's connection.
	Conn uint32
	// QPN is the server's queue pair of the client's connection from which the switch has moved the
	// request; 0 means that the switch has not moved one. It is not part of the text.
	QPN wire.QPN
	// PSN is the PSN of the received packet, NewPSN the PSN of the sent packet. If Made is true,
	// only NewPSN is valid.
	PSN, NewPSN wire.PSN
	// Made is true if the switch made the packet, and received none for it.
	Made bool
	// MSN is the MSN of a response; valid if Show has ShowMSN.
	MSN uint32
	// Show says which of MSN, Value and Prior are valid.
	Show Show
	// Value is the written value. Prior is the value of the word before the operation.
	Value, Prior uint64
	// Why is a text at the end of the note, like "retransmitted by the switch".
	Why string
}

// Show is a set of flags: the fields of a Note that are valid.
type Show uint8

const (
	ShowMSN Show = 1 << iota
	ShowValue
	ShowPrior
)

func (n Note) String() string {
	b := make([]byte, 0, 96)
	if n.Made {
		b = append(b, "made "...)
	}
	b = append(b, shortName(n.From)...)
	if n.To != n.From {
		b = append(append(b, "→"...), shortName(n.To)...)
	}
	if n.Conn == 0 {
		b = append(b, " own conn psn "...)
	} else {
		b = strconv.AppendUint(append(b, " conn "...), uint64(n.Conn), 10)
		b = append(b, " psn "...)
	}
	if !n.Made {
		b = strconv.AppendUint(b, uint64(n.PSN), 10)
		b = append(b, "→"...)
	}
	b = strconv.AppendUint(b, uint64(n.NewPSN), 10)
	if n.Show&ShowMSN != 0 {
		b = strconv.AppendUint(append(b, " msn "...), uint64(n.MSN), 10)
	}
	switch {
	case n.Show&ShowValue != 0:
		b = appendValue(append(b, " value "...), n.Value)
	case n.To == wire.RCWriteOnly && n.From.Is(wire.OpAtomic):
		b = append(b, " unchanged"...)
	}
	if n.Show&ShowPrior != 0 {
		b = appendValue(append(b, ", was "...), n.Prior)
	}
	if n.Why != "" {
		b = append(append(b, ", "...), n.Why...)
	}
	return string(b)
}

// appendValue appends the value of a word: a small number in decimal, another one in hexadecimal.
func appendValue(b []byte, v uint64) []byte {
	if v < 1<<20 {
		return strconv.AppendUint(b, v, 10)
	}
	return strconv.AppendUint(append(b, "0x"...), v, 16)
}

// shortNames are the usual names of the opcodes that the switch changes.
var shortNames = map[wire.Opcode]string{
	wire.RCCmpSwap: "CAS", wire.RCFetchAdd: "FAA", wire.RCWriteOnly: "WRITE", wire.RCReadRequest: "READ",
	wire.RCAck: "ACK", wire.RCAtomicAck: "ATOMIC_ACK", wire.RCReadResponseOnly: "READ_RESPONSE",
}

func shortName(o wire.Opcode) string {
	if s, ok := shortNames[o]; ok {
		return s
	}
	return o.String()
}
