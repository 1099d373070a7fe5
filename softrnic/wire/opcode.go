package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
)

// Opcode is the BTH opcode: the transport service in the top three bits, the operation in the low
// five (IBTA 9.2).
type Opcode uint8

// Transport services, as the top three bits of an opcode.
const (
	ServiceRC  Opcode = 0x00
	ServiceUC  Opcode = 0x20
	ServiceRD  Opcode = 0x40 // reserved in RoCEv2; not decoded
	ServiceUD  Opcode = 0x60
	ServiceCNP Opcode = 0x80
	ServiceXRC Opcode = 0xa0 // extended reliable connections: RC whose requests name a shared receive queue
)

// manufacturer is the first opcode that is left to manufacturers (IBTA 9.2/manufacturer). Opcodes
// from it to 0xdf are treated as operations of reliable connections.
const manufacturer Opcode = 0xc0

// Opcodes of the reliable connection service.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImm       Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAck                Opcode = 0x11
	RCAtomicAck          Opcode = 0x12
	RCCmpSwap            Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
	// RCFlush and RCAtomicWrite are defined by the memory placement extensions. The response is
	// RCReadResponseOnly without payload.
	RCFlush       Opcode = 0x1c
	RCAtomicWrite Opcode = 0x1d
)

// Opcodes of masked atomics on reliable connections. Manufacturers have not published their
// opcodes. These are the opcodes of the atomics without masks, moved to the range of manufacturers.
// The response is RCAtomicAck.
const (
	RCMaskedCmpSwap  = manufacturer | RCCmpSwap
	RCMaskedFetchAdd = manufacturer | RCFetchAdd
)

// Opcodes of the unreliable connection service.
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2a
	UCWriteOnlyImm Opcode = 0x2b
)

// Opcodes of the unreliable datagram service, and congestion notification (A17.9.3).
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
	CNP           Opcode = 0x81
)

// ErrOpcode means that a text names no opcode.
var ErrOpcode = errors.New("not an opcode like RC_WRITE_LAST")

// serviceMask selects the transport service of an opcode. The other bits select the operation.
const serviceMask Opcode = 0xe0

// unknownPrefix begins the name of an opcode that is not in the table; two hex digits follow.
const unknownPrefix = "OPCODE_0x"

// Info returns the opcode's entry in the table. It is never nil and must not be changed.
func (o Opcode) Info() *OpInfo { return &opTable[o] }

// Known reports whether the opcode is in the table. Others are parsed as a BTH with opaque payload.
func (o Opcode) Known() bool { return opTable[o].Name != "" }

// Is reports whether the opcode has any of the flags.
func (o Opcode) Is(flags OpFlags) bool { return opTable[o].Flags&flags != 0 }

// Has reports whether the opcode has any of the extended headers.
func (o Opcode) Has(h Headers) bool { return opTable[o].Headers&h != 0 }

// Service returns the top three bits of the opcode: the transport service. For a manufacturer's
// operation on reliable connections it returns ServiceRC.
func (o Opcode) Service() Opcode {
	if s := o & serviceMask; s != manufacturer {
		return s
	}
	return ServiceRC
}

// Plain returns the opcode of reliable connections for the same operation as that of XRC; others it
// returns as they are.
func (o Opcode) Plain() Opcode {
	if o&serviceMask == ServiceXRC {
		return o &^ ServiceXRC
	}
	return o
}

// Reliable reports whether the opcode is one of reliable connections, extended or not.
func (o Opcode) Reliable() bool { s := o.Service(); return s == ServiceRC || s == ServiceXRC }

// String returns the name of the opcode like "RC_WRITE_LAST", or "OPCODE_0x15".
func (o Opcode) String() string {
	if name := opTable[o].Name; name != "" {
		return name
	}
	return fmt.Sprintf("%s%02x", unknownPrefix, uint8(o))
}

var opByName = func() map[string]Opcode {
	m := make(map[string]Opcode)
	for i := range opTable {
		if name := opTable[i].Name; name != "" {
			m[name] = Opcode(i)
		}
	}
	return m
}()

// otherWords has parts of the names that other tools give to opcodes.
var otherWords = strings.NewReplacer("RDMA_", "", "ACKNOWLEDGE", "ACK", "IMMEDIATE", "IMM", "COMPARE_SWAP", "CMP_SWAP", "CAS", "CMP_SWAP", "FAA", "FETCH_ADD")

// meant returns "; did you mean RC_WRITE_LAST?" for a text that is almost the name of an opcode, with or
// without its service, or "".
func meant(s string) string {
	if len(s) > maxName {
		return ""
	}
	upper := strings.ToUpper(s)
	plain := otherWords.Replace(upper)
	for _, like := range []string{plain, "RC_" + plain} {
		if _, known := opByName[like]; known {
			return "; did you mean " + like + "?"
		}
	}
	names := slices.Sorted(maps.Keys(opByName))
	if text := nearest.Meant(plain, names) + nearest.Meant("RC_"+plain, names); text != "" {
		first, _, _ := strings.Cut(text, "?")
		return "; " + first + "?"
	}
	return ""
}

// maxName bounds the texts to which a name is proposed.
const maxName = 40

// ParseOpcode parses the name of an opcode, as String returns it, in upper or lower case.
func ParseOpcode(s string) (Opcode, error) {
	if o, ok := opByName[strings.ToUpper(s)]; ok {
		return o, nil
	}
	if len(s) > len(unknownPrefix) && strings.EqualFold(s[:len(unknownPrefix)], unknownPrefix) {
		if n, err := strconv.ParseUint(s[len(unknownPrefix):], 16, 8); err == nil {
			return Opcode(n), nil
		}
	}
	return 0, fmt.Errorf("%.40q: %w%s", s, ErrOpcode, meant(s))
}

func (o Opcode) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

func (o *Opcode) UnmarshalText(text []byte) error {
	v, err := ParseOpcode(string(text))
	if err == nil {
		*o = v
	}
	return err
}
