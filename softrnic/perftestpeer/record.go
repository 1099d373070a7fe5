package perftestpeer

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// record describes one end of a perftest. As text it is "LID:outs:QPN:PSN:rkey:vaddr:" of 4, 4, 6,
// 6, 8 and 16 hexadecimal digits, 16 times "%02x:" of the GID, "%08x:" of the shared receive
// queue's number, and a NUL.
type record struct {
	Outs  uint16 // READs and atomics that the sender of the record wants to have in flight
	QPN   wire.QPN
	PSN   wire.PSN
	RKey  uint32
	VAddr uint64
	GID   verbs.GID
}

// recordLen is the length of a record as text.
const recordLen = 108

func (r *record) AppendTo(b []byte) []byte {
	b = fmt.Appendf(b, "0000:%04x:%06x:%06x:%08x:%016x:", r.Outs, uint32(r.QPN), uint32(r.PSN), r.RKey, r.VAddr)
	for _, v := range r.GID {
		b = fmt.Appendf(b, "%02x:", v)
	}
	return fmt.Appendf(b, "%08x:\x00", 0)
}

// recordFields are the lengths of the numbers of a record, in hexadecimal digits. The 16 numbers of
// two digits are the bytes of the GID.
var recordFields = [...]int{4, 4, 6, 6, 8, 16, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8}

func (r *record) Parse(b []byte) error {
	if len(b) != recordLen || b[recordLen-1] != 0 {
		return fmt.Errorf("%w: want a record of %d bytes, got %q", ErrFormat, recordLen, b[:min(len(b), recordLen)])
	}
	at := 0
	var n [len(recordFields)]uint64
	for i, f := range recordFields {
		v, err := digits(b[at : at+f])
		if err == nil && b[at+f] != ':' {
			err = fmt.Errorf("%w: no colon at byte %d of %q", ErrFormat, at+f, b)
		}
		if err != nil {
			return err
		}
		n[i] = v
		at += f + 1
	}
	var gid verbs.GID
	for i := range gid {
		gid[i] = byte(n[6+i])
	}
	*r = record{Outs: uint16(n[1]), QPN: wire.QPN(n[2]), PSN: wire.PSN(n[3]), RKey: uint32(n[4]), VAddr: n[5], GID: gid}
	return nil
}
