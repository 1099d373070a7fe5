package crosscheck

import (
	"reflect"

	"github.com/google/gopacket"

	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma/dissect"
)

// message compares the two decoders of 1RMA (packages softrnic/wire/onerma and softrnic/wire/onerma/dissect) on a
// frame that is not RoCEv2. It returns nil if they agree, and for a frame that is malformed or
// belongs to another protocol. The messages have no ICRC, and without keys their tags cannot be
// checked.
func message(data []byte, packet gopacket.Packet) error {
	var ours onerma.Frame
	if onerma.ParseFrame(data, &ours) != nil {
		return nil
	}
	m, ok := packet.Layer(dissect.LayerType).(*dissect.Message)
	if !ok {
		return &Difference{"frame", "it is " + ours.Header.String(), "it is no ONERMA message"}
	}
	theirs := onerma.Header{
		Kind: onerma.Kind(m.Kind), Op: onerma.Op(m.Operation), Class: m.Class, Slot: m.Slot, At: m.At, Generation: m.Generation, Region: m.Region,
		Offset: m.Offset, Length: m.Length, PID: m.PID, Counter: m.Counter, Ticket: m.Ticket,
	}
	if d := compare("Header", reflect.ValueOf(ours.Header), reflect.ValueOf(theirs)); d != nil {
		return d
	}
	if d := compare("Sealed", reflect.ValueOf(ours.Sealed), reflect.ValueOf(m.LayerPayload())); d != nil {
		return d
	}
	return nil
}
