package mad

import (
	"bytes"
	"testing"
)

// The offsets of the fields in the messages that resolve a datagram service (IBTA 12.11.1,
// 12.11.2).
func TestSIDRBytes(t *testing.T) {
	req := SIDRReq{RequestID: 0x01020304, PKey: 0x0506, Service: 0x08090a0b0c0d0e0f}
	req.Private[0], req.Private[SIDRReqPrivate-1] = 0x11, 0x12
	want := append([]byte{1, 2, 3, 4, 5, 6, 0, 0, 8, 9, 10, 11, 12, 13, 14, 15, 0x11}, make([]byte, SIDRReqPrivate-2)...)
	if got := req.AppendTo(nil); !bytes.Equal(got, append(want, 0x12)) {
		t.Errorf("SIDR_REQ is % x", got)
	}
	rep := SIDRRep{RequestID: 0x01020304, Status: SIDRRejected, InfoLen: 6, QPN: 0x070809, Service: 0x0a0b0c0d0e0f1011, QKey: 0x12131415}
	rep.Info[0], rep.Private[0] = 0x16, 0x17
	want = append([]byte{1, 2, 3, 4, 2, 6, 0, 0, 7, 8, 9, 0, 10, 11, 12, 13, 14, 15, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16}, make([]byte, SIDRRepInfo-1)...)
	want = append(append(want, 0x17), make([]byte, SIDRRepPrivate-1)...)
	if got := rep.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("SIDR_REP is % x", got)
	}
}
