package crosscheck

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/google/gopacket"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/dissect"
)

// Difference is the error of Frame: a field for which the two decoders have different values.
type Difference struct {
	// Field is a path in wire.Frame such as "Packet.BTH.PSN", or "frame" if one decoder refuses the
	// whole frame.
	Field string
	// Wire and Gopacket are the values of the two decoders, as text.
	Wire, Gopacket string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("%s: wire says %s, gopacket says %s", d.Field, d.Wire, d.Gopacket)
}

// Frame decodes an Ethernet frame, without its FCS, with both decoders. It returns nil if they
// agree on every field and on the ICRC. It also returns nil for a frame that both take for neither
// RoCEv2 nor 1RMA (the protocol of onerma/nic), and for a frame that package wire or softrnic/wire/onerma
// refuses as malformed. In all other cases it returns a *Difference. The frame is only read. It
// must be complete: a decoder cannot decode all fields of a truncated frame.
func Frame(data []byte) error {
	packet := gopacket.NewPacket(data, dissect.LayerTypeEthernet, gopacket.Default)
	var ours wire.Frame
	err := wire.ParseFrame(data, &ours)
	bth := packet.Layer(dissect.LayerTypeBTH)
	switch failed := packet.ErrorLayer(); {
	case errors.Is(err, wire.ErrNotRoCE):
		if bth != nil {
			return &Difference{"frame", err.Error(), "it is RoCEv2"}
		}
		return message(data, packet)
	case err != nil:
		return nil // malformed: package wire also checks lengths and reserved values that gopacket accepts
	case failed != nil:
		return &Difference{"frame", "it is well-formed", failed.Error().Error()}
	}
	theirs, err := frameOf(packet)
	if err != nil {
		return &Difference{"frame", "it is well-formed", err.Error()}
	}
	if d := compare("", reflect.ValueOf(ours), reflect.ValueOf(*theirs)); d != nil {
		return d
	}
	sum, err := dissect.Sum(packet)
	if err != nil || (sum == ours.ICRC) != wire.CheckICRC(data) {
		return &Difference{"ICRC", fmt.Sprintf("%#x is right: %t", ours.ICRC, wire.CheckICRC(data)), fmt.Sprintf("it is %#x (%v)", sum, err)}
	}
	return nil
}

// compare returns the first field below path in which a and b, which have the same type, differ, or
// nil.
func compare(path string, a, b reflect.Value) *Difference {
	if a.Kind() == reflect.Struct {
		for i := range a.NumField() {
			name := a.Type().Field(i).Name
			if path != "" {
				name = path + "." + name
			}
			if d := compare(name, a.Field(i), b.Field(i)); d != nil {
				return d
			}
		}
		return nil
	}
	if !reflect.DeepEqual(a.Interface(), b.Interface()) {
		return &Difference{path, fmt.Sprintf("%#v", a.Interface()), fmt.Sprintf("%#v", b.Interface())}
	}
	return nil
}
