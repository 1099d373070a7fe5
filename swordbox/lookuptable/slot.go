package lookuptable

import "encoding/binary"

// Probe is how many slots a lookup reads: an entry is in its home slot or in one of the Probe-1
// slots behind it.
const Probe = 8

// SlotLen is the length of a slot in bytes.
const SlotLen = 64

// A slot has an entry, or is free. Numbers are big-endian. Each field has its offset before its
// name, and its length in bytes behind the name if that is not 1:
//
//	0 version | 1 flags | 2 Ops | 3 protocol | 4 source 16 | 20 destination 16 | 36 source port 2 |
//	38 destination port 2 | 40 new address 16 | 56 new port 2 | 58 DSCP | 59 zero | 60 egress 2 |
//	62 number of the mask, 0 if the rule has none | 63 version
//
// Each WRITE of a slot increments the version, which is at both ends. If the two ends differ, the
// slot was read while it was written.
const (
	flagUsed = 1
	flagV6   = 2
)

type Entry struct {
	Key    Key
	Action Action
}

// AppendSlot appends a slot with an entry; if used is false, it appends a free slot.
func AppendSlot(b []byte, version uint8, e *Entry, used bool) []byte {
	be := binary.BigEndian
	flags := uint8(0)
	if !used {
		e = new(Entry)
	} else if flags = flagUsed; e.Key.V6 {
		flags |= flagV6
	}
	b = append(b, version, flags, byte(e.Action.Ops), e.Key.Proto)
	b = append(append(b, e.Key.Src[:]...), e.Key.Dst[:]...)
	b = be.AppendUint16(be.AppendUint16(b, e.Key.SrcPort), e.Key.DstPort)
	b = be.AppendUint16(append(b, e.Action.Addr[:]...), e.Action.Port)
	b = be.AppendUint16(append(b, e.Action.DSCP, 0), e.Action.Egress)
	return append(b, e.Key.Mask, version)
}

type slotState uint8

const (
	slotFree slotState = iota
	slotUsed
	slotTorn
)

// parseSlot reads a slot of SlotLen bytes.
func parseSlot(b []byte, e *Entry) slotState {
	switch {
	case b[0] != b[SlotLen-1]:
		return slotTorn
	case !ReadSlot(b, e):
		return slotFree
	}
	return slotUsed
}

// ReadSlot reads a slot of SlotLen bytes, and does not compare its two versions. It returns false
// if the slot is free.
func ReadSlot(b []byte, e *Entry) (used bool) {
	if b[1]&flagUsed == 0 {
		return false
	}
	be := binary.BigEndian
	e.Key = Key{
		Src: [16]byte(b[4:]), Dst: [16]byte(b[20:]), SrcPort: be.Uint16(b[36:]), DstPort: be.Uint16(b[38:]), Proto: b[3], V6: b[1]&flagV6 != 0, Mask: b[62],
	}
	e.Action = Action{Ops: Ops(b[2]) & opsKnown, DSCP: b[58] & 0x3f, Egress: be.Uint16(b[60:]), Addr: [16]byte(b[40:]), Port: be.Uint16(b[56:])}
	return true
}

// search looks for a key in slots. torn is true if the key was not found, and a slot was read while
// it was written.
func search(b []byte, k *Key) (a Action, found, torn bool) {
	var e Entry
	for ; len(b) >= SlotLen; b = b[SlotLen:] {
		switch parseSlot(b, &e) {
		case slotTorn:
			torn = true
		case slotUsed:
			if e.Key == *k {
				return e.Action, true, false
			}
		case slotFree:
		}
	}
	return a, false, torn
}
